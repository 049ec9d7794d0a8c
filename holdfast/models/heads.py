"""The head of any model, and its input: what last-layer gradients, clustering of features and head refits stand on.

Every method here needs only that the logits come from one `nn.Linear`. It is looked for by the names that the public
libraries use, then by position; where that is a guess, an error lists the candidates and asks for the name. Features
are caught by a hook in the forward pass that gives the logits, so they cost nothing and the model needs no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from holdfast.data.inputs import InputBatch
from holdfast.errors import ConfigError, DataError
from holdfast.models.compiled import running_uncompiled, uncompiled

#: What torchvision, timm, transformers and most people call the part that ends in the head.
KNOWN_NAMES = frozenset(
    {"fc", "head", "heads", "classifier", "linear", "last_linear", "score", "classification_head", "lm_head"}
)

_HALF = {torch.bfloat16, torch.float16}


def find_head(model: nn.Module, head: str | None = None) -> tuple[str, nn.Linear]:
    """The linear layer whose output is the model's output.

    Args:
        model: any model.
        head: its name in `model.named_modules()`, where the search would have to guess. A part that ends in a linear
            layer, such as a Sequential, may be named instead of the layer.

    Returns:
        The layer's name and the layer. Whether the model does something to its output afterwards can only be seen
        with data: `features_and_logits` with ``verify=True``.

    Raises:
        ConfigError: if there is no linear layer, or more than one that could be the head.

    Example:
        >>> find_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
        ('2', Linear(in_features=8, out_features=3, bias=True))
    """
    model = uncompiled(model)
    modules = dict(model.named_modules())
    if head is not None and head not in modules:
        raise ConfigError(f"{type(model).__name__} has no part named {head!r}; {_choices(model)}")
    start = head or ""
    candidates = _candidates(modules[start], start)
    if len(candidates) != 1:
        where = type(model).__name__ if head is None else f"{head!r} of {type(model).__name__}"
        raise ConfigError(f"the linear head of {where} can't be determined; {_choices(model)}")
    layer = modules[candidates[0]]
    assert isinstance(layer, nn.Linear)
    return candidates[0], layer


def features_and_logits(
    model: nn.Module, inputs: InputBatch, head: str | None = None, *, verify: bool = False
) -> tuple[Tensor, Tensor]:
    """The input of the head and the logits, from one forward pass.

    Gradients flow through both; wrap the call in `torch.no_grad()` where they aren't wanted.

    Args:
        model: any model.
        inputs: a batch as the model takes it: a tensor, or named tensors that are passed by keyword.
        head: the head's name, see `find_head`.
        verify: check on this batch that the head applied to the features gives the logits; do it once per model.

    Returns:
        Features (n, width) and logits (n, classes).

    Raises:
        ConfigError: if the head isn't run exactly once, or its output isn't the model's.
    """
    name, layer = find_head(model, head)
    seen: list[Tensor] = []

    def catch(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(args[0] if args else kwargs["input"])

    hook = layer.register_forward_pre_hook(catch, with_kwargs=True)
    try:
        with running_uncompiled():  # a compiled model doesn't see the hook
            logits = run(model, inputs)
    finally:
        hook.remove()
    if len(seen) != 1:
        raise ConfigError(
            f"the head {name!r} of {type(model).__name__} was run {len(seen)} times in a forward pass, not once; "
            + _choices(model)
        )
    features = at_least_float32(seen[0])
    if verify:
        _verify(name, layer, features, logits)
    return features, logits


def run(model: nn.Module, inputs: InputBatch) -> Tensor:
    """Logits of the model for a batch, in float32 at least; named tensors are passed by name.

    A model whose weights are all bfloat16 or float16 gets its inputs so.

    Raises:
        DataError: if batch norm is to learn from a mini-batch of one example.
    """
    try:
        if isinstance(inputs, Tensor):
            return logits_of(model(as_weights(model, inputs)))
        return logits_of(model(**{name: as_weights(model, part) for name, part in inputs.items()}))
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise DataError(
            "a mini-batch has one example, and batch norm can't learn from one; train on more examples, or with a "
            "model without batch norm"
        ) from error


def as_weights(model: nn.Module, values: Tensor) -> Tensor:
    """Inputs in bfloat16 or float16 where all of the model's weights are."""
    kind = _half_weights(model)
    return values.to(kind) if kind is not None and values.is_floating_point() else values


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision as float32: losses and decisions are no place for three digits, and NumPy has no bfloat16."""
    return values.float() if values.dtype in _HALF else values


def logits_of(output: Any) -> Tensor:
    """The logits in what a model returns, in float32 at least.

    They are the output itself where it is a tensor, or its attribute or entry ``logits``, as transformers' models give.

    Args:
        output: what the model returned.

    Returns:
        The logits.

    Raises:
        ConfigError: if there are none to be seen.
    """
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if logits is None and isinstance(output, Mapping):
        logits = output.get("logits")
    if not isinstance(logits, Tensor):
        raise ConfigError(
            f"the model returned a {type(output).__name__}; return the logits as a tensor, as an attribute .logits or "
            "as an entry ['logits']"
        )
    return at_least_float32(logits)


def _first_parameter(module: nn.Module) -> nn.Parameter | None:
    """As ``next(module.parameters())``, which goes through dozens of calls, at every step."""
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    for part in module._modules.values():
        if part is not None and (parameter := _first_parameter(part)) is not None:
            return parameter
    return None


def _half_weights(model: nn.Module) -> torch.dtype | None:
    """bfloat16 or float16, where all of the model's numbers are."""
    first = _first_parameter(model)
    if first is None or first.dtype not in _HALF:  # the usual case, at every step
        return None
    kinds = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return next(iter(kinds)) if len(kinds) == 1 and kinds <= _HALF else None


