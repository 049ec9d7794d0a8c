"""One decision for all processes: the main one runs the policies, the others do their part of its sweeps.

Were every process to run the policies by itself, a bit of difference (other processors, batch norm's own statistics)
would make another plan, and other plans have other numbers of batches. So policies live in the main process. The others
wait for its orders: forward these examples, take this decision, or raise this error. What was decided is compared by
its hash in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, get_args

from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.plan import Plan
from holdfast.training.policy import Request
from holdfast.training.precision import Precision
from holdfast.training.ranks import Ranks, alone, as_error, described, digest

_REQUESTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Request)}


@dataclass(frozen=True, eq=False)
class Decision:
    """What policies decided.

    Attributes:
        plan: what to train on from now on.
        requests: what they ask of the loop.
    """

    plan: Plan
    requests: list[Request]


class LedOutputs(ModelOutputs):
    """The main process's outputs: each sweep is ordered from the other processes too."""

    def _fill(self, positions: Tensor) -> None:
        if len(positions):
            self._ranks.broadcast({"order": "sweep", "positions": positions, "features": self._want_features})
            self.sweep(positions, to_all=False)


def decide_together(
    ranks: Ranks,
    model: nn.Module | None,
    examples: Examples,
    decide: Callable[[ModelOutputs | None], Decision],
    *,
    features: bool,
    head: str | None,
    precision: Precision,
) -> Decision:
    """The main process's decision, in all of them.

    Args:
        ranks: the processes; all must call at the same time, with the same weights.
        model: what policies look at.
        examples: the training set.
        decide: runs the policies on the model's outputs; called in the main process only, and then `alone`.
        features: whether sweeps keep the inputs of the head.
        head: name of the head where it can't be found.
        precision: what sweeps compute in.

    Raises:
        HoldfastError: what a policy raised, in every process.
    """
    outputs: ModelOutputs | None = None
    if model is not None:
        ranks.share_buffers(model)
        kind = LedOutputs if ranks.is_main else ModelOutputs
        outputs = kind(model, examples, features=features, head=head, precision=precision, ranks=ranks)
    decision = _lead(ranks, decide, outputs) if ranks.is_main else _assist(ranks, outputs)
    ranks.expect_same(
        {"the hash of the plan": digest(decision.plan.tensors())}, "this is a defect of holdfast, please report it"
    )
    return decision


def _lead(ranks: Ranks, decide: Callable[[ModelOutputs | None], Decision], outputs: ModelOutputs | None) -> Decision:
    try:
        with alone():
            decision = decide(outputs)
    except Exception as error:
        ranks.broadcast({"order": "raise", "error": described(error)})
        raise
    requests = [[type(request).__name__, asdict(request)] for request in decision.requests]
    ranks.broadcast({"order": "take", "plan": decision.plan.tensors(), "requests": requests})
    return decision


def _assist(ranks: Ranks, outputs: ModelOutputs | None) -> Decision:
    while True:
        order = ranks.broadcast()
        if order["order"] == "sweep":
            assert outputs is not None
            outputs.keep_features(order["features"])
            outputs.sweep(order["positions"], to_all=False)
        elif order["order"] == "raise":
            raise as_error(order["error"])
        else:
            requests = [_REQUESTS[kind](**options) for kind, options in order["requests"]]
            return Decision(Plan(**order["plan"]), requests)
