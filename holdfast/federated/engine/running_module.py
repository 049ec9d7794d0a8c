"""The module that runs, whose weights are put in its places: a client's row, or the stacked rows of many.

It is a copy that is never handed out. A pass has circumstances: the module's mode, what is drawn by name, a batch of a
single example, buffers that are set back afterwards. All of them are here, so that `Network` can write what is computed
and this module how torch is made to do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.errors import ConfigError
from holdfast.federated.engine.draws import Arrangement, Draws, NamedDraws, seeded
from holdfast.federated.engine.lone_example import LoneExample
from holdfast.federated.engine.row_layout import STATISTICS, layout_of, tracking
from holdfast.federated.engine.stacked_layers import FastPooling, placed, stacked_weights, weight_places
from holdfast.federated.engine.study import Randomness
from holdfast.models.heads import logits_of

#: The module's own two modes, and evaluation in which batches are normalised by themselves: a training pass that
#: drops nothing.
Mode = Literal["train", "eval", "normalise"]

#: What a model draws that draws in evaluation too, as with ``F.dropout(x)``, which is never off.
_EVALUATION = "evaluation"


class RunningModule:
    """A module run with weights from outside.

    Args:
        module: in training mode; it is changed.

    Attributes:
        module: its parameters are those of whoever ran last.
        layout: names, shapes and places of the numbers in a row.
        parameters: what trains.
        statistics: norms and the names of their running statistics, in the order of a row.
        randomness: what else a pass depends on, once that was looked at.
        by_batch: whether a training pass has norms that look at the batch.
        untracked: whether norms have no running statistics, so that evaluation looks at the batch too.
        convolves: whether it is a network for images.
    """

    def __init__(self, module: nn.Module) -> None:
        for each in module.modules():
            if isinstance(each, nn.Embedding | nn.EmbeddingBag):
                each.sparse = False  # another form of the same gradient, which is no part of a row
        self.module = module
        self.layout = layout_of(module)
        self.parameters = [each for each in module.parameters() if each.requires_grad]
        self.randomness: Randomness | None = None
        self._mode: Mode = "train"
        self._places = weight_places(module, self.parameters)
        named = tracking(module)
        self._tracked = [norm for _, norm in named]
        self.statistics = [(norm, name) for norm in self._tracked for name in STATISTICS]
        first = len(self.parameters)
        buffers = [(norm._buffers, name, first + place) for place, (norm, name) in enumerate(self.statistics)]
        self._all_places = [*self._places, *buffers]
        self._not_moved = {*self.layout.names, *(f"{name}.num_batches_tracked" for name, _ in named)}
        norms = [each for each in module.modules() if isinstance(each, _BatchNorm)]
        self._has_norms = bool(norms)
        self.by_batch = any(norm.training for norm in norms)
        self.untracked = any(norm.running_mean is None for norm in norms)
        self.convolves = any(parameter.ndim == 4 for parameter in module.parameters())

    def row(self) -> Tensor:
        """What trains and the running statistics, as the module has them, shape (P,)."""
        values = [*self.parameters, *(getattr(norm, name) for norm, name in self.statistics)]
        return torch.cat([value.detach().flatten() for value in values]).clone()

    def buffers(self) -> dict[str, Tensor]:
        """The module's buffers by name, but for the running statistics."""
        return {name: value for name, value in self.module.named_buffers() if name not in self._not_moved}

    # ---------------------------------------------------------------------------------------------- passes

    def of_row(self, row: Tensor, statistics: Sequence[Tensor], inputs: Tensor) -> Tensor:
        """Outputs with the parameters of a row, shape (P,), and running statistics apart from it."""
        values = [*self.layout.split(row)[: len(self.parameters)], *statistics]
        with placed(self._all_places, values):
            return logits_of(self.module(inputs))

    def of_views(self, mode: Mode, row: Tensor, inputs: Tensor, draws: Draws | None) -> Tensor:
        """Outputs with parameters that are views of a row, shape (P,), so that gradients are taken at `parameters`."""
        self._point_at(row)
        plain = self.randomness is not None and self.randomness.plain
        if plain and not (self._has_norms and len(inputs) == 1):
            self._switch(mode)
            return logits_of(self.module(inputs))
        with self.passing(mode, self.named(draws), inputs):
            return logits_of(self.module(inputs))

    def joined(self, mode: Mode, parts: Sequence[Tensor], inputs: Tensor, draws: Draws | None) -> Tensor:
        """Outputs of many clients at once, by stacked weights, (clients, *shape) for each parameter."""
        # Clients' batches become one batch, client after client; weights know how many rows are whose.
        together = inputs.flatten(0, 1)
        with self.passing(mode, draws, together, "joined"), stacked_weights(self._places, parts), self.pooling():
            outputs = logits_of(self.module(together))
        return outputs.view(*inputs.shape[:2], *outputs.shape[1:])

    def trial(self, mode: Mode, initial: Tensor, examples: Tensor, draws: NamedDraws) -> Tensor:
        """Outputs of the initial model for one client's examples, while nothing is known of the module yet.

        Raises:
            ConfigError: if the pass changes weights.
        """
        self._switch(mode)
        # Slices, since torch lets nobody write into what `torch.split` gives. Running statistics may be written.
        row, moving = initial.clone(), initial.clone()
        parts = [
            (row if place < self.layout.parameters else moving)[where].view(shape)
            for place, (where, shape) in enumerate(zip(self.layout.slices.values(), self.layout.shapes, strict=True))
        ]
        written = row._version
        with torch.no_grad(), LoneExample(), draws, placed(self._all_places, parts):
            outputs = logits_of(self.module(examples))
        if row._version != written:
            raise ConfigError(
                f"the model {type(self.module).__name__} writes into its own weights while it runs, as an embedding "
                "with max_norm does; use a parametrization (torch.nn.utils.parametrize) instead"
            )
        return outputs

    # ---------------------------------------------------------------------------------------------- circumstances

    @contextmanager
    def passing(
        self,
        mode: Mode,
        draws: Draws | None,
        examples: Tensor,
        arrangement: Arrangement = "one",
        place: Tensor | None = None,
    ) -> Iterator[None]:
        """The circumstances of a pass: the module's mode, what is drawn, a batch of one example."""
        self._switch(mode)
        random = self.randomness
        with ExitStack() as stack:
            if draws is not None and random is not None:
                if random.named:
                    stack.enter_context(NamedDraws(draws, arrangement, place))
                if random.unnamed and arrangement == "one":
                    stack.enter_context(seeded(draws))
            if self._has_norms and len(examples) == 1:
                stack.enter_context(LoneExample())
            yield
        if random is not None:
            random.put_back(self.module)

    def named(self, draws: Draws | None, clients: int = 1) -> Draws | None:
        """Names for what is drawn: as given, or always the same where the module draws in evaluation."""
        if draws is not None or self.randomness is None or not self.randomness.in_evaluation:
            return draws
        return Draws(0, _EVALUATION, (0,) * clients, (0,) * clients)

    def pooling(self) -> ExitStack | FastPooling:
        """Faster pooling, around a pass over images."""
        return FastPooling() if self.convolves else ExitStack()

    def _switch(self, mode: Mode) -> None:
        """Put the module into a mode, by its own `train` and `eval`, unless it is in it."""
        if mode == self._mode:
            return
        self.module.train(mode == "train")
        if mode == "normalise":
            for norm in self._tracked:
                norm.train()
        self._mode = mode

    def _point_at(self, row: Tensor) -> None:
        """Make the module's parameters and running statistics views of a row, shape (P,).

        So nothing is copied, and a later step on the row is seen by the module. They alias the row until the next call,
        which is why this module is never handed out, and keep its memory, so that the same address is the same row.
        """
        if row.data_ptr() == self.parameters[0].data_ptr():
            return
        parts = self.layout.split(row)
        for parameter, part in zip(self.parameters, parts, strict=False):
            parameter.data = part
        for (norm, name), part in zip(self.statistics, parts[len(self.parameters) :], strict=True):
            setattr(norm, name, part)
