"""Data that code of the user's own makes, named as ``package.module:make``: a map-style torch Dataset, or a function.

The object is a Dataset, `Examples`, `Splits`, a dict of Datasets by part (``{"train": ..., "test": ...}``), or a
function without arguments that returns one of these. Items are tuples or dicts, see `holdfast.data.dataset_items`; a
Dataset whose inputs differ in length has a method ``collate_inputs``, which makes a batch of a list of inputs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from holdfast.data.dataset_items import DatasetInputs, input_of, labels_of, values_of, words_beside
from holdfast.data.examples import Examples, Splits
from holdfast.data.own.handed_on import hand_on, take
from holdfast.data.own.options import HUB, ReadingOptions
from holdfast.data.own.parts import completed, stratified
from holdfast.data.own.source import PARTS
from holdfast.data.own.words import some
from holdfast.errors import ConfigError, DataError, counted
from holdfast.own_code import Wanted, is_installed, named_object, told_as_sentence

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_FORMS = "a torch Dataset, Examples, Splits, a dict of Datasets by part, or a function that returns one"


def is_object_name(name: str) -> bool:
    """Whether a name has the form of an object in a module."""
    return _NAME.fullmatch(name) is not None and not name.startswith(HUB)


def read_object(name: str, options: ReadingOptions) -> Splits:
    """The data that an object of the user's own code is or makes.

    Args:
        name: ``package.module:object``.
        options: `attribute` names an entry of dict items; shares and seed of a split that is made.

    Raises:
        ConfigError: if there is no such object, or it is something else.
        DataError: if an item can't be used.
    """
    made = take(name)
    made = _made(name) if made is None else made
    if isinstance(made, Splits):
        return made
    with told_as_sentence(f"the data that {name} gives can't be read"):
        if isinstance(made, Mapping):
            return _by_part(made, name, options)
        whole = made if isinstance(made, Examples) else _examples(made, options)
        groups = (whole.labels if whole.groups is None else whole.groups).numpy()
        shares = (options.validation_share, options.test_share)
        return _splits(whole, stratified(groups, shares, options.split_seed), name)


def first_input(name: str, options: ReadingOptions) -> Any:
    """One example of the data, to see what it is."""
    others = tuple(entry for entry in (options.label, *options.attribute) if entry)
    made = hand_on(name, _made(name))
    one = made.train if isinstance(made, Splits) else next(iter(made.values())) if isinstance(made, Mapping) else made
    with told_as_sentence(f"the data that {name} gives can't be read"):
        collate = getattr(one, "collate_inputs", None)
        inputs = one.inputs if isinstance(one, Examples) else DatasetInputs(one, collate, others)
        return inputs.gather(torch.zeros(1, dtype=torch.int64))


def _made(name: str) -> Any:
    wanted = Wanted(name, "data set", "--data", "make", "my_package.module:make_data")
    thing = named_object(wanted, lambda value, module: getattr(value, "__module__", None) == module)
    if not _is_data(thing) and callable(thing):
        if is_installed(thing):  # a run's configuration names its data, and may come from somebody else
            raise ConfigError(
                f"{name} is code of an installed package; call it in a function of your own and name that"
            )
        with told_as_sentence(f"{name} can't be called"):
            needed = [
                parameter.name
                for parameter in inspect.signature(thing).parameters.values()
                if parameter.default is parameter.empty
                and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            ]
            if needed:
                raise ConfigError(
                    f"{name} needs the argument {needed[0]!r}; name a function without arguments that gives it"
                )
            thing = thing()
    if not _is_data(thing):
        raise ConfigError(f"{name} gives a {type(thing).__name__}; give {_FORMS}")
    return thing


def _is_data(thing: Any) -> bool:
    if inspect.isclass(thing):
        return False
    return isinstance(thing, (Examples, Splits)) or (hasattr(thing, "__getitem__") and hasattr(thing, "__len__"))


def _by_part(parts: Mapping[str, Any], name: str, options: ReadingOptions) -> Splits:
    codes = [PARTS.get(str(part).lower(), -1) for part in parts]
    if min(codes, default=-1) < 0:
        raise DataError(f"{name} gives the parts {', '.join(map(str, parts))}; call them train, validation and test")
    joined = _Joined(list(parts.values()))
    whole = _examples(joined, options)
    given = np.repeat(np.asarray(codes, np.int64), [len(part) for part in parts.values()])
    groups = (whole.labels if whole.groups is None else whole.groups).numpy()
    shares = (options.validation_share, options.test_share)
    complete, notes = completed(given, groups, shares, options.split_seed)
    return _splits(whole, complete, name, tuple(notes))


def _examples(dataset: Any, options: ReadingOptions) -> Examples:
    attributes = None if not options.attribute else values_of(dataset, options.attribute[0])
    if len(options.attribute) > 1:
        raise DataError("items of a Dataset have one attribute; make the product of several in the Dataset")
    others = tuple(name for name in (options.label, *options.attribute) if name)
    inputs = DatasetInputs(dataset, getattr(dataset, "collate_inputs", None), others)
    labels = labels_of(inputs) if options.label is None else values_of(dataset, options.label)
    return Examples.of(inputs, labels, attributes=attributes)


def _splits(whole: Examples, codes: Any, name: str, notes: tuple[str, ...] = ()) -> Splits:
    train, validation, test = (whole.subset(np.flatnonzero(codes == part)) for part in range(3))
    if not all(map(len, (train, validation, test))):
        raise DataError(
            f"{name} gives {counted(len(whole), 'example')}, too few for three parts; give more, or a dict of parts"
        )
    sizes = "/".join(f"{len(part):,}" for part in (train, validation, test))
    about = f"{len(whole):,} items ({sizes} for training, validation, test); {whole.n_classes} classes"
    return Splits(name, train, validation, test, notes=(about, *notes, *_left_out(whole)))


def _left_out(whole: Examples) -> list[str]:
    """A line on the words in items that are no inputs, by the first item."""
    inputs = whole.inputs
    if not isinstance(inputs, DatasetInputs) or inputs.collate is not None:
        return []
    entries = input_of(inputs.dataset[0], 0, inputs.leave_out)
    words = words_beside(entries) if isinstance(entries, Mapping) else []
    return [f"left out: {some(words)} (words beside the input)"] if words else []


class _Joined:
    """Datasets one after another."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])
        collate = getattr(parts[0], "collate_inputs", None)
        if collate is not None:
            self.collate_inputs = collate

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, position: int) -> Any:
        part = int(np.searchsorted(self.ends, position, side="right"))
        return self.parts[part][position - (int(self.ends[part - 1]) if part else 0)]
