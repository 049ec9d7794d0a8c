"""An objective turns a forward pass into a loss; regularisers add to it.

One `Forward` is shared by all terms of an objective, so a model is run once per batch however many terms there are:
``CrossEntropy() + Proximal(...)``. Objectives that learn something on the way (the group weights of GroupDRO) keep it
in their state, which goes into the checkpoint.

On several processes each runs the model on its share of the batch, and what it gives is gathered: `logits`, `features`,
`losses` and `batch` are those of the whole batch, in every process alike. So a loss over groups, ranks or pairs of
examples needs no second version, and gradients come out right once they are averaged over the processes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.data.inputs import InputBatch
from holdfast.models.heads import features_and_logits
from holdfast.training.accumulation import part_sizes, recomputed, split_inputs
from holdfast.training.batches import Batch, SharedBatch
from holdfast.training.clock import Clock
from holdfast.training.model_outputs import call
from holdfast.training.precision import Precision, autocast
from holdfast.training.ranks import ALONE, Ranks

#: Makes an optimizer for a model.
NewOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


class Forward:
    """One pass of the model over a batch, run when first looked at.

    Args:
        model: the model, in the mode in which it trains.
        batch: the mini-batch.
        head: name of the head where it can't be found.
        weighted: whether the batch's weights can be other than one; saying no lets losses skip the multiplication.
        clock: where training stands, for terms that grow with time.
        precision: what the model computes in; logits and features are float32 at least.
        part_size: how many examples the model is run on at a time, where memory allows no more. The batch is run part
            by part, and each part once more when gradients are taken, so that only one part's activations are held.
        step_size: examples of the whole optimizer step, where the batch is a part of it.
        ranks: the processes that take the step together, where the batch is a part of this one's share.

    Attributes:
        batch: the whole mini-batch, over all processes; the inputs in it are this process's.
        local: what this process runs the model on; the same where it has no company.
        ranks: the processes that take the step together.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        head: str | None = None,
        *,
        weighted: bool = True,
        clock: Clock | None = None,
        precision: Precision = "fp32",
        part_size: int | None = None,
        step_size: int | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.model = model
        self.local = batch
        self.batch, self.ranks = (batch.whole, batch.share.ranks) if isinstance(batch, SharedBatch) else (batch, ranks)
        self.clock = clock or Clock()
        self.weighted = weighted
        self._step_size = step_size
        self._head = head
        self._precision = precision
        self._part_size = part_size

    @property
    def step_size(self) -> int:
        """Examples of the whole optimizer step."""
        return self._step_size or len(self.batch.labels)

    @cached_property
    def logits(self) -> Tensor:
        """Outputs before the softmax, shape (b, classes)."""
        if "features" in self.__dict__:
            return self._both[1]
        if self._part_size is None and self._precision == "fp32":  # the usual case, at every step
            return self.gather(call(self.model, self.local.inputs))
        (logits,) = self._in_parts(lambda inputs: (call(self.model, inputs),))
        return self.gather(logits)

    @cached_property
    def features(self) -> Tensor:
        """Inputs of the head, shape (b, features); look at these before `logits` to pay for one pass only."""
        return self._both[0]

    @cached_property
    def _both(self) -> tuple[Tensor, Tensor]:
        features, logits = self._in_parts(lambda inputs: features_and_logits(self.model, inputs, head=self._head))
        return self.gather(features), self.gather(logits)

    def _in_parts(self, outputs: Callable[[InputBatch], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        (inputs, labels, *_), size = self.local, self._part_size

        def cast(part: InputBatch) -> tuple[Tensor, ...]:
            with autocast(self._precision, labels.device):
                return outputs(part)

        if size is None or len(labels) <= size + 1:
            return outputs(inputs) if self._precision == "fp32" else cast(inputs)
        return recomputed(self.model, cast, split_inputs(inputs, part_sizes(len(labels), size)))

    @property
    def counted(self) -> int:
        """How many of the examples of `local`, from the first on, are this process's own; others fill it up."""
        return self.local.share.counted if isinstance(self.local, SharedBatch) else len(self.local.labels)

    def outputs_of(self, network: nn.Module) -> Tensor:
        """Logits of a second network for the whole batch, shape (b, classes)."""
        return self.gather(call(network, self.local.inputs))

    def gather(self, values: Tensor) -> Tensor:
        """Rows for the whole batch out of a row for each example of `local`, with gradients."""
        return self.local.share.gather(values) if isinstance(self.local, SharedBatch) else values

    @cached_property
    def losses(self) -> Tensor:
        """Cross-entropy of each example, shape (b,)."""
        return F.cross_entropy(self.logits, self.batch.labels, reduction="none")


class Objective:
    """A scalar loss of a forward pass. Derive, write `__call__`; keep what is learned on the way in the state.

    Attributes:
        is_mean: whether the loss of a batch is the mean over its examples of something that depends on each alone, so
            that gradients of parts of it add up; others see a whole batch, also where it is run part by part.
    """

    is_mean: ClassVar[bool] = False

    def __call__(self, forward: Forward) -> Tensor:
        """The loss of a batch, a scalar that can be differentiated."""
        raise NotImplementedError

    def prepare(
        self, examples: Examples, model: nn.Module | None = None, new_optimizer: NewOptimizer | None = None
    ) -> None:
        """Look at what training starts with; called at the start of the stage that the objective is used in.

        Args:
            examples: the training set, with the groups that were inferred, where a policy did.
            model: the model, with the weights that training starts from.
            new_optimizer: makes an optimizer like the run's, for objectives that train a second model.
        """

    def state_dict(self) -> dict[str, Any]:
        """What must be remembered, for checkpoints."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""

    def __add__(self, other: Objective) -> Total:
        """Both terms added up."""
        return Total(*_terms(self), *_terms(other))


class CrossEntropy(Objective):
    """Mean of the weighted cross-entropy; weights have mean one, so the learning rate keeps its meaning."""

    is_mean: ClassVar[bool] = True

    def __call__(self, forward: Forward) -> Tensor:
        """mean(weight x loss) over the batch."""
        if not forward.weighted:
            return F.cross_entropy(forward.logits, forward.batch.labels)
        return (forward.batch.weights * forward.losses).mean()


class Total(Objective):
    """The sum of several terms.

    Args:
        terms: what is added up.
    """

    def __init__(self, *terms: Objective) -> None:
        self.terms = terms

    def __call__(self, forward: Forward) -> Tensor:
        """The sum of the terms on one shared forward pass."""
        total = self.terms[0](forward)
        for term in self.terms[1:]:
            total = total + term(forward)
        return total

    def prepare(
        self, examples: Examples, model: nn.Module | None = None, new_optimizer: NewOptimizer | None = None
    ) -> None:
        """Let every term look."""
        for term in self.terms:
            term.prepare(examples, model, new_optimizer)

    def state_dict(self) -> dict[str, Any]:
        """The terms' states by their place."""
        return {str(place): term.state_dict() for place, term in enumerate(self.terms)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the terms' states."""
        for place, term in enumerate(self.terms):
            term.load_state_dict(state[str(place)])


def _terms(objective: Objective) -> tuple[Objective, ...]:
    return objective.terms if isinstance(objective, Total) else (objective,)
