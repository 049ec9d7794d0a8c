"""Training against spurious correlations."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.spurious.group_inference.base import GroupInference, InferGroups
    from holdfast.spurious.group_inference.eiil import Eiil
    from holdfast.spurious.group_inference.george import George
    from holdfast.spurious.group_inference.jtt import Jtt
    from holdfast.spurious.group_inference.partition import ClusterPartition
    from holdfast.spurious.group_inference.separation import separate
    from holdfast.spurious.group_inference.spare import Spare
    from holdfast.spurious.group_inference.ssa import Ssa
    from holdfast.spurious.last_layer.dfr import DfrTrain, DfrVal
    from holdfast.spurious.objectives.cnc import Cnc
    from holdfast.spurious.objectives.cvar import CvarDRO
    from holdfast.spurious.objectives.group_dro import GroupDRO
    from holdfast.spurious.objectives.pgi import Pgi
    from holdfast.spurious.reweighting.balancing import (
        ClassBalanced,
        GroupBalanced,
        GroupSubsampled,
        GroupWeighted,
        balance_weights,
        balanced_subset,
    )
    from holdfast.spurious.reweighting.lff import Lff
    from holdfast.spurious.reweighting.pde import Pde
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ClassBalanced",
    "ClusterPartition",
    "Cnc",
    "CvarDRO",
    "DfrTrain",
    "DfrVal",
    "Eiil",
    "George",
    "GroupBalanced",
    "GroupDRO",
    "GroupInference",
    "GroupSubsampled",
    "GroupWeighted",
    "InferGroups",
    "Jtt",
    "Lff",
    "Pde",
    "Pgi",
    "Spare",
    "Ssa",
    "balance_weights",
    "balanced_subset",
    "separate",
]
