"""Readers of file formats: each names the file, the place in it and the remedy when something is wrong."""
