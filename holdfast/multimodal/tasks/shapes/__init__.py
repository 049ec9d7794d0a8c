"""Rendered shapes on backgrounds, and a small model that learned their shortcut."""
