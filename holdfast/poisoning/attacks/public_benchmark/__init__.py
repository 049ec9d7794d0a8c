"""The public poisoning benchmark's files, read as data."""
