"""Trackers that listen to a run."""
