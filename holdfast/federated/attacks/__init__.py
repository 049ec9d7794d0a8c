"""What malicious clients do: poison their labels, and send something other than their update.

A1, A2 and A3 are those of Ditto (Section 2). The others are published attacks that users measure defences with.
Personal models are never touched.
"""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.federated.attacks.backdoor import Backdoor, stamp
    from holdfast.federated.attacks.base import Attack, Defence
    from holdfast.federated.attacks.local_updates import (
        Gaussian,
        LabelPoisoning,
        ModelReplacement,
        RandomUpdates,
        SignFlip,
    )
    from holdfast.federated.attacks.omniscient import InnerProduct, LittleIsEnough, Mimic, MinMax, alie_z
    from holdfast.federated.attacks.optimised import OptimisedInnerProduct, OptimisedLittleIsEnough, most_harmful_factor
    from holdfast.federated.attacks.poisoning import malicious_clients, poison_labels
    from holdfast.federated.attacks.table import ATTACKS
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ATTACKS",
    "Attack",
    "Backdoor",
    "Defence",
    "Gaussian",
    "InnerProduct",
    "LabelPoisoning",
    "LittleIsEnough",
    "Mimic",
    "MinMax",
    "ModelReplacement",
    "OptimisedInnerProduct",
    "OptimisedLittleIsEnough",
    "RandomUpdates",
    "SignFlip",
    "alie_z",
    "malicious_clients",
    "most_harmful_factor",
    "poison_labels",
    "stamp",
]
