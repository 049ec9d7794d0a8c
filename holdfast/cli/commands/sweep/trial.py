"""One trial of a sweep: `holdfast fit` with given words, in a worker process, without a run folder."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

from holdfast import models
from holdfast.cli.common.options import FitOptions, parse
from holdfast.data import Splits
from holdfast.data.catalog import data_root
from holdfast.errors import HoldfastWarning
from holdfast.training import GroupReport, fit
from holdfast.training.evaluation.criteria import criterion
from holdfast.training.evaluation.scores import accuracy_of

#: Verdicts in the order of their weight; a trial gives places in it.
VERDICTS = ("ok", "doubtful", "failed")

#: The data of the last trial of this process, by what they were read from: trials of a sweep are on the same.
_last: dict[str, Splits] = {}


def run_trial(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Train as the words say and report what a sweep compares.

    Args:
        settings: ``words``, the options of `holdfast fit` but the seed.
        seed: of the model and of every draw.

    Returns:
        ``score``, by which the epoch was chosen, on the validation set; on the test set ``worst_group`` and
        ``worst_class``, the accuracies of the worst, and ``accuracy``; ``verdict``, a place in `VERDICTS`, with
        ``check NAME`` for every check; ``cpu_seconds``; ``best_epoch`` from 1.
    """
    started = time.process_time()
    options = parse([*settings["words"], "--seed", str(seed)])
    splits, choices = _data(options), options.choices
    spec = models.ModelSpec(
        choices.model,
        splits.train.input_shape,
        splits.train.n_classes,
        choices.model_args,
        seed,
        choices.weights,
        choices.head,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        result = fit(spec.build(data_root(choices.data_root)), splits, options.policy, options.training)
    test: GroupReport = result.test
    checks = {f"check {one.check}": float(VERDICTS.index(one.verdict)) for one in reversed(result.health.findings)}
    return {
        "score": criterion(result.validation, options.training.select_by),
        "worst_group": test.worst_accuracy,
        "worst_class": accuracy_of(test.worst_class),
        "accuracy": test.accuracy,
        "verdict": float(VERDICTS.index(result.health.verdict)),
        "best_epoch": result.best_epoch + 1,
        "cpu_seconds": time.process_time() - started,
        **checks,
    }


def _data(options: FitOptions) -> Splits:
    """The data, read once per process."""
    name = repr((options.data, options.choices.data_root))
    if name not in _last:
        _last.clear()
        _last[name] = options.data.load(data_root(options.choices.data_root))
    return _last[name]
