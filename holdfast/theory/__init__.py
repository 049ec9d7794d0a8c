"""The documents' theorems, as functions to hold training against; nothing in the library imports them."""
