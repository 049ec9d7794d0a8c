"""Plain training beside a method: the yardstick for methods that aim at groups which nobody labelled.

Such a method rests on an assumption, that what is learned first is the shortcut, or that what is hard is a minority.
Where it fails, often nothing else in the run shows it: hard examples separate as well as a minority does. It costs one
training more. The plain run lies in the method's own, as RUN/plain, and is continued after a kill like any other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.data.examples import Splits
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.events import Listener
from holdfast.training.fitting import fit
from holdfast.training.run import Run
from holdfast.training.settings import Training

#: Its folder in the run that is compared with it.
FOLDER = "plain"


def train_plain(
    model: nn.Module,
    splits: Splits,
    settings: Training | None = None,
    *,
    run: Run | None = None,
    listeners: Sequence[Listener] = (),
) -> GroupReport:
    """How plain training fares on the test set, from the weights that `model` has now; these stay as they are.

    Args:
        model: what the method will train.
        splits: training, validation and test set.
        settings: how long and how fast.
        run: keeps it, and says how far it was; of several processes, only the first's counts.
        listeners: called with every event.

    Returns:
        The ``reference`` of `fit`.
    """
    return fit(copy.deepcopy(model), splits, None, settings, run=run, listeners=listeners).test


def plain_run(parent: Path, config: Callable[[], Mapping[str, Any]]) -> Run:
    """The plain run in a run's folder: the one that is there, finished or not, or a new one."""
    path = parent / FOLDER
    return Run(path) if (path / "config.yaml").exists() else Run.create(path, config())
