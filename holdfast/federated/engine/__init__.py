"""What makes a federation fast: networks of flat parameters, many clients stacked, executors, personal models on disk."""
