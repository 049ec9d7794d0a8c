"""Data sets of images, and the generated ones that stand for them."""
