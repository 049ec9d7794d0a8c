"""Training against spurious correlations."""

from holdfast.spurious.balancing import ClassBalanced, GroupBalanced, GroupSubsampled, balance_weights, balanced_subset

__all__ = ["ClassBalanced", "GroupBalanced", "GroupSubsampled", "balance_weights", "balanced_subset"]
