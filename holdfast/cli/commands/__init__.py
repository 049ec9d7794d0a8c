"""One module per command; the file has the command's name."""
