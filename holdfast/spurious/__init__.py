"""Training against spurious correlations."""

from holdfast.spurious.balancing import (
    ClassBalanced,
    GroupBalanced,
    GroupSubsampled,
    GroupWeighted,
    balance_weights,
    balanced_subset,
)
from holdfast.spurious.cvar import CvarDRO
from holdfast.spurious.group_dro import GroupDRO
from holdfast.spurious.inference import InferGroups, Inferring
from holdfast.spurious.jtt import Jtt
from holdfast.spurious.partition import Partition
from holdfast.spurious.pde import Pde
from holdfast.spurious.separation import separate
from holdfast.spurious.spare import Spare

__all__ = [
    "ClassBalanced",
    "CvarDRO",
    "GroupBalanced",
    "GroupDRO",
    "GroupSubsampled",
    "GroupWeighted",
    "InferGroups",
    "Inferring",
    "Jtt",
    "Partition",
    "Pde",
    "Spare",
    "balance_weights",
    "balanced_subset",
    "separate",
]
