"""Training that holds up for every group and every client, under attack, on a fraction of the data.

The names that most programs need are here; methods are in the package of their subject: ``holdfast.spurious.Spare``,
``holdfast.coresets.Crest``, ``holdfast.poisoning.Epic``, ``holdfast.federated.Ditto``. Everything is imported when it
is used, so ``import holdfast`` costs nothing.

Example:
    >>> import holdfast
    >>> splits = holdfast.data.load("digits")
    >>> model = holdfast.models.build("mlp", splits.train.input_shape, splits.train.n_classes)
    >>> result = holdfast.fit(model, splits, settings=holdfast.Training(epochs=1))
    >>> holdfast.evaluate(result.model, splits.test).accuracy == result.test.accuracy
    True
"""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast import (
        coresets,
        data,
        errors,
        federated,
        finetuning,
        models,
        multimodal,
        poisoning,
        report,
        spurious,
        training,
    )
    from holdfast.data.clients.clients import Clients
    from holdfast.data.examples import Examples, Splits
    from holdfast.federated.federation import federate
    from holdfast.federated.settings import Rounds
    from holdfast.methods import build_method
    from holdfast.report.pages.audit_arrays import audit
    from holdfast.selection import select
    from holdfast.training.curator import Curator
    from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics
    from holdfast.training.evaluation.evaluation import evaluate
    from holdfast.training.evaluation.group_report import GroupReport
    from holdfast.training.fitting import fit
    from holdfast.training.settings import Training
else:
    __getattr__, __dir__ = lazy_names(__name__)

__version__ = "0.1.0"

__all__ = [
    "Clients",
    "Curator",
    "Examples",
    "GroupMetrics",
    "GroupReport",
    "Rounds",
    "Splits",
    "Training",
    "audit",
    "build_method",
    "coresets",
    "data",
    "errors",
    "evaluate",
    "federate",
    "federated",
    "finetuning",
    "fit",
    "models",
    "multimodal",
    "poisoning",
    "report",
    "select",
    "spurious",
    "training",
]
