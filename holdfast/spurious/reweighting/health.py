"""Whether balancing can do what it is for: every class has every attribute, and PDE's model is one of its expansion."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.training.health.check import Check, Finding
from holdfast.training.health.observed import Observed

EMPTY_CELLS = Check(
    "empty cells",
    0,
    0,
    "above",
    "a class that never occurs with an attribute can't be told from it by any balance of what is left",
    "add examples of the empty cells, or leave the attribute's other values out",
)
EXPANSION = Check(
    "chosen epoch",
    0,
    None,
    "below",
    "before its first expansion PDE is training on a balanced subset and nothing else",
    "expand earlier (--pde.first-expansion), or use group-subsampled, which is what this result is",
)


def empty_cells(labels: Tensor, attributes: Tensor) -> Finding:
    """How many pairs of a class and an attribute value, each of which occurs, have no example."""
    classes, row = torch.unique(labels, return_inverse=True)
    values, column = torch.unique(attributes, return_inverse=True)
    counts = torch.bincount(row * len(values) + column, minlength=len(classes) * len(values))
    empty = (counts == 0).nonzero().flatten().tolist()
    first = (
        f", the first class {classes[empty[0] // len(values)]} with {values[empty[0] % len(values)]}" if empty else ""
    )
    return EMPTY_CELLS.finding(
        len(empty), f"{len(empty)} of {len(counts)} pairs of a class and an attribute have no training example{first}"
    )


def attributes_of_classes(observed: Observed) -> list[Finding]:
    """`empty_cells` of a run's training set; nothing where attributes are unknown, or groups were inferred instead."""
    examples = observed.examples
    if examples.attributes is None or observed.plan.groups is not None:
        return []
    return [empty_cells(examples.labels, examples.attributes)]


def expanded(chosen: int, first_expansion: int) -> Finding:
    """Where the chosen epoch lies against the first expansion, both counted from 0."""
    where = "before" if chosen < first_expansion else "not before"
    return EXPANSION.finding(
        chosen - first_expansion,
        f"the chosen epoch {chosen + 1} lies {where} the first expansion, which follows epoch {first_expansion}",
    )
