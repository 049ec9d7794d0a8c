"""A torch module as a function of flat parameter vectors, for one client or for many at once.

Everything federated is arithmetic on vectors: updates, distances, pulls towards an anchor. `Network` lets methods write
it so. It takes parameters of shape (clients, P), one row per client. A single row runs through the module as it is;
several rows run stacked, see `holdfast.federated.stacked_layers`, or by `torch.func.vmap` where a model does not lend
itself to it. That pays for small models, where the cost is in the calls.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.data.clients import Task
from holdfast.errors import ConfigError
from holdfast.federated.stacked_layers import CannotStackError, FastPooling, GivenDropout, give_masks, stacked_weights

#: Scales of the dropout layers' outputs, one tensor (clients, batch, ...) per layer, in the order of the layers.
Masks = tuple[Tensor, ...]

#: How strongly, and towards what, parameters are pulled: the gradient gets ``strength * (parameters - anchor)``.
Pull = tuple[float, Tensor]


@dataclass(frozen=True, eq=False)
class ClientBatch:
    """One mini-batch of each of several clients.

    Attributes:
        inputs: shape (clients, batch, ...).
        labels: int64 of shape (clients, batch).
        weights: shape (clients, batch); each row sums to one, padding has weight zero.
        clients: ids, int64 of shape (clients,).
        draws: how many batches each client had drawn before, int64 of shape (clients,).
        even: whether nothing is padded, so that weights need not be looked at.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor
    clients: Tensor
    draws: Tensor
    even: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def repeat(self, times: int) -> ClientBatch:
        """The same batches `times` over, for several models per client: row ``i * clients + k`` is client k's."""
        inputs, labels, weights, clients, draws = (
            torch.cat([part] * times) for part in (self.inputs, self.labels, self.weights, self.clients, self.draws)
        )
        return ClientBatch(inputs, labels, weights, clients, draws, self.even)


