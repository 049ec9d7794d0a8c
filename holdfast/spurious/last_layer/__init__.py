"""Train plainly, then refit the last layer."""
