"""Ditto: the algorithm (`ditto`), lambda chosen by each client (`adaptive`), the best one in hindsight (`oracle`)."""
