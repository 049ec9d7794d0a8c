"""Training against spurious correlations."""

from holdfast.spurious.balancing import (
    ClassBalanced,
    GroupBalanced,
    GroupSubsampled,
    GroupWeighted,
    balance_weights,
    balanced_subset,
)
from holdfast.spurious.cnc import Cnc
from holdfast.spurious.cvar import CvarDRO
from holdfast.spurious.dfr import DfrTrain, DfrVal
from holdfast.spurious.eiil import Eiil
from holdfast.spurious.george import George
from holdfast.spurious.group_dro import GroupDRO
from holdfast.spurious.inference import InferGroups, Inferring
from holdfast.spurious.jtt import Jtt
from holdfast.spurious.lff import Lff
from holdfast.spurious.partition import Partition
from holdfast.spurious.pde import Pde
from holdfast.spurious.pgi import Pgi
from holdfast.spurious.separation import separate
from holdfast.spurious.spare import Spare
from holdfast.spurious.ssa import Ssa

__all__ = [
    "ClassBalanced",
    "Cnc",
    "CvarDRO",
    "DfrTrain",
    "DfrVal",
    "Eiil",
    "George",
    "GroupBalanced",
    "GroupDRO",
    "GroupSubsampled",
    "GroupWeighted",
    "InferGroups",
    "Inferring",
    "Jtt",
    "Lff",
    "Partition",
    "Pde",
    "Pgi",
    "Spare",
    "Ssa",
    "balance_weights",
    "balanced_subset",
    "separate",
]
