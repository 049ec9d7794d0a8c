"""EPIC: its experiments, printed numbers and claims."""
