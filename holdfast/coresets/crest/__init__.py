"""CREST and its parts."""
