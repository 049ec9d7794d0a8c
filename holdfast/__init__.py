"""Training that holds up for every group and every client, under attack, on a fraction of the data."""

__version__ = "0.1.0"
