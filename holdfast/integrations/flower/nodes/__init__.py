"""A node's side: client functions for the clients it hosts, and what they remember."""
