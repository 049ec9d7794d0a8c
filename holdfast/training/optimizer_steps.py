"""An optimizer step of `fit`: forward, backward and update, in the precision and the parts that were asked for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.models.compiled import uncompiled
from holdfast.training.accumulation import part_sizes
from holdfast.training.batches import Batch, SharedBatch, split_batch
from holdfast.training.clock import Clock
from holdfast.training.interruption import interruptions
from holdfast.training.model_outputs import device_of
from holdfast.training.objective import Forward, Objective
from holdfast.training.precision import new_scaler
from holdfast.training.ranks import ALONE, Ranks
from holdfast.training.settings import Training


class OptimizerSteps:
    """Takes the steps of one training.

    Args:
        model: what is trained, in place.
        optimizer: over its parameters.
        settings: precision, accumulation, compilation, and the largest norm of a gradient.
        head: name of the model's head where it can't be found.
        ranks: the processes that take each step together.

    Attributes:
        stop: whether a signal asked one of the processes to end, as known after the last step.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: Training,
        head: str | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.stop = False
        self._ranks = ranks
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._model = model
        self._optimizer = optimizer
        self._precision = settings.precision
        self._clip_norm = settings.clip_norm
        self._head = head
        self._part_size = -(-settings.batch_size // ranks.count) if settings.accumulate > 1 else None
        self._compiled = settings.compile
        self._runs: Any = torch.compile(model) if settings.compile else model
        self._scaler = new_scaler(settings.precision, device_of(model))

    def take(self, objective: Objective, batch: Batch, *, weighted: bool, clock: Clock) -> Tensor:
        """One step on a mini-batch; gives its loss."""
        in_parts = _in_parts(objective, batch, self._part_size)
        gradients = self._gradients_of_parts if in_parts else self._gradients
        try:
            loss = gradients(objective, batch, weighted=weighted, clock=clock)
        except Exception as error:
            if self._compiled and _is_of_the_compiler(error):
                reason = " ".join(str(error).split())[:300]
                raise ConfigError(
                    f"the model can't be compiled here ({type(error).__name__}: {reason}); leave --compile out, or "
                    "mend what torch.compile needs: a C++ compiler, and a forward pass that it can trace"
                ) from error
            raise
        self.stop = self._ranks.average_gradients(self._trained, interruptions.requested() is not None)
        if in_parts:
            loss = self._ranks.mean(loss)
        if self._scaler is None:
            self._clip()
            self._optimizer.step()
            return loss
        if self._clip_norm is not None:
            self._scaler.unscale_(self._optimizer)
            self._clip()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The scale of gradients, where there is one."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)

    def _gradients(self, objective: Objective, batch: Batch, *, weighted: bool, clock: Clock) -> Tensor:
        # Where a part is run a second time, buffers are others: not what a compiled graph knows.
        model = self._runs if self._part_size is None else uncompiled(self._model)
        forward = Forward(
            model,
            batch,
            self._head,
            weighted=weighted,
            clock=clock,
            precision=self._precision,
            part_size=self._part_size,
        )
        loss = objective(forward)
        self._optimizer.zero_grad(set_to_none=True)
        self._backward(loss)
        return loss

    def _gradients_of_parts(self, objective: Objective, batch: Batch, *, weighted: bool, clock: Clock) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        whole, losses, shared = len(batch.labels), list[Tensor](), isinstance(batch, SharedBatch)
        for part in split_batch(batch, part_sizes(whole, self._part_size or whole)):
            forward = Forward(
                self._runs,
                part,
                self._head,
                weighted=weighted or shared,
                clock=clock,
                precision=self._precision,
                step_size=len(batch.whole.labels) if isinstance(batch, SharedBatch) else whole,
                ranks=self._ranks,
            )
            losses.append(objective(forward) * (len(part.labels) / whole))
            self._backward(losses[-1])
        return torch.stack([loss.detach() for loss in losses]).sum()

    def _backward(self, loss: Tensor) -> None:
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]

    def _clip(self) -> None:
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_norm)


def _in_parts(objective: Objective, batch: Batch, part_size: int | None) -> bool:
    """Whether gradients of parts, of the processes' shares too, add up to those of the mini-batch.

    Then processes need not hear of each other's outputs: they meet once per step, for the gradients, not twice.
    """
    return objective.is_mean and (part_size is not None or isinstance(batch, SharedBatch))


def _is_of_the_compiler(error: Exception) -> bool:
    """Whether torch's compiler raised it; its kinds are private to torch, so they are told by where they live."""
    return any(kind.__module__.startswith(("torch._dynamo", "torch._inductor")) for kind in type(error).__mro__)
