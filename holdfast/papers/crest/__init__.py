"""CREST: its experiments, printed numbers and claims."""
