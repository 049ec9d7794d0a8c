"""`holdfast select`: ways to choose data, one module each."""
