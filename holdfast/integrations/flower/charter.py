"""What a federation owns: its model, the shape and the meaning of its data, and how much a node may send.

Written once, by whoever starts the federation, into the app that everybody runs. The server builds its model from the
charter and nobody votes: a node compares its own model and data with it before it joins, and says in a sentence what
differs; the server compares the digest of the charter that the node has followed.

A model of the federation's own (``my_package.nets:Net``) is named with the version of its package and a hash of the
package's source, which can be computed without importing any of it: a node decides beforehand which code it runs.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.data.own import stored
from holdfast.errors import CheckpointError, ConfigError, FederationError
from holdfast.files import plain_values
from holdfast.own_code import current_directory_importable

if TYPE_CHECKING:
    from torch import nn

    from holdfast.data.clients.clients import Clients
    from holdfast.data.own.schema import Schema

FORMAT = "holdfast-charter-1"
#: Bounds: parameters by name, their dimensions, a side, classes, bytes of a charter and of a message.
_MOST_NAMES, _DIMENSIONS, _SIDE, _MOST_CLASSES = 10**5, 8, 2**31, 10**6
_MOST_TEXT, _MOST_MESSAGE = 16 * 2**20, 2**40
_TASKS = ("classes", "margin")
#: What a reply has besides numbers: heads of records and arrays.
OVERHEAD = 2**20


@dataclass(frozen=True)
class ModelIdentity:
    """Which model a federation trains.

    Attributes:
        name: a name of `holdfast.models.MODELS`, or ``package.module:Class``.
        args: arguments of the network's own.
        package: the first part of the module, for code of one's own; empty for networks of holdfast.
        version: of the installed distribution that brings the package; empty if none does.
        sha256: of the package's Python files, see `source_hash`.
    """

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    package: str = ""
    version: str = ""
    sha256: str = ""

    @classmethod
    def of(cls, name: str, args: Mapping[str, Any] | None = None) -> ModelIdentity:
        """The identity of a model as it is installed here; nothing is imported.

        Raises:
            ConfigError: if a package of one's own is not there.
        """
        plain = plain_values(dict(args or {}))
        package = package_of(name)
        return cls(name, plain, package, *((_version(package), source_hash(package)) if package else ("", "")))

    def check_here(self) -> None:
        """Refuse to go on if this machine's code is not the federation's.

        Raises:
            FederationError: if it is missing or other code.
        """
        if not self.package:
            return
        try:
            here = ModelIdentity.of(self.name, self.args)
        except ConfigError as error:
            raise FederationError(f"the federation trains {self.name}: {error}") from error
        if here.sha256 != self.sha256:
            raise FederationError(
                f"the federation trains {self.name} of {self.package} {self.version or '(no version)'} with the source "
                f"{self.sha256[:16]}, and the one here is {here.version or '(no version)'} with {here.sha256[:16]}; "
                "install the same package"
            )


@dataclass(frozen=True)
class Charter:
    """What a federation owns.

    Attributes:
        model: which.
        parameters: name, shape and dtype of every tensor of its state dictionary, in order.
        input_shape: of one input.
        classes: how many.
        task: how outputs are scored, ``classes`` or ``margin``.
        class_names: in the order of the model's outputs; empty where classes have no names.
        schema: how rows of a table, images or texts become inputs, as `Schema.to_json` writes it; None where nodes
            bring arrays.
        most_bytes: that a node may send in one reply.
    """

    model: ModelIdentity
    parameters: tuple[tuple[str, tuple[int, ...], str], ...]
    input_shape: tuple[int, ...]
    classes: int
    task: str = "classes"
    class_names: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    most_bytes: int = 2**30

    @classmethod
    def of(cls, model: nn.Module, identity: ModelIdentity, clients: Clients, most_bytes: int = 2**30) -> Charter:
        """The charter of a federation that trains `model` on data like that of `clients`."""
        return cls(
            identity,
            parameters_of(model),
            clients.input_shape,
            clients.classes,
            clients.task,
            clients.class_names,
            None if clients.schema is None else clients.schema.to_json(),
            most_bytes,
        )

    @property
    def outputs(self) -> int:
        """How many outputs the model has."""
        return 1 if self.task == "margin" else self.classes

    @property
    def digest(self) -> str:
        """SHA-256 of all of it: two charters with one digest are the same."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()

    def read_schema(self) -> Schema | None:
        """The schema that nodes read their own files with; None where they bring arrays.

        Raises:
            CheckpointError: if it is none.
        """
        from holdfast.data.own.schema import Schema  # noqa: PLC0415 - brings pyarrow

        return None if self.schema is None else Schema.from_json(dict(self.schema))

    # ---------------------------------------------------------------------------------------------- comparing

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model with other parameters.

        Raises:
            FederationError: which names the first that differs.
        """
        here, there = parameters_of(model), self.parameters
        for mine, theirs in zip(here, there, strict=False):
            if mine != theirs:
                raise FederationError(
                    f"the model here has {_spelled(mine)} where the federation's has {_spelled(theirs)}; install what "
                    "the federation's charter names"
                )
        if len(here) != len(there):
            raise FederationError(f"the model here has {len(here)} tensors and the federation's {len(there)}")

    def check_data(self, clients: Clients) -> None:
        """Refuse data of another shape or meaning.

        Raises:
            FederationError: which says what differs.
        """
        for what, here, there in (
            ("inputs of the shape", clients.input_shape, self.input_shape),
            ("the number of classes", clients.classes, self.classes),
            ("the task", clients.task, self.task),
        ):
            if here != there:
                raise FederationError(f"the data here has {what} {here}, and the federation {there}; check the data")
        if clients.class_names and self.class_names and clients.class_names != self.class_names:
            odd = next(
                (pair for pair in zip(clients.class_names, self.class_names, strict=False) if pair[0] != pair[1]),
                (len(clients.class_names), len(self.class_names)),
            )
            raise FederationError(
                f"the data here has the class {odd[0]!r} where the federation has {odd[1]!r}; read it with the "
                "federation's schema"
            )

    # ---------------------------------------------------------------------------------------------- plain values

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "format": FORMAT,
            "model": {
                "name": self.model.name,
                "args": dict(self.model.args),
                "package": self.model.package,
                "version": self.model.version,
                "sha256": self.model.sha256,
            },
            "parameters": [[name, list(shape), dtype] for name, shape, dtype in self.parameters],
            "input_shape": list(self.input_shape),
            "classes": self.classes,
            "task": self.task,
            "class_names": list(self.class_names),
            "schema": None if self.schema is None else json.loads(json.dumps(self.schema)),
            "most_bytes": self.most_bytes,
        }

    def to_json(self) -> str:
        """A text for the app's configuration or a file."""
        return json.dumps(self.as_dict())

    @classmethod
    def from_json(cls, text: str) -> Charter:
        """What `to_json` gave.

        Raises:
            ConfigError: if it is something else.
        """
        try:
            if len(text) > _MOST_TEXT:
                raise ValueError(f"it has {len(text):,} characters")
            values = json.loads(text)
            if values["format"] != FORMAT or values["task"] not in _TASKS:
                raise ValueError(f"its format is {values['format']!r:.40} and its task {values['task']!r:.40}")
            if len(values["parameters"]) > _MOST_NAMES:
                raise ValueError("it has too many parameters")
            charter = cls(
                _identity(values["model"]),
                stored.each(_parameter, values["parameters"]),
                _shape(values["input_shape"]),
                stored.count(_MOST_CLASSES)(values["classes"]),
                values["task"],
                stored.each(stored.text, values["class_names"]),
                values["schema"],
                stored.count(_MOST_MESSAGE)(values["most_bytes"]),
            )
            charter.read_schema()
            return charter
        except (KeyError, TypeError, ValueError, RecursionError, CheckpointError) as error:
            raise ConfigError(
                f"this isn't the charter of a federation ({error}); write it with federation init"
            ) from error


