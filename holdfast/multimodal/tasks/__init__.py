"""What a two-tower model is tuned and judged on: images, words, outlines."""
