"""Every personalization method by the name it has on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import LazyTable

if TYPE_CHECKING:
    from holdfast.federated.personalization.base import Personalizer

PERSONALIZATION: LazyTable[type[Personalizer]] = LazyTable(
    "personalization method",
    {
        "ditto": "holdfast.federated.personalization:Ditto",
        "local": "holdfast.federated.personalization:Local",
        "finetuning": "holdfast.federated.personalization:FineTuning",
        "ewc": "holdfast.federated.personalization:Ewc",
        "skl": "holdfast.federated.personalization:Skl",
        "apfl": "holdfast.federated.personalization:Apfl",
        "l2sgd": "holdfast.federated.personalization:L2Sgd",
        "mapper": "holdfast.federated.personalization:Mapper",
        "per-fedavg": "holdfast.federated.personalization:PerFedAvg",
        "pfedme": "holdfast.federated.personalization:PFedMe",
        "fedper": "holdfast.federated.personalization:FedPer",
        "fedrep": "holdfast.federated.personalization:FedRep",
        "fedbn": "holdfast.federated.personalization:FedBn",
        "transferability": "holdfast.federated.personalization:Transferability",
        "flipped-label": "holdfast.federated.personalization:FlippedLabel",
        "ft": "holdfast.federated.personalization:FineTuned",
        "near": "holdfast.federated.personalization:Near",
        "uw": "holdfast.federated.personalization:UpWeighted",
        "jtt": "holdfast.federated.personalization:JustTrainTwice",
    },
)
