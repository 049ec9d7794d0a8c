"""Measurements of speed and memory beside other systems; each is a script."""
