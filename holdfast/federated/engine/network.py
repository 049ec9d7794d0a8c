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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointError

from holdfast.data.clients.clients import Task
from holdfast.errors import ConfigError, HoldfastError
from holdfast.federated.engine.batch_losses import BatchLosses, penalty_vector
from holdfast.federated.engine.client_batch import ClientBatch, one_by_one
from holdfast.federated.engine.criterion import PerExample, criterion_for
from holdfast.federated.engine.draws import Draws, NamedDraws
from holdfast.federated.engine.forks import run_apart
from holdfast.federated.engine.module_copies import copy_of, moved_to
from holdfast.federated.engine.proximal import ProximalTerm, add_proximal, proximal_of_one, step_on_parts
from holdfast.federated.engine.running_module import Mode, RunningModule
from holdfast.federated.engine.study import Randomness, Way, look_at_randomness, study_ways
from holdfast.models.heads import logits_of

__all__ = ["ClientBatch", "Network", "ProximalTerm"]


class Network(BatchLosses):
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
        super().__init__(criterion_for(task, loss, score), target_dims)
        self.task = task
        # Two copies: one to hand out, kept on the host, and one whose parameters will point into rows of clients. What
        # is frozen is the same in both.
        self._pristine = copy_of(model).cpu()
        shared = {id(each): each for each in self._pristine.parameters() if not each.requires_grad}
        self._running = RunningModule(moved_to(copy.deepcopy(self._pristine, shared), device).train())
        self.layout = self._running.layout
        self.convolves = self._running.convolves
        self.initial = self._running.row()
        self._penalty = penalty_vector(float(getattr(model, "weight_penalty", 0.0)), self.layout, self.initial)
        # Found out by trying, at the first pass or before.
        self._channels_last: bool | None = None
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
        return self._running.by_batch or self.tracks_statistics

    @property
    def batch_dependent(self) -> bool:
        """Whether what an example gets in training depends on the others of its batch, or on how many there are."""
        random = self._running.randomness
        by_outputs = random is not None and random.batch_dependent
        by_gradients = self._way is not None and self._way.padding_matters
        return self.normalises_batches or by_outputs or by_gradients

    @property
    def scores_depend_on_batch(self) -> bool:
        """Whether it does in evaluation too, for instance for want of running statistics."""
        random = self._running.randomness
        return self._running.untracked or (random is not None and random.scores_depend_on_batch)

    @property
    def draws_by_name(self) -> bool:
        """Whether training draws numbers that have names."""
        random = self._running.randomness
        return random is not None and random.named

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
        remedy = "make it run there in a plain loop"
        if isinstance(error, CheckpointError):
            remedy = "turn checkpointing off"
        elif "storage_offset divisible by 2" in said:  # of a parameter, which may begin anywhere in a row
            remedy = "join real and imaginary parts by torch.complex instead of torch.view_as_complex"
        return f"the model {self.called} fails on training inputs, {given} ({said}); {remedy}"

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
        running = self._running
        draws = self._named(draws, inputs[0], len(parameters))
        if way == "joined":
            return running.joined(mode, self.layout.split_rows(parameters), inputs, draws)
        moving = self.layout.statistics(parameters.detach() if statistics is None else statistics)
        if way == "vmap":
            places = torch.arange(len(parameters), device=self.device)

            def call(row: Tensor, own: list[Tensor], examples: Tensor, place: Tensor) -> Tensor:
                with running.passing(mode, draws, examples, "vmap", place):
                    return running.of_row(row, own, examples)

            # The random functions of a model that runs so are answered by name, see `NamedDraws`; "same" lets them be
            # called with generators of our own.
            with _with_rules_for_vmap():
                outputs = vmap(call, randomness="same")(parameters, moving, inputs, places)
        else:
            rows = []
            for place, (row, examples) in enumerate(zip(parameters, inputs, strict=True)):
                with running.passing(mode, draws and draws.one(place), examples), running.pooling():
                    rows.append(running.of_row(row, [value[place] for value in moving], examples))
            outputs = rows[0][None] if len(rows) == 1 else torch.stack(rows)
        if statistics is not None and moving:
            torch.cat(moving, 1, out=statistics[:, self.trainable :])
        return outputs

    def trial(self, mode: Mode, examples: Tensor, draws: NamedDraws) -> Tensor:
        """Outputs of the initial model for one client's examples, while nothing is known of the module yet.

        Raises:
            ConfigError: if the pass changes weights.
        """
        return self._running.trial(mode, self.initial, examples, draws)

    def buffers(self) -> dict[str, Tensor]:
        """The module's buffers by name, but for the running statistics."""
        return self._running.buffers()

    @property
    def module(self) -> nn.Module:
        """The module that runs; its parameters are those of whoever ran last."""
        return self._running.module

    @property
    def called(self) -> str:
        """How messages call the model."""
        return type(self._pristine).__name__

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
            return torch.cat([self.gradient(*one) for one in one_by_one(parameters, batch, draws)])
        elif way == "joined":
            gradient = torch.cat(
                [part.reshape(len(part), -1) for part in self._gradients_joined(parameters, batch, draws)[1]], 1
            )
        else:
            # The pass moves running statistics in `parameters` in place, so the tape must hang on other memory.
            at = (parameters.clone() if self.tracks_statistics else parameters.detach()).requires_grad_()
            outputs = self.outputs(at, batch.inputs, draws, statistics=parameters)
            (gradient,) = torch.autograd.grad(self.sum_of_means(outputs, batch), at)
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
            for place, (row, own, names) in enumerate(one_by_one(parameters, batch, draws)):
                self.sgd_step(row, own, rate, proximal_of_one(proximal, place), names)
        elif way == "vmap" or self._penalty is not None:
            gradient = self.gradient(parameters, batch, draws)
            parameters.sub_(self.with_proximal(gradient, parameters, proximal), alpha=rate)
        elif way == "joined":
            stacked, gradients = self._gradients_joined(parameters, batch, draws)
            anchors = [] if proximal is None else self.layout.split_rows(proximal[1].view(-1, self.size))
            step_on_parts(tuple(stacked), gradients, rate, proximal, anchors)
        else:
            gradients = self._gradients_of_one(parameters, batch, draws)
            anchors = [] if proximal is None else self.layout.split(proximal[1].view(-1))
            step_on_parts(tuple(self._running.parameters), gradients, rate, proximal, anchors)

    def with_proximal(self, gradient: Tensor, models: Tensor, proximal: ProximalTerm | None) -> Tensor:
        """``g + strength (v - anchor)``, for parameters only, see `holdfast.federated.engine.proximal`."""
        return add_proximal(gradient, models, proximal, self.trainable)

    def repair_statistics(self, model: Tensor) -> None:
        """Lift running variances that an aggregate has left below zero to zero, in place, shape (P,)."""
        parts = self.layout.split(model)[self.layout.parameters :]
        for part, (_, name) in zip(parts, self._running.statistics, strict=True):
            if name == "running_var":
                part.clamp_(min=0)

    def load(self, parameters: Tensor) -> nn.Module:
        """A copy of the module as it was given, with these parameters, shape (P,), in evaluation mode."""
        model = copy.deepcopy(self._pristine)
        values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        with torch.no_grad():
            for name, part in zip(self.layout.names, self.layout.split(parameters), strict=True):
                values[name].copy_(part)
        return moved_to(model, self.device).eval()

    # ---------------------------------------------------------------------------------------------- one pass

    def _gradients_of_one(self, parameters: Tensor, batch: ClientBatch, draws: Draws | None) -> tuple[Tensor, ...]:
        """Of each parameter, through the module itself, whose parameters point into the row."""
        examples = batch.inputs[0]
        self._randomness(examples)
        mode: Mode = "normalise" if draws is None else "train"
        outputs = self._running.of_views(mode, parameters[0], self._arranged(examples), draws)
        loss = self.mean_of_one(outputs, batch)
        return torch.autograd.grad(loss, self._running.parameters, allow_unused=True, materialize_grads=True)

    def _gradients_joined(
        self, parameters: Tensor, batch: ClientBatch, draws: Draws | None
    ) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Views of the rows, (clients, *shape) for each parameter, and the gradients there."""
        parts = [part.requires_grad_() for part in self.layout.split_rows(parameters.detach())]
        mode: Mode = "normalise" if draws is None else "train"
        names = self._named(draws, batch.inputs[0], len(batch))
        outputs = self._running.joined(mode, parts, batch.inputs, names)
        loss = self.sum_of_means(outputs, batch)
        return parts, torch.autograd.grad(loss, parts, allow_unused=True, materialize_grads=True)

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
            with self._running.passing("eval", self._named(None, images), images):
                arranged = logits_of(self.module(images.contiguous(memory_format=torch.channels_last)))
                usual = logits_of(self.module(images))
        except RuntimeError:  # of a view of a tensor that is not contiguous
            return False
        return torch.allclose(arranged, usual, rtol=1e-3, atol=1e-4)

    def _way_for(self, inputs: Tensor) -> str:
        """How several clients run, whose inputs are of shape (clients, batch, ...)."""
        way = self._way or self.study(inputs.flatten(0, 1))
        return way.name

    def _randomness(self, inputs: Tensor) -> Randomness:
        if self._running.randomness is None:
            self._running.randomness = look_at_randomness(self, inputs)
        return self._running.randomness

    def _named(self, draws: Draws | None, examples: Tensor, clients: int = 1) -> Draws | None:
        """Names for what is drawn, see `RunningModule.named`."""
        self._randomness(examples)
        return self._running.named(draws, clients)


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
