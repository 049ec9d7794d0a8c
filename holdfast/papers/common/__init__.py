"""What the experiments of several documents share."""
