"""The server's side: holdfast's federation with an executor that asks nodes."""
