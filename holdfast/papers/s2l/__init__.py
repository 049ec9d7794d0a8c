"""S2L: its experiments, printed numbers and claims."""
