"""Somebody's module and loss as a function of one row of numbers: what the simulator's methods ask of a network.

`holdfast.federated.engine.network.Network` runs many clients at once, and wants inputs as tensors, parameters of one
kind, a criterion by example. In somebody's own project none of that can be asked for: batches are whatever their loader
gives, and the loss is a function of the module and a batch. One client at a time, that is all that is needed.

A row is what trains, in float32 or wider, and behind it running statistics. Frozen parameters are the server's; other
buffers (counters, spectral norms) stay with the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _NormBase

from holdfast.errors import ConfigError
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.draws import Draws
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.row_layout import STATISTICS, RowLayout
from holdfast.models.heads import logits_of

#: Of a module on a batch, a scalar tensor: what the user's own training minimises.
Loss = Callable[[nn.Module, Any], Tensor]


@dataclass(frozen=True, eq=False)
class LoneBatch(ClientBatch):
    """A mini-batch of one client, as its owner's loader gave it.

    Attributes:
        own: the batch; `inputs` and `labels` are its tensors where it is a pair, and empty otherwise.
    """

    own: Any = None

    @classmethod
    def of(cls, own: Any, drawn: int, client: Tensor) -> LoneBatch:
        """The client's batch number `drawn`, from 0."""
        pair = isinstance(own, (tuple, list)) and len(own) == 2 and all(isinstance(part, Tensor) for part in own)
        inputs, labels = (part[None] for part in own) if pair else (torch.empty(1, 0), torch.empty(1, 0))
        examples = max(labels.shape[1], 1)
        weights = torch.full((1, examples), 1 / examples)
        rows = torch.arange(examples)[None]
        return cls(inputs, labels, weights, client, torch.tensor([drawn]), rows, even=True, own=own)

    @property
    def is_pair(self) -> bool:
        """Whether inputs are at hand, apart from the loss."""
        return self.inputs.numel() > 0


class LoneNetwork(Network):
    """One client's module by rows of shape (1, P).

    Args:
        module: with the weights that were received; it is the network's from now on.
        loss: of the module on a batch.

    Raises:
        ConfigError: if nothing in it trains.
    """

    def __init__(self, module: nn.Module, loss: Loss) -> None:  # the base class would ask for more
        self._own_module, self._loss = module.train(), loss
        self.task, self._penalty = "classes", None
        trained = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
        if not trained:
            raise ConfigError(f"the model {type(module).__name__} has no parameters that train; unfreeze some")
        norms = [(name, each) for name, each in module.named_modules() if _tracks(each)]
        statistics = [
            (f"{name}.{kind}".lstrip("."), getattr(norm, kind)) for name, norm in norms for kind in STATISTICS
        ]
        values = [*trained, *statistics]
        self._trained, self._values = [each for _, each in trained], [each for _, each in values]
        self.layout = RowLayout(
            tuple(name for name, _ in values), tuple(each.shape for _, each in values), parameters=len(trained)
        )
        kinds = [each.dtype for each in self._values]
        self.dtype = reduce(torch.promote_types, kinds, torch.float32)
        self.initial = self.row()

    @property
    def module(self) -> nn.Module:
        """The module, with the numbers of the row that ran last."""
        return self._own_module

    @property
    def batch_dependent(self) -> bool:
        """Nobody else is in its batches."""
        return False

    @property
    def scores_depend_on_batch(self) -> bool:
        """Nor in what it is scored on."""
        return False

    def row(self) -> Tensor:
        """The module's numbers now, shape (P,)."""
        return torch.cat([each.detach().flatten().to("cpu", self.dtype) for each in self._values])

    def rest(self) -> dict[str, Tensor]:
        """Buffers that are in no row, such as counters of batches."""
        return {name: each.clone() for name, each in self.module.named_buffers() if name not in self.layout.slices}

    @torch.no_grad()
    def put(self, row: Tensor) -> nn.Module:
        """The module with a row's numbers, shape (P,)."""
        for value, part in zip(self._values, self.layout.split(row), strict=True):
            value.copy_(part)
        return self.module

    @torch.no_grad()
    def put_rest(self, rest: Mapping[str, Tensor]) -> None:
        """Give the module back what `rest` gave."""
        for name, value in rest.items():
            self.module.get_buffer(name).copy_(value)

    def state_dict(self, row: Tensor) -> dict[str, Tensor]:
        """A row, and what is in none, under the module's own names and in its own dtypes."""
        return {name: value.detach().cpu().clone() for name, value in self.put(row).state_dict().items()}

    # ---------------------------------------------------------------------------------------------- functions

    def gradient(self, parameters: Tensor, batch: ClientBatch, draws: Draws | None = None) -> Tensor:
        """Gradient of the loss on the batch, shape (1, P); running statistics in `parameters` move, in place."""
        module = self.put(parameters[0]).train()
        with torch.enable_grad():
            loss = self._loss(module, _own(batch))
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise ConfigError(f"the loss is {_kind(loss)}; return the mean over the batch, one number")
        gradients = torch.autograd.grad(loss, self._trained, allow_unused=True, materialize_grads=True)
        row = torch.zeros(1, self.size, dtype=self.dtype)
        parts = self.layout.split(row[0])
        for part, gradient in zip(parts, gradients, strict=False):
            part.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        for value, part in list(zip(self._values, self.layout.split(parameters[0]), strict=True))[len(gradients) :]:
            part.copy_(value)
        return row

    @torch.no_grad()
    def mean_loss(self, parameters: Tensor, batch: LoneBatch) -> float:
        """The loss in evaluation, of a row of shape (P,)."""
        module = self.put(parameters).eval()
        return float(self._loss(module, batch.own))

    def outputs(
        self, parameters: Tensor, inputs: Tensor, draws: Draws | None = None, *, statistics: Tensor | None = None
    ) -> Tensor:
        """Outputs as in evaluation, shape (1, batch, outputs), differentiable with respect to the row.

        Raises:
            ConfigError: if the owner's batches don't say which part of them is the input.
        """
        if not inputs.numel():
            raise ConfigError(
                "this method compares predictions, and the mini-batches don't say what the model's input is; let "
                "`batches` give pairs of tensors (inputs, labels)"
            )
        values = {
            name: (part if value.requires_grad else part.detach()).to(value)
            for name, part, value in zip(self.layout.names, self.layout.split(parameters[0]), self._values, strict=True)
        }
        return logits_of(functional_call(self.module.eval(), values, (inputs[0],)))[None]


def examples_in(batch: Any) -> int:
    """How many examples somebody's batch has: the length of the first tensor in it, 1 where there is none."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 1
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next((examples_in(part) for part in batch if isinstance(part, (Tensor, Mapping, list, tuple))), 1)
    return 1


def _own(batch: ClientBatch) -> Any:
    return batch.own if isinstance(batch, LoneBatch) else (batch.inputs[0], batch.labels[0])


def _tracks(module: nn.Module) -> bool:
    return isinstance(module, _NormBase) and module.training and module.running_mean is not None


def _kind(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
