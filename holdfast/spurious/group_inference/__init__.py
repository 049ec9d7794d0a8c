"""Groups that nobody labelled: infer them, then train; and how good the inferred ones are."""
