"""Federated learning: clients, rounds, executors, objectives, aggregators, attacks, personalization."""
