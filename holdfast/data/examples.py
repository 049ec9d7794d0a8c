"""Examples have names: a set of inputs and labels in which every example keeps a stable integer id.

What a method selects, drops or weighs can then always be shown and saved. Attributes, groups and sources are int64
vectors aligned with the examples, never dictionaries of lists: a group is looked up in constant time, and nothing can
fall out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.dataset_items import Collate, DatasetInputs, labels_of, look_at_some
from holdfast.data.inputs import InputBatch, Inputs, SubsetInputs, TensorInputs
from holdfast.errors import DataError

if TYPE_CHECKING:
    from holdfast.data.own.schema import Schema

IntVector = Tensor | np.ndarray | Sequence[int]
#: What an argument that must be examples is told to be, by whoever refuses something else.
EXAMPLES_WANTED = (
    "Examples, which Examples.of(dataset) makes of a torch Dataset and Examples.of(inputs, labels) of arrays"
)
#: So many classes may be empty, whatever their number.
_FEW = 8

#: Classes or attribute values: whole numbers from 0, or words, which are numbered in the order of the alphabet.
Values = IntVector | Sequence[str]


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Inputs and labels with stable ids, and what is known about each example.

    Use `Examples.of` to build one from arrays or from a torch Dataset; the constructor expects checked tensors.

    Attributes:
        inputs: where the inputs live, see `holdfast.data.inputs`.
        labels: class of each example, int64 of shape (n,), from 0.
        ids: stable name of each example, int64 of shape (n,), unique.
        attributes: value of the spurious attribute, int64 of shape (n,), where it is known.
        groups: group of each example, int64 of shape (n,); by default label x attribute.
        sources: where each example came from, int64 of shape (n,).
        memberships: overlapping evaluation groups, bool of shape (n, groups), as CivilComments has them.
        class_names: a name per class.
        attribute_names: a name per attribute value.
        group_names: a name per group (per column of `memberships` where there is one).
        source_names: a name per source.
        names: what each example is called outside of here, such as its file, of shape (n,).
    """

    inputs: Inputs
    labels: Tensor
    ids: Tensor
    attributes: Tensor | None = None
    groups: Tensor | None = None
    sources: Tensor | None = None
    memberships: Tensor | None = None
    class_names: tuple[str, ...] = ()
    attribute_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()
    source_names: tuple[str, ...] = ()
    names: NDArray[Any] | None = None

    @classmethod
    def of(
        cls,
        inputs: Any,
        labels: Values | None = None,
        *,
        attributes: Values | None = None,
        groups: IntVector | None = None,
        sources: IntVector | None = None,
        memberships: Tensor | np.ndarray | None = None,
        ids: IntVector | None = None,
        class_names: Sequence[str] | None = None,
        attribute_names: Sequence[str] | None = None,
        group_names: Sequence[str] | None = None,
        source_names: Sequence[str] | None = None,
        names: Sequence[str] | NDArray[Any] | None = None,
        transform: Callable[[Tensor], Tensor] | None = None,
        collate: Collate | None = None,
    ) -> Examples:
        """Build a checked set from a tensor, an array, a dict of tensors, `Inputs`, or a map-style torch Dataset.

        Args:
            inputs: the inputs. A Dataset is read lazily; its items are tuples ``(x, y, ...)`` or dicts, and an ``x``
                may be a tensor, an array, a PIL image, or a dict of these.
            labels: class per example, as a number or a word; may be omitted for a Dataset, whose items are then read
                once for their labels.
            attributes: spurious attribute per example.
            groups: group per example; label x attribute where only attributes are given.
            sources: origin per example.
            memberships: bool matrix (n, groups) for groups that overlap.
            ids: stable names; ``0..n-1`` where omitted.
            class_names: a name per class.
            attribute_names: a name per attribute value.
            group_names: a name per group.
            source_names: a name per source.
            names: what each example is called outside of here.
            transform: applied to each gathered batch of an in-memory tensor.
            collate: makes a batch of a list of inputs of a Dataset, where they can't be stacked because they differ in
                length.

        Returns:
            The set.

        Raises:
            DataError: if there are no inputs, lengths disagree, a label is no class (a fraction, a vector), is negative
                or has no class name, most of the classes up to the largest label don't occur, or an id occurs twice.

        Example:
            >>> import torch
            >>> train = Examples.of(torch.randn(4, 3), [0, 1, 1, 0], attributes=[0, 0, 1, 1])
            >>> train.groups.tolist(), train.group_names
            ([0, 2, 3, 1], ('y0/a0', 'y0/a1', 'y1/a0', 'y1/a1'))
        """
        stored = _as_inputs(inputs, transform, collate)
        n = len(stored)
        if n == 0:
            raise DataError("there are no examples: the inputs are empty; give at least one")
        if isinstance(stored, DatasetInputs):
            if labels is None:
                labels = labels_of(stored)
            else:
                look_at_some(stored)
        labels, class_names = _numbered("label", labels, class_names)
        attributes, attribute_names = _numbered("attribute", attributes, attribute_names)
        y = _vector("labels", labels, n)
        a = None if attributes is None else _vector("attributes", attributes, n)
        g = None if groups is None else _vector("groups", groups, n)
        if class_names is None:
            _check_gaps(y)
        classes = _names("label", y, class_names, "y")
        values = () if a is None else _names("attribute", a, attribute_names, "a")
        member = None if memberships is None else torch.as_tensor(memberships, dtype=torch.bool)
        if member is not None and (member.ndim != 2 or len(member) != n):
            raise DataError(
                f"memberships have shape {tuple(member.shape)}; give a row per example, of {n}, and a column per group"
            )
        if g is None and a is not None:
            g = y * len(values) + a
            of_groups = group_names or [f"{c}/{v}" for c in classes for v in values]
        else:
            of_groups = group_names or []
        if member is not None:
            of_groups = _count("column of memberships", member.shape[1], of_groups, "g")
        elif g is not None:
            of_groups = _names("group", g, of_groups or None, "g")
        called = None if names is None else np.asarray(names, object)
        if called is not None and called.shape != (n,):
            raise DataError(f"names have shape {called.shape} for {n} examples; give one name per example")
        return cls(
            inputs=stored,
            labels=y,
            ids=torch.arange(n) if ids is None else _unique_ids(_vector("ids", ids, n)),
            attributes=a,
            groups=g,
            sources=None if sources is None else _vector("sources", sources, n),
            memberships=member,
            class_names=tuple(classes),
            attribute_names=tuple(values),
            group_names=tuple(of_groups),
            source_names=tuple(source_names or ()),
            names=called,
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        """How much there is of it: a notebook shows this in place of the tensors, and no input is read for it."""
        groups = f", {self.n_groups} groups" if self.n_groups else ""
        return f"Examples({len(self):,} examples, {self.n_classes} classes{groups}; {type(self.inputs).__name__})"

    @property
    def n_classes(self) -> int:
        """How many classes there are, also those that this part of the data lacks."""
        return len(self.class_names)

    @property
    def n_groups(self) -> int:
        """How many groups there are, also those that this part of the data lacks; 0 where groups are unknown."""
        return len(self.group_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input as a model gets it; of named ones, such as token ids and masks, the shape they share."""
        inputs = self.inputs.gather(torch.empty(0, dtype=torch.int64))  # an empty batch: no image is decoded for it
        named = inputs if isinstance(inputs, dict) else {"inputs": inputs}
        shapes = {name: tuple(part.shape[1:]) for name, part in named.items()}
        if len(set(shapes.values())) != 1:
            raise DataError(f"the named inputs have shapes {shapes}, not a single one; build the model by hand")
        return next(iter(shapes.values()))

    def require_groups(self, wanted_by: str) -> Tensor:
        """The groups, or an error that says who needs them and how to give them.

        Args:
            wanted_by: who asks, for the message.

        Returns:
            int64 of shape (n,).
        """
        if self.groups is None:
            raise DataError(
                f"{wanted_by} needs a group per training example and this data set has none; "
                "give attributes or groups, or use a method that infers them"
            )
        return self.groups

    def group_counts(self) -> Tensor:
        """How many examples each group has, int64 of shape (groups,)."""
        if self.memberships is not None:
            return self.memberships.sum(0)
        return torch.bincount(self.require_groups("counting groups"), minlength=self.n_groups)

    def class_counts(self) -> Tensor:
        """How many examples each class has, int64 of shape (classes,)."""
        return torch.bincount(self.labels, minlength=self.n_classes)

    def gather(self, positions: Tensor) -> tuple[InputBatch, Tensor]:
        """Inputs and labels at `positions`, int64, in that order."""
        return self.inputs.gather(positions), self.labels.index_select(0, positions)

    def subset(self, positions: IntVector) -> Examples:
        """The examples at `positions`, which keep their ids."""
        chosen = torch.as_tensor(positions, dtype=torch.int64)

        def pick(vector: Tensor | None) -> Tensor | None:
            return None if vector is None else vector.index_select(0, chosen)

        return replace(
            self,
            inputs=SubsetInputs(self.inputs, chosen),
            labels=self.labels.index_select(0, chosen),
            ids=self.ids.index_select(0, chosen),
            attributes=pick(self.attributes),
            groups=pick(self.groups),
            sources=pick(self.sources),
            memberships=pick(self.memberships),
            names=None if self.names is None else self.names[chosen.numpy()],
        )

    def called(self, position: int) -> str:
        """How messages call an example: its id, and its name where it has one."""
        number = f"example {int(self.ids[position])}"
        return number if self.names is None else f"{number} ({self.names[position]})"

    def with_groups(self, groups: IntVector, names: Sequence[str] | None = None) -> Examples:
        """The same examples under other groups, for instance inferred ones.

        Args:
            groups: group per example.
            names: a name per group.

        Returns:
            A new set that shares inputs and labels with this one.
        """
        g = _vector("groups", groups, len(self))
        return replace(self, groups=g, memberships=None, group_names=tuple(_names("group", g, names, "g")))


@dataclass(frozen=True, eq=False)
class Splits:
    """The three parts of a data set.

    Attributes:
        name: the data set's name.
        train: what is learned from.
        validation: what the model is chosen on.
        test: what is reported.
        notes: what was guessed or changed when the data was read, a line each.
        schema: how to read other data in the same way, where the data is a user's own.
    """

    name: str
    train: Examples
    validation: Examples
    test: Examples
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    schema: Schema | None = field(default=None, kw_only=True)


def _as_inputs(inputs: Any, transform: Callable[[Tensor], Tensor] | None, collate: Collate | None) -> Inputs:
    if isinstance(inputs, np.ndarray):
        inputs = torch.from_numpy(inputs)
    if isinstance(inputs, (Tensor, dict)):
        return TensorInputs(inputs, transform)
    if hasattr(inputs, "gather"):
        stored: Inputs = inputs
        return stored
    if hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__"):
        return DatasetInputs(inputs, collate)
    raise DataError(
        f"inputs of type {type(inputs).__name__} can't be indexed; give a tensor, an array, a dict of tensors, "
        "or a map-style Dataset with __len__ and __getitem__"
    )


def _numbered(what: str, values: Any, names: Sequence[str] | None) -> tuple[Any, Sequence[str] | None]:
    """Words as numbers: their places among `names`, or in the order of the alphabet."""
    if values is None or isinstance(values, Tensor) or not len(values):
        return values, names
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values, names
    given = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if not all(isinstance(word, str) for word in given):
        return values, names
    words = np.asarray(given)
    if names is None:
        distinct, codes = np.unique(words.astype(str), return_inverse=True)
        return codes.astype(np.int64), tuple(map(str, distinct))
    place = {name: number for number, name in enumerate(names)}
    unknown = [word for word in words.tolist() if word not in place]
    if unknown:
        raise DataError(f"the {what} {unknown[0]!r} is not among the names {', '.join(names)}; name each {what}")
    return np.array([place[word] for word in words.tolist()], np.int64), names


def _check_gaps(labels: Tensor) -> None:
    """Refuse labels that make mostly empty classes: 0, 1 and 1000 are three classes and not 1,001."""
    count = int(labels.max()) + 1 if len(labels) else 0
    if count <= _FEW:
        return
    # A count for each class takes no sorting, but as much memory as there are classes.
    counted = count <= len(labels)
    occurring = int(torch.bincount(labels.clamp(min=0)).count_nonzero()) if counted else len(torch.unique(labels))
    if count > 2 * occurring + _FEW:
        raise DataError(
            f"the labels go up to {count - 1}, and {occurring} of these {count:,} classes occur; number the "
            "classes from 0 without gaps, give their names as labels, or all class_names"
        )


def _vector(what: str, values: Any, n: int) -> Tensor:
    if values is None:
        raise DataError(f"{what} are missing; give one integer per example")
    try:
        vector = torch.as_tensor(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} must be whole numbers, and these can't be read as numbers: {error}") from error
    if vector.is_complex() or (vector.is_floating_point() and not torch.equal(vector, vector.round())):
        raise DataError(f"{what} must be whole numbers; a quantity (regression) is not supported, cut it into classes")
    if vector.ndim != 1 or len(vector) != n:
        raise DataError(f"{what} have shape {tuple(vector.shape)} for {n} examples; give one integer per example")
    return vector.to(torch.int64)


def _names(what: str, values: Tensor, names: Sequence[str] | None, prefix: str) -> list[str]:
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, -1)
    if low < 0:
        at = int(values.argmin())
        raise DataError(f"{what} {low} of the example at position {at} is negative; number them from 0")
    if names is not None and high >= len(names):
        at = int(values.argmax())
        raise DataError(
            f"{what} {high} of the example at position {at} is out of range: there are {len(names)} names, "
            f"so the largest {what} is {len(names) - 1}"
        )
    return _count(what, high + 1, names, prefix)


def _count(what: str, count: int, names: Sequence[str] | None, prefix: str) -> list[str]:
    if names and len(names) < count:
        raise DataError(f"there are {len(names)} names for {count} values of {what}; name each")
    return list(names) if names else [f"{prefix}{i}" for i in range(count)]


def _unique_ids(ids: Tensor) -> Tensor:
    if len(torch.unique(ids)) != len(ids):
        values, counts = torch.unique(ids, return_counts=True)
        raise DataError(f"id {int(values[counts.argmax()])} occurs {int(counts.max())} times; an id names one example")
    return ids
