"""Clients from data of one's own: arrays by name, a table, texts or images with a column that says whose each row is.

Every client's rows are split 72/8/20 (Ditto, Appendix G.6) unless the data says how. What is measured for encoding
(means, categories) comes from all clients' training rows together, as a simulation may; a deployment agrees first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.data.clients.partitioned import all_inputs
from holdfast.data.clients.partitions import Partition, split_parts
from holdfast.data.examples import Examples
from holdfast.data.inputs import TensorInputs
from holdfast.data.own.hashed_texts import HashedTexts
from holdfast.data.own.reading import OwnRows
from holdfast.errors import DataError
from holdfast.streams import data_stream


def clients_of_arrays(data: Mapping[str, Any], *, seed: int = 0, class_names: tuple[str, ...] = ()) -> Clients:
    """Clients from their arrays by name, each split 72/8/20.

    Args:
        data: for each client's name ``(inputs, labels)`` or `Examples`; labels are numbers from 0, or words.
        seed: decides the split.
        class_names: all classes, in order; those that occur by default.

    Raises:
        DataError: if a client has fewer than two examples, or clients' inputs differ in shape.
    """
    if not data:
        raise DataError("there are no clients; give a name and (inputs, labels) for each")
    parts = [_examples_of(name, given) for name, given in data.items()]
    shapes = {tuple(part.input_shape): name for name, part in zip(data, parts, strict=True)}
    if len(shapes) > 1:
        (first, one), (second, other), *_ = shapes.items()
        raise DataError(
            f"the inputs of {one!r} have shape {first} and those of {other!r} {second}; give all clients inputs of "
            "one shape"
        )
    labels = [
        given[1] if isinstance(given, tuple) else part.labels for given, part in zip(data.values(), parts, strict=True)
    ]
    words = [isinstance(label, str) for client in labels for label in _listed(client)[:1]]
    if any(words) and not all(words):
        raise DataError("some clients have words as labels and some have numbers; give all of one kind")
    joined: Any = np.concatenate([np.asarray(_listed(client)) for client in labels])
    whole = Examples.of(
        torch.cat([all_inputs(part) for part in parts]),
        joined.tolist() if all(words) else joined,
        sources=np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        class_names=class_names or None,
    )
    return clients_of_sources(whole, tuple(map(str, data)), seed)


def clients_of_sources(examples: Examples, names: tuple[str, ...], seed: int = 0) -> Clients:
    """Clients from pooled examples whose source says whose they are, each split 72/8/20."""
    assert examples.sources is not None
    owners = examples.sources.numpy()
    small = np.flatnonzero(np.bincount(owners, minlength=len(names)) < 2)
    if len(small):
        raise DataError(
            f"the client {names[small[0]]!r} has fewer than two examples, like {len(small) - 1} others; it needs one "
            "to train on and one to be tested on: leave such clients out, or join them"
        )
    parts = np.zeros(len(examples), np.int64)
    for code, part in enumerate(split_parts(Partition.of_owners(owners, len(names)), data_stream(seed, "72/8/20"))):
        parts[part.rows] = code
    return _clients(examples, parts, names)


def clients_of_rows(rows: OwnRows) -> Clients:
    """Clients from a user's own rows, whose client column is the examples' source.

    Raises:
        DataError: if the rows don't say whose they are, or a client has no training rows.
    """
    examples = rows.examples
    if examples.sources is None:
        raise DataError("no column says which client each row belongs to; name it with --client")
    return _clients(stackable(examples), rows.parts, examples.source_names)


def stackable(examples: Examples) -> Examples:
    """The examples with inputs in one tensor, as stacked clients need them: texts padded to one length."""
    inputs = examples.inputs
    return replace(examples, inputs=TensorInputs(inputs.padded())) if isinstance(inputs, HashedTexts) else examples


def _clients(examples: Examples, parts: NDArray[np.int64], names: tuple[str, ...]) -> Clients:
    assert examples.sources is not None
    inputs = all_inputs(examples)
    owners = examples.sources.numpy()

    def part(code: int) -> ClientPart:
        own = Partition.of_owners(np.where(parts == code, owners, -1), len(names))
        rows = torch.from_numpy(own.rows)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.from_numpy(own.counts).cumsum(0)])
        groups = None if examples.groups is None else examples.groups[rows]
        return ClientPart(inputs.index_select(0, rows), examples.labels[rows], offsets, groups)

    return Clients(part(0), part(1), part(2), examples.n_classes, names=names).check()


def _examples_of(name: str, given: Any) -> Examples:
    if isinstance(given, Examples):
        return given
    if not isinstance(given, tuple) or len(given) != 2:
        raise DataError(f"the data of client {name!r} is a {type(given).__name__}; give (inputs, labels)")
    try:
        return Examples.of(given[0], np.zeros(len(given[1]), np.int64))
    except (DataError, TypeError) as error:
        raise DataError(f"the data of client {name!r} can't be used: {error}") from error


def _listed(labels: Any) -> list[Any]:
    return labels.tolist() if isinstance(labels, (Tensor, np.ndarray)) else list(labels)
