"""Causal language models, fine-tuned and looked at."""
