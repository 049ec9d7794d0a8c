"""A torch module as a function of flat parameter vectors, for one client or for many at once.

Everything federated is arithmetic on vectors: updates, distances, pulls towards an anchor. `Network` lets methods write
it so. It takes parameters of shape (clients, P), one row per client: what trains, and behind it the running statistics
of normalisation (`holdfast.federated.engine.row_layout`). A single row runs through the module as it is. Several rows
run in the fastest of three ways that gives the same results, which is found out by trying
(`holdfast.federated.engine.study`): their batches joined to one (`holdfast.federated.engine.stacked_layers`), by
`torch.func.vmap`, or one after another. Stacking pays for small models, where the cost is in the calls.

Training and evaluation are the module's own two modes. What it draws at random in training has names
(`holdfast.federated.engine.draws`), so it is the same in all three ways. Running statistics are sent and averaged like
everything else; gradients are zero there, nothing pulls at them, and a training pass moves them in place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointError

from holdfast.data.clients.clients import Task
from holdfast.errors import ConfigError, HoldfastError
from holdfast.federated.engine.criterion import PerExample, criterion_for
from holdfast.federated.engine.draws import Arrangement, Draws, NamedDraws, seeded
from holdfast.federated.engine.forks import run_apart
from holdfast.federated.engine.row_layout import STATISTICS, layout_of, tracking
from holdfast.federated.engine.stacked_layers import FastPooling, placed, stacked_weights, weight_places
from holdfast.federated.engine.study import Randomness, Way, look_at_randomness, study_ways
from holdfast.models.heads import logits_of

#: How strongly, and towards what, parameters are pulled: the gradient gets ``strength * (parameters - anchor)``.
ProximalTerm = tuple[float, Tensor]

#: The module's own two modes, and evaluation in which batches are normalised by themselves: a training pass that
#: drops nothing.
Mode = Literal["train", "eval", "normalise"]

#: What a model draws that draws in evaluation too, as with ``F.dropout(x)``, which is never off.
_EVALUATION = "evaluation"


@dataclass(frozen=True, eq=False)
class ClientBatch:
    """One mini-batch of each of several clients.

    Attributes:
        inputs: shape (clients, batch, ...).
        labels: shape (clients, batch), or (clients, batch, ...) where a target is several numbers.
        weights: shape (clients, batch); each row sums to one, padding has weight zero.
        clients: ids, int64 of shape (clients,).
        draws: how many batches each client had drawn before, int64 of shape (clients,).
        rows: which examples of the training data they are, int64 of shape (clients, batch).
        even: whether nothing is padded, so that weights need not be looked at.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor
    clients: Tensor
    draws: Tensor
    rows: Tensor
    even: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def one(self, place: int) -> ClientBatch:
        """The batch of the client at that place alone, without its padding."""
        row = slice(place, place + 1)
        real = self.labels.shape[1] if self.even else int((self.weights[place] > 0).sum())
        return ClientBatch(
            self.inputs[row, :real],
            self.labels[row, :real],
            self.weights[row, :real],
            self.clients[row],
            self.draws[row],
            self.rows[row, :real],
            even=True,
        )

    def repeat(self, times: int) -> ClientBatch:
        """The same batches `times` over, for several models per client: row ``i * clients + k`` is client k's."""
        parts = (self.inputs, self.labels, self.weights, self.clients, self.draws, self.rows)
        inputs, labels, weights, clients, draws, rows = (torch.cat([part] * times) for part in parts)
        return ClientBatch(inputs, labels, weights, clients, draws, rows, self.even)


