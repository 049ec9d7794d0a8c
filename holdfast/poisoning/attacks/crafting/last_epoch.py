"""`fit` with the weights of the last epoch.

A victim of an attack has no clean validation set on which a checkpoint without the backdoor could be chosen, and the
published success rates are those of the last epoch. So attacks and victims train by this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from holdfast.data.examples import Splits
from holdfast.training.events import Event, Listener
from holdfast.training.fitting import FitResult, fit
from holdfast.training.method import Method
from holdfast.training.objective import Objective
from holdfast.training.policy import Policy
from holdfast.training.run import Run
from holdfast.training.settings import Training


def fit_to_the_end(
    model: nn.Module,
    splits: Splits,
    method: Method | Policy | Objective | None,
    settings: Training,
    *,
    run: Run | None = None,
    listeners: Sequence[Listener] = (),
    head: str | None = None,
) -> FitResult:
    """Train with `fit`; afterwards the model holds the weights of the last epoch, whatever validation data says.

    Args:
        model: trained in place.
        splits: training, validation and test set; ``test_last`` of the result is the one to read.
        method: a defence; none by default.
        settings: how long and how fast; checkpoints are compared by accuracy, which needs no groups.
        run: a directory for a run that survives a kill.
        listeners: called with every event.
        head: name of the model's head where it can't be found.

    Returns:
        What `fit` returns.
    """
    weights: dict[str, Tensor] = {}

    def watch(event: Event) -> None:
        if event.kind == "epoch":
            weights.update({name: value.detach().clone() for name, value in model.state_dict().items()})

    settings = replace(settings, select_by="accuracy")
    result = fit(model, splits, method, settings, run=run, listeners=[watch, *listeners], head=head)
    model.load_state_dict(weights if run is None else run.load_checkpoint()["model"])
    return result
