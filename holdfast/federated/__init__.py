"""Federated learning: clients with data of their own, a server, attacks, and a model per client where one is wanted.

``federate(clients, model, settings, objective=..., aggregator=..., threat=..., personalize=[...])`` simulates all of it
and reports how every client fares.
"""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.federated.aggregation import (
        AGGREGATORS,
        Aggregator,
        Bucketing,
        Bulyan,
        CentredClipping,
        ClientMomentum,
        Clipping,
        FedMgda,
        GeometricMedian,
        KLoss,
        KNorm,
        Krum,
        Mean,
        Median,
        MultiKrum,
        NearestNeighbourMixing,
        TrimmedMean,
    )
    from holdfast.federated.attacks import (
        ATTACKS,
        Attack,
        Backdoor,
        Gaussian,
        InnerProduct,
        LabelPoisoning,
        LittleIsEnough,
        Mimic,
        MinMax,
        ModelReplacement,
        OptimisedInnerProduct,
        OptimisedLittleIsEnough,
        RandomUpdates,
        SignFlip,
    )
    from holdfast.federated.attacks.threat import Threat
    from holdfast.federated.expectation import Expectation
    from holdfast.federated.federation import federate
    from holdfast.federated.metrics.client_report import ClientReport
    from holdfast.federated.objectives import OBJECTIVES, Afl, FedAvg, FederatedObjective, FedProx, FedSGD, QFair, Term
    from holdfast.federated.personalization import (
        PERSONALIZATION,
        Apfl,
        Ditto,
        Ewc,
        FedBn,
        FedPer,
        FedRep,
        FineTuned,
        FineTuning,
        FlippedLabel,
        JustTrainTwice,
        L2Sgd,
        Local,
        Mapper,
        Near,
        PerFedAvg,
        Personalizer,
        PFedMe,
        Skl,
        Transferability,
        UpWeighted,
        WithPolicy,
    )
    from holdfast.federated.post_hoc import Personalized, personalize
    from holdfast.federated.result import FederationResult
    from holdfast.federated.scaffold import Scaffold
    from holdfast.federated.server.optimizers import (
        SERVER_OPTIMIZERS,
        FedAdagrad,
        FedAdam,
        FedAvgM,
        FedYogi,
        ServerOptimizer,
    )
    from holdfast.federated.server.privacy import ClientPrivacy
    from holdfast.federated.settings import Rounds
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "AGGREGATORS",
    "ATTACKS",
    "OBJECTIVES",
    "PERSONALIZATION",
    "SERVER_OPTIMIZERS",
    "Afl",
    "Aggregator",
    "Apfl",
    "Attack",
    "Backdoor",
    "Bucketing",
    "Bulyan",
    "CentredClipping",
    "ClientMomentum",
    "ClientPrivacy",
    "ClientReport",
    "Clipping",
    "Ditto",
    "Ewc",
    "Expectation",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedBn",
    "FedMgda",
    "FedPer",
    "FedProx",
    "FedRep",
    "FedSGD",
    "FedYogi",
    "FederatedObjective",
    "FederationResult",
    "FineTuned",
    "FineTuning",
    "FlippedLabel",
    "Gaussian",
    "GeometricMedian",
    "InnerProduct",
    "JustTrainTwice",
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
    "Mimic",
    "MinMax",
    "ModelReplacement",
    "MultiKrum",
    "Near",
    "NearestNeighbourMixing",
    "OptimisedInnerProduct",
    "OptimisedLittleIsEnough",
    "PFedMe",
    "PerFedAvg",
    "Personalized",
    "Personalizer",
    "QFair",
    "RandomUpdates",
    "Rounds",
    "Scaffold",
    "ServerOptimizer",
    "SignFlip",
    "Skl",
    "Term",
    "Threat",
    "Transferability",
    "TrimmedMean",
    "UpWeighted",
    "WithPolicy",
    "federate",
    "personalize",
]
