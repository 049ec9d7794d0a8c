"""What makes a federation fast: flat parameters, many clients stacked, executors, personal models on disk."""
