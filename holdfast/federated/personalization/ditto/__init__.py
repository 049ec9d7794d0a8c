"""Ditto: personal models with a fixed lambda, one that each client chooses, and the best one in hindsight."""
