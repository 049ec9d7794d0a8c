"""Plans, policies, the curator, objectives, `fit`, evaluation by group, runs on disk."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.training.batches import Batch
    from holdfast.training.clock import Clock
    from holdfast.training.curator import Curator
    from holdfast.training.evaluation.evaluation import evaluate, predict
    from holdfast.training.evaluation.group_report import GroupReport
    from holdfast.training.events import Event, Listener
    from holdfast.training.fitting import FitResult, fit
    from holdfast.training.method import Method, validated
    from holdfast.training.objective import CrossEntropy, Forward, Objective
    from holdfast.training.plan import Plan
    from holdfast.training.policy import (
        Chain,
        Context,
        PlannedTraining,
        Policy,
        ResetOptimizer,
        Restart,
        ScaleLearningRate,
        SetOptimizer,
        StopAugmenting,
        Uniform,
    )
    from holdfast.training.post_training import PostTraining, Trained
    from holdfast.training.run import Run
    from holdfast.training.settings import Training
    from holdfast.training.yardstick import train_plain
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "Batch",
    "Chain",
    "Clock",
    "Context",
    "CrossEntropy",
    "Curator",
    "Event",
    "FitResult",
    "Forward",
    "GroupReport",
    "Listener",
    "Method",
    "Objective",
    "Plan",
    "PlannedTraining",
    "Policy",
    "PostTraining",
    "ResetOptimizer",
    "Restart",
    "Run",
    "ScaleLearningRate",
    "SetOptimizer",
    "StopAugmenting",
    "Trained",
    "Training",
    "Uniform",
    "evaluate",
    "fit",
    "predict",
    "train_plain",
    "validated",
]  # fmt: skip
