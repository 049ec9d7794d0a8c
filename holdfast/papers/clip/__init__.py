"""Spurious-aware fine-tuning of vision-language models: its experiments, printed numbers and claims."""
