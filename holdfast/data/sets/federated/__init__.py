"""Data sets that come by client, and those that are dealt out in a published way."""
