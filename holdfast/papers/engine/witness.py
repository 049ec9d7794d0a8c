"""What a golden cell is compared by: losses and norms of weights, seen on the way.

Accuracies of a small run are coarse: many a mistake leaves them as they are. A cell's function therefore tells the
witness about its losses and its models where it has them. Outside `watching` telling costs nothing and keeps nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_watched: ContextVar[dict[str, float] | None] = ContextVar("watched", default=None)


@contextmanager
def watching() -> Iterator[dict[str, float]]:
    """Collect what is told within the block, by name."""
    seen: dict[str, float] = {}
    token = _watched.set(seen)
    try:
        yield seen
    finally:
        _watched.reset(token)


def tell(name: str, value: Any) -> None:
    """Tell the witness a number, several of them, a tensor or a model.

    Args:
        name: what it is; told again, it gets a number behind it.
        value: a float, a sequence or mapping of floats, kept one by one; a tensor, or a module or state dictionary,
            kept as its norm and as its inner product with a fixed wave, which a permutation of weights changes.
    """
    seen = _watched.get()
    if seen is None:
        return
    for part, number in _numbers(value):
        label = f"{name}{part}"
        again = sum(key == label or key.startswith(f"{label}~") for key in seen)
        seen[f"{label}~{again + 1}" if again else label] = number


def _numbers(value: Any) -> Iterator[tuple[str, float]]:
    if hasattr(value, "state_dict"):
        value = value.state_dict()
    if isinstance(value, Mapping) and any(hasattr(item, "detach") for item in value.values()):
        yield from _of_tensors(value.values())
    elif hasattr(value, "detach"):
        yield from _of_tensors([value])
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from ((f"/{key}{part}", number) for part, number in _numbers(item))
    elif isinstance(value, Iterable):
        for place, item in enumerate(value):
            yield from ((f"[{place}]{part}", number) for part, number in _numbers(item))
    else:
        yield "", float(value)


def _of_tensors(tensors: Iterable[Any]) -> Iterator[tuple[str, float]]:
    """Norm and wave over all numbers of the tensors, in their order."""
    square, along, place = 0.0, 0.0, 0
    for tensor in tensors:
        flat = tensor.detach().double().flatten().cpu()
        square += float(flat.square().sum())
        # cos(sqrt(2) k) never repeats over whole numbers k, so that no two weights can change places unnoticed
        wave = (flat.new_ones(len(flat)).cumsum(0) + place).mul_(math.sqrt(2)).cos_()
        along += float((flat * wave).sum())
        place += len(flat)
    yield "|norm", math.sqrt(square)
    yield "|wave", along
