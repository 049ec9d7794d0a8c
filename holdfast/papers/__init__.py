"""One module per source document: its experiments, printed numbers and claims, at three scales."""
