"""Training against spurious correlations."""

from holdfast.spurious.balancing import ClassBalanced, GroupBalanced, GroupSubsampled, balance_weights, balanced_subset
from holdfast.spurious.cvar import CvarDRO
from holdfast.spurious.group_dro import GroupDRO, group_dro
from holdfast.spurious.jtt import Jtt
from holdfast.spurious.pde import Pde
from holdfast.spurious.spare import Partition, Spare, separate

__all__ = [
    "ClassBalanced",
    "CvarDRO",
    "GroupBalanced",
    "GroupDRO",
    "GroupSubsampled",
    "Jtt",
    "Partition",
    "Pde",
    "Spare",
    "balance_weights",
    "balanced_subset",
    "group_dro",
    "separate",
]