def _candidates(module: nn.Module, name: str) -> list[str]:
    """Names of the linear layers that may come last in `module`: one where that is clear."""
    if isinstance(module, nn.Linear):
        # Attention reads this layer's weights without calling it: never a head.
        return [] if isinstance(module, NonDynamicallyQuantizableLinear) else [name]
    parts = {key: part for key, part in module.named_children() if any(True for _ in part.parameters())}
    in_order = isinstance(module, nn.Sequential)
    known = {} if in_order else {key: part for key, part in parts.items() if key in KNOWN_NAMES and _linears(part)}
    last = known or dict(list(parts.items())[-1:])
    candidates = [path for key, part in last.items() for path in _candidates(part, f"{name}.{key}" if name else key)]
    if in_order or len(parts) == 1 or len(candidates) != 1:
        return candidates
    # Names and order are only hints: another layer that could follow this one, or stand in its place, is a rival.
    linears = {f"{name}.{path}" if name else path: layer for path, layer in _linears(module).items()}
    head, paths = linears[candidates[0]], list(linears)
    later = paths[paths.index(candidates[0]) + 1 :]
    rivals = [path for path in later if linears[path].in_features == head.out_features]
    if not known:
        rivals += [path for path in paths if linears[path].out_features == head.out_features and path != candidates[0]]
    return candidates + rivals


def _linears(module: nn.Module) -> dict[str, nn.Linear]:
    return {
        path: part
        for path, part in module.named_modules()
        if isinstance(part, nn.Linear) and not isinstance(part, NonDynamicallyQuantizableLinear)
    }


def _choices(model: nn.Module, most: int = 8) -> str:
    linears = _linears(model)
    if not linears:
        return "it has no nn.Linear at all, so last-layer methods can't be used with it"
    shown = [f"{path!r} ({layer.in_features} -> {layer.out_features})" for path, layer in list(linears.items())[-most:]]
    return f'candidates are {", ".join(shown)}: pass head="name" (--head name) to say which'


def _verify(name: str, layer: nn.Linear, features: Tensor, logits: Tensor) -> None:
    logits = logits.detach()
    close = 3e-2 if layer.weight.dtype in _HALF else 1e-3
    with torch.no_grad():
        bias = None if layer.bias is None else at_least_float32(layer.bias)
        expected = F.linear(features, at_least_float32(layer.weight), bias)
    what = None
    if expected.shape != logits.shape:
        what = f"gives shape {tuple(expected.shape)} while the model returns {tuple(logits.shape)}"
    elif not torch.allclose(expected, logits, rtol=close, atol=close / 10):
        what = f"differs from what the model returns by up to {float((expected - logits).abs().max()):.3g}"
    if what is not None:
        raise ConfigError(
            f"the layer {name!r} {what}: something is applied after it (a softmax, a scaling, pooling); return its "
            "output as the logits, or pass the head that is last"
        )
