"""SPARE: its experiments, printed numbers and claims."""