def parameters_of(model: nn.Module) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    """Name, shape and dtype of every tensor of a model's state dictionary."""
    return tuple(
        (name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in model.state_dict().items()
    )


def package_of(name: str) -> str:
    """The package that a model of one's own is in; empty for networks that are known by name."""
    return name.partition(":")[0].partition(".")[0] if ":" in name and not name.startswith(("hf:", "timm:")) else ""


def source_hash(package: str) -> str:
    """SHA-256 of the Python files of a package, by their places in it; the package is not imported.

    Raises:
        ConfigError: if there is no such package.
    """
    digest = hashlib.sha256()
    for place, file in _sources(package):
        content = file.read_bytes()
        digest.update(f"{place}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _sources(package: str) -> list[tuple[str, Path]]:
    try:
        with current_directory_importable():
            found = importlib.util.find_spec(package) if package.isidentifier() else None
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise ConfigError(f"there is no package {package!r} here; install it, or start in the folder that has it")
    roots = [Path(root) for root in found.submodule_search_locations or ()]
    if not roots:
        return [(f"{package}.py", Path(str(found.origin)))]
    return sorted((file.relative_to(root).as_posix(), file) for root in roots for file in root.rglob("*.py"))


def _version(package: str) -> str:
    names = importlib.metadata.packages_distributions().get(package, [])
    return importlib.metadata.version(names[0]) if names else ""


def _identity(values: Any) -> ModelIdentity:
    if not isinstance(values["args"], dict):
        raise TypeError("the model's arguments aren't a mapping")
    name, package, version, sha256 = (stored.text(values[key]) for key in ("name", "package", "version", "sha256"))
    if package != package_of(name) or bool(package) != bool(sha256):
        raise ValueError(f"the model {name!r:.60} and the package {package!r:.60} don't belong together")
    return ModelIdentity(name, values["args"], package, version, sha256)


def _parameter(values: Any) -> tuple[str, tuple[int, ...], str]:
    name, shape, dtype = values
    return stored.text(name), _shape(shape), stored.text(dtype)


def _shape(values: Any) -> tuple[int, ...]:
    sides = stored.each(stored.count(_SIDE), values)
    if len(sides) > _DIMENSIONS:
        raise ValueError(f"a shape of {len(sides)} dimensions")
    return sides


def _spelled(parameter: tuple[str, tuple[int, ...], str]) -> str:
    name, shape, dtype = parameter
    return f"{name} ({dtype}, {' x '.join(map(str, shape)) or 'one number'})"
