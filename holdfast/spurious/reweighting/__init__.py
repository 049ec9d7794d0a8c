"""Balance or grow what is seen: sampling, subsets, weights."""
