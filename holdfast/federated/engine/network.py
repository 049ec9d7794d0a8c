"""A torch module as a function of flat parameter vectors, for one client or for many at once.

Everything federated is arithmetic on vectors: updates, distances, pulls towards an anchor. `Network` lets methods write
it so. It takes parameters of shape (clients, P), one row per client. A single row runs through the module as it is;
several rows run stacked, see `holdfast.federated.engine.stacked_layers`, or by `torch.func.vmap` where a model does not
lend itself to it. That pays for small models, where the cost is in the calls.

A model with batch normalisation has running statistics too. They follow the parameters in a row: the server averages
them like everything else, gradients are zero there, nothing pulls at them, and a training pass moves them in place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.data.clients.clients import Task
from holdfast.errors import ConfigError
from holdfast.federated.engine.stacked_layers import (
    CannotStackError,
    FastPooling,
    GivenDropout,
    give_masks,
    stacked_weights,
)
from holdfast.models.heads import logits_of

#: Scales of the dropout layers' outputs, one tensor (clients, batch, ...) per layer, in the order of the layers.
Masks = tuple[Tensor, ...]

#: How strongly, and towards what, parameters are pulled: the gradient gets ``strength * (parameters - anchor)``.
ProximalTerm = tuple[float, Tensor]


@dataclass(frozen=True, eq=False)
class ClientBatch:
    """One mini-batch of each of several clients.

    Attributes:
        inputs: shape (clients, batch, ...).
        labels: int64 of shape (clients, batch).
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

    Attributes:
        initial: the model's own parameters and running statistics, shape (P,).
        trainable: how many of them are parameters.
        convolves: whether it is a network for images.
        batch_dependent: whether the examples of a batch interact in training.
        scores_depend_on_batch: whether they interact in evaluation too, for want of running statistics.

    Raises:
        ConfigError: if the module has no parameters, or running statistics that weigh all batches alike.
    """

    def __init__(self, model: nn.Module, task: Task = "classes") -> None:
        self.task = task
        # A copy, because its parameters will point into rows of clients (`_gradients_of_one`): the user's model stays
        # as it is. It stays in training mode; dropout takes its masks from outside and batch norm is switched pass by
        # pass.
        self._module = give_masks(copy.deepcopy(model).train())
        self._names = [name for name, _ in self._module.named_parameters()]
        self._parameters = [parameter for _, parameter in self._module.named_parameters()]
        if not self._parameters:
            raise ConfigError(f"the model {type(model).__name__} has no parameters; there is nothing to federate")
        owners = dict(self._module.named_modules())
        split = [name.rpartition(".") for name in self._names]
        # Torch keeps the parameters of a module in the plain dictionary `_parameters`. Stacked weights are put there,
        # since assigning to the attribute itself accepts nothing but an `nn.Parameter`.
        self._places = [(owners[owner]._parameters, name) for owner, _, name in split]
        norms = {name: module for name, module in owners.items() if isinstance(module, _BatchNorm)}
        self._tracked = [_refuse_unweighted(name, norm) for name, norm in norms.items() if norm.track_running_stats]
        self._statistics = [(norm, name) for norm in self._tracked for name in ("running_mean", "running_var")]
        # How often statistics moved: the module counts all clients' passes, so a model that is handed out starts anew.
        self._counters = {
            name: buffer.clone()
            for name, buffer in self._module.named_buffers()
            if name.endswith("num_batches_tracked")
        }
        names = {norm: name for name, norm in norms.items()}
        self._statistics_names = [f"{names[norm]}.{name}" for norm, name in self._statistics]
        # Both are found out by trying, at the first pass: whether the model runs stacked, and channels last.
        self._stacks: bool | None = None
        self._channels_last: bool | None = None
        self.convolves = any(parameter.ndim == 4 for parameter in self._parameters)
        values = [*self._parameters, *(getattr(norm, name) for norm, name in self._statistics)]
        self._shapes = [value.shape for value in values]
        self._sizes = [value.numel() for value in values]
        self.trainable: int = sum(self._sizes[: len(self._parameters)])
        self.initial = torch.cat([value.detach().flatten() for value in values]).clone()
        self._dropouts = [name for name, module in self._module.named_modules() if isinstance(module, GivenDropout)]
        self.batch_dependent = bool(norms)
        self.scores_depend_on_batch = len(norms) > len(self._tracked)
        self._penalty = self._penalty_vector(float(getattr(model, "weight_penalty", 0.0)))

    @property
    def size(self) -> int:
        """Numbers in a row, P: the parameters, then the running statistics."""
        return len(self.initial)

    @property
    def tracks_statistics(self) -> bool:
        """Whether there are running statistics."""
        return self.size > self.trainable

    @property
    def drops_out(self) -> bool:
        """Whether training needs masks."""
        return bool(self._dropouts)

    # ---------------------------------------------------------------------------------------------- functions

    def outputs(
        self, parameters: Tensor, inputs: Tensor, masks: Masks = (), *, statistics: Tensor | None = None
    ) -> Tensor:
        """The model's outputs; as in evaluation, unless statistics are given.

        Args:
            parameters: shape (clients, P).
            inputs: shape (clients, batch, ...).
            masks: of the dropout layers; nothing is dropped without.
            statistics: rows, shape (clients, P), whose running statistics move with this pass, in place; batches are
                normalised by their own mean and variance then, as in training.

        Returns:
            Shape (clients, batch, outputs).
        """
        if self._stacks is None and len(parameters) > 1:
            self._stacks = self._can_stack(parameters[:2], inputs[:2, :3])
        if len(parameters) > 1 and self._stacks:
            return self._call_stacked(parameters, inputs, masks)
        moving = self._statistics_of(parameters.detach() if statistics is None else statistics)
        with self._normalising(by_batch=statistics is not None):
            if len(parameters) > 1:
                outputs = vmap(self._call)(parameters, moving, inputs, *masks)
            else:
                first = [value[0] for value in moving]
                with self._pooling():
                    outputs = self._call(parameters[0], first, inputs[0], *(mask[0] for mask in masks))[None]
        if statistics is not None and moving:
            torch.cat(moving, 1, out=statistics[:, self.trainable :])
        return outputs

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Loss of each example, without the penalty: outputs (..., c) and labels (...) to (...)."""
        if self.task == "margin":
            return F.relu(1 - (2 * labels - 1) * outputs.squeeze(-1))
        flat = F.cross_entropy(outputs.flatten(0, -2), labels.flatten(), reduction="none")
        return flat.view(labels.shape)

    def correct(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Whether each example is told right, bool."""
        predicted = (outputs.squeeze(-1) > 0).long() if self.task == "margin" else outputs.argmax(-1)
        return predicted == labels

    def penalty(self, parameters: Tensor) -> Tensor:
        """The penalty on weights of each row, shape (rows,)."""
        if self._penalty is None:
            return torch.zeros(len(parameters), dtype=parameters.dtype)
        return (self._penalty * parameters.square()).sum(-1)

    def loss(self, parameters: Tensor, batch: ClientBatch, masks: Masks = ()) -> Tensor:
        """Mean loss of each client on its batch, with the penalty, shape (clients,)."""
        losses = self.losses(self.outputs(parameters, batch.inputs, masks), batch.labels)
        return (losses * batch.weights).sum(-1) + self.penalty(parameters)

    def gradient(self, parameters: Tensor, batch: ClientBatch, masks: Masks = ()) -> Tensor:
        """Gradient of each client's mean loss on its batch at its parameters, shape (clients, P).

        Running statistics in `parameters` move, in place; the gradient is zero there.
        """
        if len(parameters) == 1:
            parts = [part.flatten() for part in self._gradients_of_one(parameters, batch, masks)]
            gradient = torch.cat([*parts, parts[0].new_zeros(self.size - self.trainable)])[None]
        else:
            # The pass moves running statistics in `parameters` in place, so the tape must hang on other memory.
            at = (parameters.clone() if self._statistics else parameters.detach()).requires_grad_()
            outputs = self.outputs(at, batch.inputs, masks, statistics=parameters)
            (gradient,) = torch.autograd.grad(self._sum_of_means(outputs, batch), at)
        if self._penalty is not None:
            gradient.addcmul_(self._penalty, parameters, value=2)
        return gradient

    def sgd_step(
        self, parameters: Tensor, batch: ClientBatch, rate: float, proximal: ProximalTerm | None, masks: Masks
    ) -> None:
        """One SGD step of each client, in place: ``v <- v - rate (gradient + strength (v - anchor))``.

        Args:
            parameters: shape (clients, P); changed.
            batch: a mini-batch of each client.
            rate: the learning rate.
            proximal: strength and anchor, shape (P,) or (clients, P), where there is one.
            masks: of the dropout layers.
        """
        if len(parameters) > 1 or self._penalty is not None:
            gradient = self.gradient(parameters, batch, masks)
            parameters.sub_(self.with_proximal(gradient, parameters, proximal), alpha=rate)
            return
        # One client: step on the views of its row, parameter by parameter, without flattening the gradient first. These
        # private functions of torch are what its own optimizers call with ``foreach=True``; they are one kernel for all
        # parameters, where a loop over a small model would spend its time in calls.
        parts = self._split(parameters[0])[: len(self._parameters)]
        gradients = list(self._gradients_of_one(parameters, batch, masks))
        if proximal is not None:
            anchor = self._split(proximal[1].view(-1))[: len(parts)]
            torch._foreach_add_(gradients, list(torch._foreach_sub(parts, anchor)), alpha=proximal[0])
        torch._foreach_sub_(parts, gradients, alpha=rate)

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
        for part, (_, name) in zip(self._split(model)[len(self._parameters) :], self._statistics, strict=True):
            if name == "running_var":
                part.clamp_(min=0)

    def mask_shapes(self, inputs: Tensor) -> list[tuple[float, tuple[int, ...]]]:
        """For each dropout layer the probability and the shape of its input for one example like ``inputs[0]``."""
        shapes: dict[str, tuple[float, tuple[int, ...]]] = {}
        layers = {name: module for name, module in self._module.named_modules() if isinstance(module, GivenDropout)}

        def look(name: str) -> object:
            def hook(module: nn.Module, given: tuple[Tensor, ...]) -> None:
                assert isinstance(module, GivenDropout)
                shapes[name] = (module.p, tuple(given[0].shape[1:]))

            return layers[name].register_forward_pre_hook(hook)

        hooks = [look(name) for name in layers]
        with torch.no_grad():
            self.outputs(self.initial[None], inputs[None, :2])
        for hook in hooks:
            hook.remove()  # type: ignore[attr-defined]
        return [shapes[name] for name in layers]

    def load(self, parameters: Tensor) -> nn.Module:
        """A copy of the module with these parameters, shape (P,), in evaluation mode."""
        model = copy.deepcopy(self._module).eval()
        buffers = dict(model.named_buffers())
        values = [*model.parameters(), *(buffers[name] for name in self._statistics_names)]
        for value, part in zip(values, self._split(parameters), strict=True):
            value.data.copy_(part)
        for name, count in self._counters.items():
            buffers[name].copy_(count)
        return model

    # ---------------------------------------------------------------------------------------------- inside

    def _split(self, row: Tensor) -> list[Tensor]:
        return [part.view(shape) for part, shape in zip(torch.split(row, self._sizes), self._shapes, strict=True)]

    def _statistics_of(self, rows: Tensor) -> list[Tensor]:
        """Copies of running statistics, shape (clients, channels) each: torch moves those in place under vmap."""
        parts = torch.split(rows[:, self.trainable :], self._sizes[len(self._parameters) :], dim=1)
        return [part.clone(memory_format=torch.contiguous_format) for part in parts]

    def _call(self, row: Tensor, statistics: list[Tensor], inputs: Tensor, *masks: Tensor) -> Tensor:
        given = dict(zip(self._names, self._split(row)[: len(self._names)], strict=True))
        given |= dict(zip(self._statistics_names, statistics, strict=True))
        if masks:
            given |= {f"{name}.mask": mask for name, mask in zip(self._dropouts, masks, strict=True)}
        return logits_of(functional_call(self._module, given, (inputs,)))

    def _gradients_of_one(self, parameters: Tensor, batch: ClientBatch, masks: Masks) -> tuple[Tensor, ...]:
        """Of each parameter, through the module itself, whose parameters point into the row."""
        # The module's parameters become views of the row, so nothing is copied and a later step on the row is seen by
        # the module. They alias the row until the next call, which is why only `load` hands the module out, as a copy.
        parts = self._split(parameters[0])
        for parameter, part in zip(self._parameters, parts, strict=False):
            parameter.data = part
        for (norm, name), part in zip(self._statistics, parts[len(self._parameters) :], strict=True):
            setattr(norm, name, part)
        inputs = self._arranged(batch.inputs[0])
        self._give(*(mask[0] for mask in masks))
        outputs = logits_of(self._module(inputs))
        self._give()
        return torch.autograd.grad(self._sum_of_means(outputs[None], batch), self._parameters)

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
            arranged = self._module(images.contiguous(memory_format=torch.channels_last))
        except RuntimeError:  # of a view of a tensor that is not contiguous
            return False
        return torch.allclose(arranged, self._module(images), rtol=1e-3, atol=1e-4)

    def _sum_of_means(self, outputs: Tensor, batch: ClientBatch) -> Tensor:
        """The clients' mean losses, added up; clients don't share parameters, so each gets its own gradient."""
        if batch.even and self.task == "classes":
            # Every client has as many examples, so the sum of means is a multiple of the mean of all: one fused kernel.
            return len(batch) * F.cross_entropy(outputs.flatten(0, 1), batch.labels.flatten())
        return (self.losses(outputs, batch.labels) * batch.weights).sum()

    def _call_stacked(self, parameters: Tensor, inputs: Tensor, masks: Masks) -> Tensor:
        parts = zip(torch.split(parameters, self._sizes, dim=1), self._shapes, strict=True)
        rows = [part.view(len(parameters), *shape) for part, shape in parts]
        # Clients' batches become one batch, client after client; weights know how many rows are whose.
        self._give(*(mask.flatten(0, 1) for mask in masks))
        with stacked_weights(self._places, rows), self._pooling():
            outputs = logits_of(self._module(inputs.flatten(0, 1)))
        self._give()
        return outputs.view(*inputs.shape[:2], *outputs.shape[1:])

    @torch.no_grad()
    def _can_stack(self, parameters: Tensor, inputs: Tensor) -> bool:
        """Whether the model runs stacked, found out by comparing with vmap on a few examples."""
        if self.batch_dependent:
            return False
        # Two different rows and a few examples: a model that mixes up clients, or that does something with its weights
        # that `stacked_layers` has no version of, is noticed here and runs by vmap.
        try:
            stacked = self._call_stacked(parameters, inputs, ())
        except (CannotStackError, RuntimeError, TypeError, AttributeError):
            return False
        return torch.allclose(stacked, vmap(self._call)(parameters, [], inputs), rtol=1e-3, atol=1e-4)

    @contextmanager
    def _normalising(self, *, by_batch: bool) -> Iterator[None]:
        """Normalise by the batch's statistics for a while, which moves the running ones, or by the latter."""
        for norm in self._tracked:
            norm.train(by_batch)
        try:
            yield
        finally:
            for norm in self._tracked:
                norm.train()

    def _pooling(self) -> AbstractContextManager[object]:
        return FastPooling() if self.convolves else nullcontext()

    def _give(self, *masks: Tensor) -> None:
        """Give the dropout layers their masks, or take them back."""
        for place, name in enumerate(self._dropouts):
            layer = cast(GivenDropout, self._module.get_submodule(name))
            layer.mask = masks[place] if masks else torch.ones(())

    def _penalty_vector(self, strength: float) -> Tensor | None:
        if strength == 0:
            return None
        parts = [
            torch.full((size,), strength * (len(shape) > 1), dtype=self.initial.dtype)
            for size, shape in zip(self._sizes, self._shapes, strict=True)
        ]
        return torch.cat(parts)


def _refuse_unweighted(name: str, norm: _BatchNorm) -> _BatchNorm:
    if norm.momentum is None:
        raise ConfigError(
            f"the running statistics of {name!r} weigh all batches alike (momentum=None), which can't be averaged over "
            "clients; give it a momentum"
        )
    return norm
