"""Personalized federated learning with spurious features: its experiments, printed numbers and claims."""
