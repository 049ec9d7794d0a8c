"""Federated learning: clients with data of their own, a server, attacks, and a model per client where one is wanted.

``federate(clients, model, settings, objective=..., aggregator=..., threat=..., personalize=[...])`` simulates all of it
and reports how every client fares.
"""

from holdfast.federated.aggregators import (
    AGGREGATORS,
    Aggregator,
    Clipping,
    FedMgda,
    GeometricMedian,
    KLoss,
    KNorm,
    Krum,
    Mean,
    Median,
    MultiKrum,
    TrimmedMean,
)
from holdfast.federated.attacks import (
    ATTACKS,
    Attack,
    Gaussian,
    InnerProduct,
    LabelPoisoning,
    LittleIsEnough,
    MinMax,
    ModelReplacement,
    RandomUpdates,
    SignFlip,
)
from holdfast.federated.device_report import DeviceReport
from holdfast.federated.federation import federate
from holdfast.federated.objectives import OBJECTIVES, Afl, FedAvg, FedProx, FedSGD, Objective, QFair, Term
from holdfast.federated.outcome import Outcome
from holdfast.federated.personalization import (
    PERSONALIZATION,
    Apfl,
    Ditto,
    Ewc,
    FineTuning,
    L2Sgd,
    Local,
    Mapper,
    PerFedAvg,
    Personalizer,
    PFedMe,
    Skl,
)
from holdfast.federated.settings import Rounds
from holdfast.federated.threat import Threat

__all__ = [
    "AGGREGATORS",
    "ATTACKS",
    "OBJECTIVES",
    "PERSONALIZATION",
    "Afl",
    "Aggregator",
    "Apfl",
    "Attack",
    "Clipping",
    "DeviceReport",
    "Ditto",
    "Ewc",
    "FedAvg",
    "FedMgda",
    "FedProx",
    "FedSGD",
    "FineTuning",
    "Gaussian",
    "GeometricMedian",
    "InnerProduct",
    "KLoss",
    "KNorm",
    "Krum",
    "L2Sgd",
    "LabelPoisoning",
    "LittleIsEnough",
    "Local",
    "Mapper",
    "Mean",
    "Median",
    "MinMax",
    "ModelReplacement",
    "MultiKrum",
    "Objective",
    "Outcome",
    "PFedMe",
    "PerFedAvg",
    "Personalizer",
    "QFair",
    "RandomUpdates",
    "Rounds",
    "SignFlip",
    "Skl",
    "Term",
    "Threat",
    "TrimmedMean",
    "federate",
]