class Network:
    """A model's outputs, losses and gradients by flat parameters.

    Args:
        model: any module; its own weights are the start, and are never changed. A module may have an attribute
            ``weight_penalty``: c adds ``c * ||W||^2`` over its matrices to the loss, as the linear SVM of Vehicle has.
        task: how outputs are scored.

    Raises:
        ConfigError: if the module keeps running statistics or has no parameters.
    """

    def __init__(self, model: nn.Module, task: Task = "classes") -> None:
        _refuse_running_statistics(model)
        self.task = task
        self._module = give_masks(copy.deepcopy(model).train())
        self._names = [name for name, _ in self._module.named_parameters()]
        self._parameters = [parameter for _, parameter in self._module.named_parameters()]
        if not self._parameters:
            raise ConfigError(f"the model {type(model).__name__} has no parameters; there is nothing to federate")
        owners = dict(self._module.named_modules())
        split = [name.rpartition(".") for name in self._names]
        self._places = [(owners[owner]._parameters, name) for owner, _, name in split]
        self._stacks: bool | None = None
        self._channels_last: bool | None = None
        self.convolves = any(parameter.ndim == 4 for parameter in self._parameters)
        self._shapes = [parameter.shape for parameter in self._parameters]
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self.initial = torch.cat([parameter.detach().flatten() for parameter in self._parameters]).clone()
        self._dropouts = [name for name, module in self._module.named_modules() if isinstance(module, GivenDropout)]
        self.batch_dependent = any(isinstance(module, _BatchNorm) for module in self._module.modules())
        self._penalty = self._penalty_vector(float(getattr(model, "weight_penalty", 0.0)))

    @property
    def size(self) -> int:
        """Number of parameters, P."""
        return len(self.initial)

    @property
    def drops_out(self) -> bool:
        """Whether training needs masks."""
        return bool(self._dropouts)

    # ---------------------------------------------------------------------------------------------- functions

    def outputs(self, parameters: Tensor, inputs: Tensor, masks: Masks = ()) -> Tensor:
        """The model's outputs.

        Args:
            parameters: shape (clients, P).
            inputs: shape (clients, batch, ...).
            masks: of the dropout layers; nothing is dropped without.

        Returns:
            Shape (clients, batch, outputs).
        """
        if len(parameters) == 1:
            with self._pooling():
                return self._call(parameters[0], inputs[0], *(mask[0] for mask in masks))[None]
        if self._stacks is None:
            self._stacks = self._can_stack(parameters[:2], inputs[:2, :3])
        if self._stacks:
            return self._call_stacked(parameters, inputs, masks)
        return vmap(self._call)(parameters, inputs, *masks)

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
        """Gradient of each client's mean loss on its batch at its parameters, shape (clients, P)."""
        if len(parameters) == 1:
            gradient = torch.cat([part.flatten() for part in self._gradients_of_one(parameters, batch, masks)])[None]
        else:
            at = parameters.detach().requires_grad_()
            outputs = self.outputs(at, batch.inputs, masks)
            (gradient,) = torch.autograd.grad(self._sum_of_means(outputs, batch), at)
        if self._penalty is not None:
            gradient.addcmul_(self._penalty, parameters, value=2)
        return gradient

    def descend(self, parameters: Tensor, batch: ClientBatch, rate: float, pull: Pull | None, masks: Masks) -> None:
        """One SGD step of each client, in place: ``v <- v - rate (gradient + strength (v - anchor))``.

        Args:
            parameters: shape (clients, P); changed.
            batch: a mini-batch of each client.
            rate: the learning rate.
            pull: strength and anchor, shape (P,) or (clients, P), where there is a pull.
            masks: of the dropout layers.
        """
        if len(parameters) > 1 or self._penalty is not None:
            gradient = self.gradient(parameters, batch, masks)
            if pull is not None:
                gradient.add_(parameters - pull[1], alpha=pull[0])
            parameters.sub_(gradient, alpha=rate)
            return
        parts, gradients = self._split(parameters[0]), list(self._gradients_of_one(parameters, batch, masks))
        if pull is not None:
            away = torch._foreach_sub(parts, self._split(pull[1].view(-1)))
            torch._foreach_add_(gradients, list(away), alpha=pull[0])
        torch._foreach_sub_(parts, gradients, alpha=rate)

    def mask_shapes(self, inputs: Tensor) -> list[tuple[float, tuple[int, ...]]]:
        """For each dropout layer the probability and the shape of its input for one example like ``inputs[0]``."""
        found: dict[str, tuple[float, tuple[int, ...]]] = {}
        layers = {name: module for name, module in self._module.named_modules() if isinstance(module, GivenDropout)}

        def look(name: str) -> object:
            def hook(module: nn.Module, given: tuple[Tensor, ...]) -> None:
                assert isinstance(module, GivenDropout)
                found[name] = (module.p, tuple(given[0].shape[1:]))

            return layers[name].register_forward_pre_hook(hook)

        hooks = [look(name) for name in layers]
        with torch.no_grad():
            self.outputs(self.initial[None], inputs[None, :2])
        for hook in hooks:
            hook.remove()  # type: ignore[attr-defined]
        return [found[name] for name in layers]

    def load(self, parameters: Tensor) -> nn.Module:
        """A copy of the module with these parameters, shape (P,), in evaluation mode."""
        model = copy.deepcopy(self._module).eval()
        for parameter, part in zip(model.parameters(), self._split(parameters), strict=True):
            parameter.data.copy_(part)
        return model

    # ---------------------------------------------------------------------------------------------- inside

    def _split(self, row: Tensor) -> list[Tensor]:
        return [part.view(shape) for part, shape in zip(torch.split(row, self._sizes), self._shapes, strict=True)]

    def _call(self, row: Tensor, inputs: Tensor, *masks: Tensor) -> Tensor:
        given = dict(zip(self._names, self._split(row), strict=True))
        if masks:
            given |= {f"{name}.mask": mask for name, mask in zip(self._dropouts, masks, strict=True)}
        return cast(Tensor, functional_call(self._module, given, (inputs,)))

    def _gradients_of_one(self, parameters: Tensor, batch: ClientBatch, masks: Masks) -> tuple[Tensor, ...]:
        """Of each parameter, through the module itself, whose parameters point into the row."""
        for parameter, part in zip(self._parameters, self._split(parameters[0]), strict=True):
            parameter.data = part
        inputs = self._arranged(batch.inputs[0])
        self._give(*(mask[0] for mask in masks))
        outputs = self._module(inputs)
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
            return len(batch) * F.cross_entropy(outputs.flatten(0, 1), batch.labels.flatten())
        return (self.losses(outputs, batch.labels) * batch.weights).sum()

    def _call_stacked(self, parameters: Tensor, inputs: Tensor, masks: Masks) -> Tensor:
        parts = zip(torch.split(parameters, self._sizes, dim=1), self._shapes, strict=True)
        rows = [part.view(len(parameters), *shape) for part, shape in parts]
        self._give(*(mask.flatten(0, 1) for mask in masks))
        with stacked_weights(self._places, rows), self._pooling():
            outputs = self._module(inputs.flatten(0, 1))
        self._give()
        return cast(Tensor, outputs.view(*inputs.shape[:2], *outputs.shape[1:]))

    @torch.no_grad()
    def _can_stack(self, parameters: Tensor, inputs: Tensor) -> bool:
        """Whether the model runs stacked, found out by comparing with vmap on a few examples."""
        if self.batch_dependent:
            return False
        try:
            stacked = self._call_stacked(parameters, inputs, ())
        except (CannotStackError, RuntimeError, TypeError, AttributeError):
            return False
        return torch.allclose(stacked, vmap(self._call)(parameters, inputs), rtol=1e-3, atol=1e-4)

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


def _refuse_running_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            raise ConfigError(
                f"the model keeps running statistics in {name!r}, which are no parameters; build it with "
                "track_running_stats=False, or with group normalisation"
            )
