"""Choosing fine-tuning data: S2L and what it is compared with."""
