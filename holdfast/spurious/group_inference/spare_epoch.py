"""Choose SPARE's inference epoch without any group labels: train with each candidate, keep the best average.

On Restricted ImageNet, where nobody knows groups, an epoch has to be chosen so (Sections 5.5.3 and 9.4.5 of the
dissertation, https://escholarship.org/uc/item/0399v1qw). It costs a training per candidate; with a labelled validation
set `Spare.tune_until` does it within one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from holdfast.data.examples import Splits
from holdfast.errors import ConfigError
from holdfast.spurious.group_inference.spare import Spare
from holdfast.training.fitting import FitResult, fit
from holdfast.training.settings import Training


@dataclass(frozen=True, eq=False)
class TunedEpoch:
    """What was tried and what was chosen.

    Attributes:
        epoch: the inference epoch with the best average accuracy on validation data, the earliest on ties.
        results: what came out of each.
    """

    epoch: int
    results: Mapping[int, FitResult]


def choose_infer_epoch(
    new_model: Callable[[], nn.Module],
    splits: Splits,
    settings: Training,
    *,
    candidates: Sequence[int] = (2, 4, 6, 8),
    spare: Spare | None = None,
) -> TunedEpoch:
    """Train SPARE with every candidate epoch and compare average accuracies.

    Args:
        new_model: makes the model that training starts from, the same each time.
        splits: the data; no group label is looked at for the choice.
        settings: of every training; checkpoints are chosen by accuracy whatever it says.
        candidates: the inference epochs to try.
        spare: the other options of SPARE.

    Returns:
        The choice and all results.

    Raises:
        ConfigError: if there is nothing to try.
    """
    if not candidates:
        raise ConfigError("there is no inference epoch to try; give at least one candidate")
    options = spare or Spare()
    blind = replace(settings, select_by="accuracy")
    results = {
        epoch: fit(new_model(), splits, replace(options, infer_epoch=epoch, tune_until=0), blind)
        for epoch in sorted(set(candidates))
    }
    best = max(results, key=lambda epoch: (results[epoch].validation.accuracy, -epoch))
    return TunedEpoch(best, results)
