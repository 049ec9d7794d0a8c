"""What the methods are built from: arrays in, arrays out, no training loop."""
