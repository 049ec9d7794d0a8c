"""The page of a federation and its parts."""
