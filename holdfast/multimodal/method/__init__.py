"""Spurious-aware fine-tuning of a two-tower model, and what it is compared with."""
