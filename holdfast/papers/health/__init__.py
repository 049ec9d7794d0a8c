"""Whether a verdict about a result can be trusted, and whether ``--method auto`` keeps its promise: on many beds."""
