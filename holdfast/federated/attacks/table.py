"""Every attack by the name it has on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import LazyTable

if TYPE_CHECKING:
    from holdfast.federated.attacks.base import Attack

ATTACKS: LazyTable[type[Attack]] = LazyTable(
    "attack",
    {
        "a1": "holdfast.federated.attacks:LabelPoisoning",
        "a2": "holdfast.federated.attacks:RandomUpdates",
        "a3": "holdfast.federated.attacks:ModelReplacement",
        "sign-flip": "holdfast.federated.attacks:SignFlip",
        "gaussian": "holdfast.federated.attacks:Gaussian",
        "alie": "holdfast.federated.attacks:LittleIsEnough",
        "inner-product": "holdfast.federated.attacks:InnerProduct",
        "min-max": "holdfast.federated.attacks:MinMax",
        "mimic": "holdfast.federated.attacks:Mimic",
        "optimised-alie": "holdfast.federated.attacks:OptimisedLittleIsEnough",
        "optimised-inner-product": "holdfast.federated.attacks:OptimisedInnerProduct",
        "backdoor": "holdfast.federated.attacks:Backdoor",
    },
)
