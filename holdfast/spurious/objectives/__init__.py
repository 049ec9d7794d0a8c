"""Losses over groups instead of examples."""
