"""A look at a model before it is trained: what it makes of two examples, and where its head is.

A model of somebody's own may return anything. Two examples tell in a moment what would otherwise fail in the middle of
an epoch, or train something else: outputs that are not (examples, classes), probabilities in the place of logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.data.inputs import InputBatch
from holdfast.errors import ConfigError
from holdfast.models.heads import KNOWN_NAMES, features_and_logits, find_head, logits_of
from holdfast.models.modes import evaluation_mode
from holdfast.own_code import told_as_sentence


@dataclass(frozen=True)
class FoundHead:
    """The head of a model, or why it has none that methods could use.

    Attributes:
        name: of the layer; None where there is none.
        size: its inputs and outputs.
        how: how it was found, or why not, as a clause.
    """

    name: str | None
    size: tuple[int, int]
    how: str

    def __str__(self) -> str:
        if self.name is None:
            return f"no head: {self.how}"
        return f"head {self.name!r} (Linear {self.size[0]} -> {self.size[1]}), {self.how}"


def check_outputs(model: nn.Module, inputs: InputBatch, outputs: int, title: str) -> Tensor:
    """Run a model on a few examples and refuse what can't be trained as a classifier.

    Args:
        model: left in its mode, on its device, and without gradients.
        inputs: some examples as the model takes them, on the model's device.
        outputs: how many logits it must give for each.
        title: what messages call it.

    Returns:
        The logits (examples, outputs), detached.

    Raises:
        ConfigError: if its forward pass fails, or gives anything but finite logits of this shape.
    """
    shapes = _shapes(inputs)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), evaluation_mode(model):
        with told_as_sentence(f"{title} can't take inputs of shape {shapes}"):
            returned = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
        try:
            logits = logits_of(returned)
        except ConfigError as error:
            raise ConfigError(f"{title}: {error}") from error
    n = len(next(iter(inputs.values()))) if isinstance(inputs, Mapping) else len(inputs)
    if logits.shape != (n, outputs):
        raise ConfigError(_wrong_shape(title, tuple(logits.shape), n, outputs))
    if not logits.is_floating_point():
        raise ConfigError(f"{title} returns {logits.dtype} and not floating-point logits; leave the argmax out")
    if not logits.isfinite().all():
        raise ConfigError(f"{title} returns NaN or infinity before it is trained; look at its start and its inputs")
    if outputs > 1 and (logits >= 0).all() and torch.allclose(logits.float().sum(1), torch.ones(n).to(logits.device)):
        raise ConfigError(f"{title} returns probabilities, and the loss takes logits; leave the softmax at its end out")
    return logits


def look_for_head(model: nn.Module, inputs: InputBatch, head: str | None = None) -> FoundHead:
    """The head of a model, checked on a few examples.

    Args:
        model: left in its mode.
        inputs: some examples as the model takes them, on the model's device.
        head: its name, where the user has given one.

    Returns:
        The head, or why there is none.

    Raises:
        ConfigError: if the user has given a head that is none.
    """
    try:
        name, layer = find_head(model, head)
        with torch.random.fork_rng(devices=[]), torch.no_grad(), evaluation_mode(model):
            features_and_logits(model, inputs, head, verify=True)
    except ConfigError as error:
        if head is not None:
            raise
        return FoundHead(None, (0, 0), str(error))
    return FoundHead(name, (layer.in_features, layer.out_features), _how(model, name, head))


def fill_lazy_layers(model: nn.Module, shape: tuple[int, ...], title: str) -> None:
    """Give layers such as `nn.LazyLinear` their size and their random start, by a pass of two inputs of zeros.

    Raises:
        ConfigError: if the pass fails.
    """
    if not any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        return
    with (
        told_as_sentence(f"the lazy layers of {title} get no size from inputs of shape {shape}"),
        torch.no_grad(),
        evaluation_mode(model),
    ):
        model(torch.zeros(2, *shape))


def _how(model: nn.Module, name: str, head: str | None) -> str:
    if head is not None:
        return "as given"
    if sum(isinstance(module, nn.Linear) for module in model.modules()) == 1:
        return "the only linear layer"
    known = [part for part in name.split(".") if part in KNOWN_NAMES]
    return f"found by the name {known[0]!r}" if known else "found by position"


def _shapes(inputs: InputBatch) -> str:
    if isinstance(inputs, Mapping):
        return ", ".join(f"{name} {tuple(part.shape)}" for name, part in inputs.items())
    return f"{tuple(inputs.shape)}, {inputs.dtype}".replace("torch.", "")


def _wrong_shape(title: str, shape: tuple[int, ...], n: int, outputs: int) -> str:
    if len(shape) == 2 and shape[0] == n:
        few = "fewer" if shape[1] < outputs else "more"
        return (
            f"{title} gives {shape[1]} outputs for each example, {few} than the {outputs} that the data call for; make "
            "its last layer that wide"
        )
    return f"{title} gives outputs of shape {shape} for {n} examples and {outputs} classes; return ({n}, {outputs})"
