"""A model per client: trained alongside the shared model, jointly with it, or post-hoc."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.federated.personalization.apfl import Apfl
    from holdfast.federated.personalization.base import (
        AlongsidePersonalizer,
        JointPersonalizer,
        Personalizer,
        PostHocPersonalizer,
    )
    from holdfast.federated.personalization.ditto.adaptive import DynamicDitto, ParallelDitto
    from holdfast.federated.personalization.ditto.ditto import Ditto
    from holdfast.federated.personalization.ditto.oracle import best_lambda
    from holdfast.federated.personalization.factory import resolve, strong_attack, strong_in_the_documents
    from holdfast.federated.personalization.fine_tuning import Ewc, FineTuning, Skl
    from holdfast.federated.personalization.l2sgd import L2Sgd
    from holdfast.federated.personalization.local import Local
    from holdfast.federated.personalization.mapper import Mapper
    from holdfast.federated.personalization.partial.fedbn import FedBn
    from holdfast.federated.personalization.partial.fedper import FedPer
    from holdfast.federated.personalization.partial.fedrep import FedRep
    from holdfast.federated.personalization.per_fedavg import PerFedAvg
    from holdfast.federated.personalization.pfedme import PFedMe
    from holdfast.federated.personalization.policies import WithPolicy
    from holdfast.federated.personalization.table import PERSONALIZATION
    from holdfast.federated.personalization.transferability import FineTuned, FlippedLabel, Near, Transferability
    from holdfast.federated.personalization.upweighting import JustTrainTwice, UpWeighted
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "PERSONALIZATION",
    "AlongsidePersonalizer",
    "Apfl",
    "Ditto",
    "DynamicDitto",
    "Ewc",
    "FedBn",
    "FedPer",
    "FedRep",
    "FineTuned",
    "FineTuning",
    "FlippedLabel",
    "JointPersonalizer",
    "JustTrainTwice",
    "L2Sgd",
    "Local",
    "Mapper",
    "Near",
    "PFedMe",
    "ParallelDitto",
    "PerFedAvg",
    "Personalizer",
    "PostHocPersonalizer",
    "Skl",
    "Transferability",
    "UpWeighted",
    "WithPolicy",
    "best_lambda",
    "resolve",
    "strong_attack",
    "strong_in_the_documents",
]