class Network:
    """A model's outputs, losses and gradients by flat parameters.

    Args:
        model: any module; its own weights are the start, and are never changed. A module may have an attribute
            ``weight_penalty``: c adds ``c * ||W||^2`` over its matrices to the loss, as the linear SVM of Vehicle has.
        task: how outputs are scored.
        loss: of each example, in place of the task's, see `holdfast.federated.engine.criterion`.
        score: of each example, in place of the task's.
        target_dims: dimensions of one target: 0 for a label or a number.
        device: where rows and batches are.

    Attributes:
        initial: what trains, and the running statistics, as the model has them, shape (P,).
        layout: names, shapes and places of the numbers in a row.
        criterion: losses and scores.
        convolves: whether it is a network for images.

    Raises:
        ConfigError: if nothing in the module trains, it can't be copied, or has running statistics that weigh all
            batches alike.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task = "classes",
        *,
        loss: PerExample | None = None,
        score: PerExample | None = None,
        target_dims: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        self.task, self.target_dims = task, target_dims
        self.criterion = criterion_for(task, loss, score)
        # Two copies: one to hand out, kept on the host, and one whose parameters will point into rows of clients
        # (`_gradients_of_one`). What is frozen is the same in both.
        self._pristine = _copied(model).cpu()
        shared = {id(each): each for each in self._pristine.parameters() if not each.requires_grad}
        self._module = _moved(copy.deepcopy(self._pristine, shared), device).train()
        for module in self._module.modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag):
                module.sparse = False  # another form of the same gradient, which is no part of a row
        self.layout = layout_of(self._module)
        self._mode: Mode = "train"
        named = [(name, each) for name, each in self._module.named_parameters() if each.requires_grad]
        self._parameters = [parameter for _, parameter in named]
        self._places = weight_places(self._module, self._parameters)
        self._tracked = [norm for _, norm in tracking(self._module)]
        self._statistics = [(norm, name) for norm in self._tracked for name in STATISTICS]
        first = len(self._parameters)
        buffers = [(norm._buffers, name, first + place) for place, (norm, name) in enumerate(self._statistics)]
        self._all_places = [*self._places, *buffers]
        counters = [f"{name}.num_batches_tracked" for name, _ in tracking(self._module)]
        self._not_moved = {*self.layout.names, *counters}
        norms = [module for module in self._module.modules() if isinstance(module, _BatchNorm)]
        self._by_batch = any(norm.training for norm in norms)
        self._untracked = any(norm.running_mean is None for norm in norms)
        self._has_norms = bool(norms)
        self.convolves = any(parameter.ndim == 4 for parameter in self._module.parameters())
        values = [*self._parameters, *(getattr(norm, name) for norm, name in self._statistics)]
        self.initial = torch.cat([value.detach().flatten() for value in values]).clone()
        self._penalty = self._penalty_vector(float(getattr(model, "weight_penalty", 0.0)))
        # Found out by trying, at the first pass or before.
        self._channels_last: bool | None = None
        self._random: Randomness | None = None
        self._way: Way | None = None

    @property
    def size(self) -> int:
        """Numbers in a row, P: the parameters, then the running statistics."""
        return len(self.initial)

    @property
    def trainable(self) -> int:
        """How many of them are parameters."""
        return self.layout.trainable

    @property
    def slices(self) -> Mapping[str, slice]:
        """Where each parameter, and each running statistic, is in a row, by its name in the module."""
        return self.layout.slices

    @property
    def device(self) -> torch.device:
        """Where rows and batches are."""
        return self.initial.device

    @property
    def tracks_statistics(self) -> bool:
        """Whether there are running statistics."""
        return self.size > self.trainable

    @property
    def normalises_batches(self) -> bool:
        """Whether training passes have norms that look at the batch or move running statistics."""
        return self._by_batch or self.tracks_statistics

    @property
    def batch_dependent(self) -> bool:
        """Whether what an example gets in training depends on the others of its batch, or on how many there are."""
        by_outputs = self._random is not None and self._random.batch_dependent
        by_gradients = self._way is not None and self._way.padding_matters
        return self.normalises_batches or by_outputs or by_gradients

    @property
    def scores_depend_on_batch(self) -> bool:
        """Whether it does in evaluation too, for instance for want of running statistics."""
        return self._untracked or (self._random is not None and self._random.scores_depend_on_batch)

    @property
    def draws_by_name(self) -> bool:
        """Whether training draws numbers that have names."""
        return self._random is not None and self._random.named

    def study(self, inputs: Tensor) -> Way:
        """Find out how several clients can run at once; the answer is kept.

        Args:
            inputs: some examples, shape (n, ...); a handful is used.

        Raises:
            ConfigError: if the module can't be trained on them for one client, with what it raised as the cause.
        """
        if self._way is None:
            try:
                known = self._randomness(inputs)
                here = partial(study_ways, self, inputs, known)
                self._way = run_apart(here) if self.device.type == "cpu" else here()
            except HoldfastError:
                raise
            except Exception as error:  # whatever the user's code raises
                raise ConfigError(self._failure(inputs, error)) from error
        return self._way

    def _failure(self, inputs: Tensor, error: Exception) -> str:
        """What is said of a module that fails on its first examples."""
        lines = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        given = f"{str(inputs.dtype).removeprefix('torch.')} of shape {tuple(inputs.shape[1:])} each"
        plain = "turn checkpointing off" if isinstance(error, CheckpointError) else "make it run there in a plain loop"
        return f"the model {self.called} fails on training inputs, {given} ({said}); {plain}"

    # ---------------------------------------------------------------------------------------------- functions

    def outputs(
        self, parameters: Tensor, inputs: Tensor, draws: Draws | None = None, *, statistics: Tensor | None = None
    ) -> Tensor:
        """The model's outputs; as in evaluation, unless draws or statistics are given.

        Args:
            parameters: shape (clients, P).
            inputs: shape (clients, batch, ...).
            draws: names of what is drawn, in training.
            statistics: rows, shape (clients, P), whose running statistics move with this pass, in place; batches are
                normalised by their own mean and variance then, as in training.

        Returns:
            Shape (clients, batch, outputs).
        """
        mode: Mode = "train" if draws is not None else "eval" if statistics is None else "normalise"
        way = self._way_for(inputs) if len(parameters) > 1 else "rows"
        return self.run(way, mode, parameters, inputs, draws, statistics)

    def run(  # noqa: PLR0917
        self,
        way: str,
        mode: Mode,
        parameters: Tensor,
        inputs: Tensor,
        draws: Draws | None = None,
        statistics: Tensor | None = None,
    ) -> Tensor:
        """The same in a given way and mode."""
        draws = self._named(draws, inputs[0], len(parameters))
        if way == "joined":
            return self._call_joined(mode, self.layout.split_rows(parameters), inputs, draws)
        moving = self.layout.statistics(parameters.detach() if statistics is None else statistics)
        if way == "vmap":
            places = torch.arange(len(parameters), device=self.device)

            def call(row: Tensor, own: list[Tensor], examples: Tensor, place: Tensor) -> Tensor:
                with self._passing(mode, draws, examples, "vmap", place):
                    return self._call(row, own, examples)

            # The random functions of a model that runs so are answered by name, see `NamedDraws`; "same" lets them be
            # called with generators of our own.
            with _with_rules_for_vmap():
                outputs = vmap(call, randomness="same")(parameters, moving, inputs, places)
        else:
            rows = []
            for place, (row, examples) in enumerate(zip(parameters, inputs, strict=True)):
                with self._passing(mode, draws and draws.one(place), examples), self._pooling():
                    rows.append(self._call(row, [value[place] for value in moving], examples))
            outputs = rows[0][None] if len(rows) == 1 else torch.stack(rows)
        if statistics is not None and moving:
            torch.cat(moving, 1, out=statistics[:, self.trainable :])
        return outputs

    def trial(self, mode: Mode, examples: Tensor, draws: NamedDraws) -> Tensor:
        """Outputs of the initial model for one client's examples, while nothing is known of the module yet.

        Raises:
            ConfigError: if the pass changes weights.
        """
        self._switch(mode)
        # Slices, since torch lets nobody write into what `torch.split` gives. Running statistics may be written.
        row, moving = self.initial.clone(), self.initial.clone()
        parts = [
            (row if place < self.layout.parameters else moving)[where].view(shape)
            for place, (where, shape) in enumerate(zip(self.slices.values(), self.layout.shapes, strict=True))
        ]
        written = row._version
        with torch.no_grad(), LoneExample(), draws, placed(self._all_places, parts):
            outputs = logits_of(self._module(examples))
        if row._version != written:
            raise ConfigError(
                f"the model {self.called} writes into its own weights while it runs, as an embedding with max_norm "
                "does; use a parametrization (torch.nn.utils.parametrize) instead"
            )
        return outputs

    def buffers(self) -> dict[str, Tensor]:
        """The module's buffers by name, but for the running statistics."""
        return {name: value for name, value in self.module.named_buffers() if name not in self._not_moved}

    @property
    def module(self) -> nn.Module:
        """The module that runs; its parameters are those of whoever ran last."""
        return self._module

    @property
    def called(self) -> str:
        """How messages call the model."""
        return type(self._pristine).__name__

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Loss of each example, without the penalty: outputs (..., c) and labels (...) to (...)."""
        return self._by_example(self.criterion.losses, outputs, labels)

    def scores(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Score of each example, of the same shapes; bool where it says whether an example is told right."""
        return self._by_example(self.criterion.scores, outputs, labels)

    def correct(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Whether each example is told right, bool.

        Raises:
            ConfigError: if the task has no right and wrong.
        """
        if not self.criterion.is_accuracy:
            raise ConfigError(f"this needs classes, and clients are scored by {self.criterion.measure}")
        return self.scores(outputs, labels)

    def penalty(self, parameters: Tensor) -> Tensor:
        """The penalty on weights of each row, shape (rows,)."""
        if self._penalty is None:
            return torch.zeros(len(parameters), dtype=parameters.dtype, device=parameters.device)
        return (self._penalty * parameters.square()).sum(-1)

    def loss(self, parameters: Tensor, batch: ClientBatch, draws: Draws | None = None) -> Tensor:
        """Mean loss of each client on its batch, with the penalty, shape (clients,)."""
        losses = self.losses(self.outputs(parameters, batch.inputs, draws), batch.labels)
        return (losses * batch.weights).sum(-1) + self.penalty(parameters)

    def gradient(self, parameters: Tensor, batch: ClientBatch, draws: Draws | None = None) -> Tensor:
        """Gradient of each client's mean loss on its batch at its parameters, shape (clients, P).

        Without draws nothing is dropped. Running statistics in `parameters` move, in place; the gradient is zero there,
        and where a parameter is not used.
        """
        way = self._way_for(batch.inputs) if len(parameters) > 1 else "rows"
        if len(parameters) == 1:
            parts = [part.flatten() for part in self._gradients_of_one(parameters, batch, draws)]
            gradient = torch.cat([*parts, parts[0].new_zeros(self.size - self.trainable)])[None]
        elif way == "rows":
            return torch.cat([self.gradient(*one) for one in _each(parameters, batch, draws)])
        elif way == "joined":
            gradient = torch.cat(
                [part.reshape(len(part), -1) for part in self._gradients_joined(parameters, batch, draws)[1]], 1
            )
        else:
            # The pass moves running statistics in `parameters` in place, so the tape must hang on other memory.
            at = (parameters.clone() if self._statistics else parameters.detach()).requires_grad_()
            outputs = self.outputs(at, batch.inputs, draws, statistics=parameters)
            (gradient,) = torch.autograd.grad(self._sum_of_means(outputs, batch), at)
        if self._penalty is not None:
            gradient.addcmul_(self._penalty, parameters, value=2)
        return gradient

    def sgd_step(
        self,
        parameters: Tensor,
        batch: ClientBatch,
        rate: float,
        proximal: ProximalTerm | None,
        draws: Draws | None = None,
    ) -> None:
        """One SGD step of each client, in place: ``v <- v - rate (gradient + strength (v - anchor))``.

        Args:
            parameters: shape (clients, P); changed.
            batch: a mini-batch of each client.
            rate: the learning rate.
            proximal: strength and anchor, shape (P,) or (clients, P), where there is one.
            draws: names of what is drawn; nothing is dropped without.
        """
        way = self._way_for(batch.inputs) if len(parameters) > 1 else "one"
        if way == "rows":
            for place, (row, own, names) in enumerate(_each(parameters, batch, draws)):
                self.sgd_step(row, own, rate, _of_one(proximal, place), names)
        elif way == "vmap" or self._penalty is not None:
            gradient = self.gradient(parameters, batch, draws)
            parameters.sub_(self.with_proximal(gradient, parameters, proximal), alpha=rate)
        elif way == "joined":
            stacked, gradients = self._gradients_joined(parameters, batch, draws)
            anchors = [] if proximal is None else self.layout.split_rows(proximal[1].view(-1, self.size))
            _step_on_parts(tuple(stacked), gradients, rate, proximal, anchors)
        else:
            gradients = self._gradients_of_one(parameters, batch, draws)
            anchors = [] if proximal is None else self.layout.split(proximal[1].view(-1))
            _step_on_parts(tuple(self._parameters), gradients, rate, proximal, anchors)

    def with_proximal(self, gradient: Tensor, models: Tensor, proximal: ProximalTerm | None) -> Tensor:
        """``g + strength (v - anchor)``, for parameters only; `gradient` itself where there is none.

        At strength 0 the anchor is not looked at, so it may be infinite: 0 times infinity is no number.

        Args:
            gradient: of the loss, shape (clients, P); never changed.
            models: v, shape (clients, P).
            proximal: strength and anchor, shape (P,) or (clients, P).
        """
        if proximal is None or not proximal[0]:
            return gradient
        distance = models - proximal[1]
        distance[:, self.trainable :] = 0
        return torch.add(gradient, distance, alpha=proximal[0], out=distance)

    def repair_statistics(self, model: Tensor) -> None:
        """Lift running variances that an aggregate has left below zero to zero, in place, shape (P,)."""
        for part, (_, name) in zip(self.layout.split(model)[len(self._parameters) :], self._statistics, strict=True):
            if name == "running_var":
                part.clamp_(min=0)

    def load(self, parameters: Tensor) -> nn.Module:
        """A copy of the module as it was given, with these parameters, shape (P,), in evaluation mode."""
        model = copy.deepcopy(self._pristine)
        values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        with torch.no_grad():
            for name, part in zip(self.layout.names, self.layout.split(parameters), strict=True):
                values[name].copy_(part)
        return _moved(model, self.device).eval()

    # ---------------------------------------------------------------------------------------------- one pass

    @contextmanager
    def _passing(
        self,
        mode: Mode,
        draws: Draws | None,
        examples: Tensor,
        arrangement: Arrangement = "one",
        place: Tensor | None = None,
    ) -> Iterator[None]:
        """The circumstances of a pass: the module's mode, what is drawn, a batch of one example."""
        self._switch(mode)
        random = self._random
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
            random.put_back(self._module)

    def _switch(self, mode: Mode) -> None:
        """Put the module into a mode, by its own `train` and `eval`, unless it is in it."""
        if mode == self._mode:
            return
        self._module.train(mode == "train")
        if mode == "normalise":
            for norm in self._tracked:
                norm.train()
        self._mode = mode

    def _call(self, row: Tensor, statistics: list[Tensor], inputs: Tensor) -> Tensor:
        values = [*self.layout.split(row)[: len(self._parameters)], *statistics]
        with placed(self._all_places, values):
            return logits_of(self._module(inputs))

    def _gradients_of_one(self, parameters: Tensor, batch: ClientBatch, draws: Draws | None) -> tuple[Tensor, ...]:
        """Of each parameter, through the module itself, whose parameters point into the row."""
        self._point_at(parameters[0])
        examples, labels = batch.inputs[0], batch.labels[0]
        random = self._randomness(examples)
        mode: Mode = "normalise" if draws is None else "train"
        inputs = self._arranged(examples)
        if random.plain and not (self._has_norms and len(examples) == 1):
            self._switch(mode)
            outputs = self._module(inputs)
        else:
            with self._passing(mode, self._named(draws, examples), examples):
                outputs = self._module(inputs)
        outputs = logits_of(outputs)
        if batch.even and self.criterion.cross_entropy:
            loss = F.cross_entropy(outputs, labels)
        else:
            loss = self._sum_of_means(outputs[None], batch)
        return torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)

    def _point_at(self, row: Tensor) -> None:
        """Make the module's parameters and running statistics views of a row, shape (P,).

        So nothing is copied, and a later step on the row is seen by the module. They alias the row until the next call,
        which is why this module is never handed out, and keep its memory, so that the same address is the same row.
        """
        if row.data_ptr() == self._parameters[0].data_ptr():
            return
        parts = self.layout.split(row)
        for parameter, part in zip(self._parameters, parts, strict=False):
            parameter.data = part
        for (norm, name), part in zip(self._statistics, parts[len(self._parameters) :], strict=True):
            setattr(norm, name, part)

    def _gradients_joined(
        self, parameters: Tensor, batch: ClientBatch, draws: Draws | None
    ) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Views of the rows, (clients, *shape) for each parameter, and the gradients there."""
        parts = [part.requires_grad_() for part in self.layout.split_rows(parameters.detach())]
        mode: Mode = "normalise" if draws is None else "train"
        outputs = self._call_joined(mode, parts, batch.inputs, self._named(draws, batch.inputs[0], len(batch)))
        loss = self._sum_of_means(outputs, batch)
        return parts, torch.autograd.grad(loss, parts, allow_unused=True, materialize_grads=True)

    def _call_joined(self, mode: Mode, parts: Sequence[Tensor], inputs: Tensor, draws: Draws | None) -> Tensor:
        # Clients' batches become one batch, client after client; weights know how many rows are whose.
        together = inputs.flatten(0, 1)
        with self._passing(mode, draws, together, "joined"), stacked_weights(self._places, parts), self._pooling():
            outputs = logits_of(self._module(together))
        return outputs.view(*inputs.shape[:2], *outputs.shape[1:])

    def _arranged(self, images: Tensor) -> Tensor:
        """Images with their channels innermost, which convolutions like, unless the model insists on its own order."""
        if self._channels_last is None:
            self._channels_last = self.convolves and images.ndim == 4 and self._takes_channels_last(images[:2])
        return images.contiguous(memory_format=torch.channels_last) if self._channels_last else images

    @torch.no_grad()
    def _takes_channels_last(self, images: Tensor) -> bool:
        if self.batch_dependent:
            return False
        try:
            with self._passing("eval", self._named(None, images), images):
                arranged = logits_of(self._module(images.contiguous(memory_format=torch.channels_last)))
                usual = logits_of(self._module(images))
        except RuntimeError:  # of a view of a tensor that is not contiguous
            return False
        return torch.allclose(arranged, usual, rtol=1e-3, atol=1e-4)

    def _way_for(self, inputs: Tensor) -> str:
        """How several clients run, whose inputs are of shape (clients, batch, ...)."""
        way = self._way or self.study(inputs.flatten(0, 1))
        return way.name

    def _randomness(self, inputs: Tensor) -> Randomness:
        if self._random is None:
            self._random = look_at_randomness(self, inputs)
        return self._random

    def _named(self, draws: Draws | None, examples: Tensor, clients: int = 1) -> Draws | None:
        """Names for what is drawn: as given, or always the same where a module draws in evaluation."""
        if draws is not None or not self._randomness(examples).in_evaluation:
            return draws
        return Draws(0, _EVALUATION, (0,) * clients, (0,) * clients)

    # ---------------------------------------------------------------------------------------------- losses

    def _sum_of_means(self, outputs: Tensor, batch: ClientBatch) -> Tensor:
        """The clients' mean losses, added up; clients don't share parameters, so each gets its own gradient."""
        if batch.even and self.criterion.cross_entropy:
            # Every client has as many examples, so the sum of means is a multiple of the mean of all: one fused kernel.
            return len(batch) * F.cross_entropy(outputs.flatten(0, 1), batch.labels.flatten())
        return (self.losses(outputs, batch.labels) * batch.weights).sum()

    def _by_example(self, function: PerExample, outputs: Tensor, labels: Tensor) -> Tensor:
        leading = labels.ndim - self.target_dims
        flat = function(outputs.flatten(0, leading - 1), labels.flatten(0, leading - 1))
        return flat.view(labels.shape[:leading])

    def _pooling(self) -> ExitStack | FastPooling:
        return FastPooling() if self.convolves else ExitStack()

    def _penalty_vector(self, strength: float) -> Tensor | None:
        if strength == 0:
            return None
        parts = [
            torch.full((size,), strength * (len(shape) > 1), dtype=self.initial.dtype, device=self.device)
            for size, shape in zip(self.layout.sizes, self.layout.shapes, strict=True)
        ]
        return torch.cat(parts)


@torch.no_grad()
def _step_on_parts(
    parts: tuple[Tensor, ...],
    gradients: tuple[Tensor, ...],
    rate: float,
    proximal: ProximalTerm | None,
    anchors: Sequence[Tensor],
) -> None:
    """A step on views of rows, parameter by parameter: flattening the gradient first would cost a quarter."""
    # These private functions of torch are what its own optimizers call with ``foreach=True``; they are one kernel for
    # all parameters, where a loop over a small model would spend its time in calls.
    if proximal is not None:
        # Not in place: where a model adds two parameters up, both have the same gradient in the same memory.
        distances = torch._foreach_sub(parts, tuple(anchors[: len(parts)]))
        gradients = tuple(torch._foreach_add(gradients, distances, alpha=proximal[0]))
    torch._foreach_sub_(parts, gradients, alpha=rate)


class LoneExample(TorchFunctionMode):
    """While active, a batch of one value per channel is normalised by running statistics, which stay as they are.

    Its own variance is zero, and torch refuses it in training. Without running statistics the normalised value is zero.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Batch normalisation here, everything else as it is."""
        if func is F.batch_norm:
            return _normalise_one(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _normalise_one(  # noqa: PLR0917 - torch's arguments
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    lone = input.numel() == input.shape[1]
    if lone and running_mean is None:
        shape = (-1, *(1 for _ in input.shape[2:]))
        normalised = input * 0 if weight is None else input * 0 * weight.view(shape)
        return normalised if bias is None else normalised + bias.view(shape)
    return F.batch_norm(input, running_mean, running_var, weight, bias, training and not lone, momentum, eps)


@contextmanager
def _with_rules_for_vmap() -> Iterator[None]:
    """Keep torch from kernels of attention that vmap would run client after client."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def _each(
    parameters: Tensor, batch: ClientBatch, draws: Draws | None
) -> Iterator[tuple[Tensor, ClientBatch, Draws | None]]:
    """Row after row, each with its batch and its draws."""
    for place in range(len(parameters)):
        yield parameters[place : place + 1], batch.one(place), None if draws is None else draws.one(place)


def _of_one(proximal: ProximalTerm | None, place: int) -> ProximalTerm | None:
    if proximal is None or proximal[1].ndim == 1:
        return proximal
    return proximal[0], proximal[1][place]


def _moved(model: nn.Module, device: str | torch.device) -> nn.Module:
    """The model on a device, with weights that were tied still tied: on some devices torch makes new ones of them."""
    places = [(owner._parameters, name) for owner in model.modules() for name in owner._parameters]
    before = [own[name] for own, name in places]
    try:
        model.to(device)
    except (RuntimeError, AssertionError, ImportError) as error:  # no such device, or a build of torch without it
        reason = str(error).splitlines()[0]
        raise ConfigError(f"the device {device!r} can't be used here ({reason}); use another") from error
    moved: dict[int, nn.Parameter | None] = {}
    for (own, name), was in zip(places, before, strict=True):
        own[name] = moved.setdefault(id(was), own[name])
    return model


def _copied(model: nn.Module) -> nn.Module:
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ConfigError(
            f"the model {type(model).__name__} is compiled by TorchScript, which keeps its weights to itself; give the "
            "Python module that it was made of"
        )
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"the model {type(model).__name__} can't be copied ({error}); a client needs a copy of its own"
        ) from error
