"""The data sets, by what their examples are."""
