"""What a model is made from, in plain values: the same spec gives the same model, today and when a run is read again.

A name stands for one of the networks of `holdfast.models.table`, for code of the user's own (``my_package.net:Net``),
or for a model of transformers or timm (``hf:NAME``, ``timm:NAME``). Everything that builds a model by name goes through
`ModelSpec.build`: commands, experiments, `holdfast.models.build`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from holdfast.errors import CheckpointError, ConfigError
from holdfast.files import plain_values
from holdfast.models.arguments import Call, call_of, refuse_unknown, written
from holdfast.models.first_pass import fill_lazy_layers
from holdfast.models.own_models import own_factory
from holdfast.models.starting_weights import check_public_weights, hub_source, load_weights, locate
from holdfast.models.table import ADAPTERS, HUB_MODELS, MODELS
from holdfast.own_code import told_as_sentence


@dataclass(frozen=True)
class ModelSpec:
    """What a model is made from.

    Attributes:
        name: a key of `holdfast.models.MODELS`, ``module:object``, ``hf:NAME`` or ``timm:NAME``.
        input_shape: shape of one input, without the batch dimension.
        n_classes: how many logits.
        args: arguments of the network's own, plain values; see `holdfast.models.arguments` for what else it is given.
        seed: decides the random start.
        weights: a ``.safetensors`` file or a torch file to start from, or ``"imagenet"`` for the public weights of
            `IMAGENET_WEIGHTS`. For `HUB_MODELS` also ``"hub"``, or a folder in the hub's form. A head for another
            number of classes is left at its random start, and logged.
        head: name of the last linear layer where it can't be found, see `holdfast.models.find_head`.

    Example:
        >>> spec = ModelSpec("mlp", (3, 10, 10), 2, seed=1)
        >>> ModelSpec.from_json(spec.to_json()) == spec
        True
    """

    name: str
    input_shape: tuple[int, ...]
    n_classes: int
    args: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    weights: str | None = None
    head: str | None = None

    def build(self, root: Path | str | None = None) -> nn.Module:
        """Make the model.

        Args:
            root: the data root, whose ``weights/`` holds public weights, see `holdfast.data.catalog.data_root`.

        Returns:
            The model, on the CPU, in training mode; the caller's global generator is left as it was.

        Raises:
            ConfigError: if the name is unknown, the shape doesn't suit, or the file of weights isn't there.
            CheckpointError: if the weights can't be read or belong to another network.
        """
        if self.n_classes < 1:
            raise ConfigError(f"a model needs at least one class and was asked for {self.n_classes}")
        self._expect_name()
        source = hub_source(self.name, self.weights, root)
        path = None if source is not None else locate(self.name, self.weights, root)
        model = self._made(source)
        if path is not None:
            if self.weights == "imagenet":
                check_public_weights(path)
            load_weights(model, path, self.head)
        return model

    def skeleton(self) -> nn.Module:
        """The model at a random start, whatever `weights` say: to be filled from a checkpoint."""
        self._expect_name()
        return self._made(None, pretrained=False)

    @property
    def filled(self) -> Mapping[str, Any]:
        """Arguments that code of the user's own gets from the data, because it has parameters of such names."""
        if not self._is_own:
            return {}
        factory = self._imported()
        return {} if isinstance(factory, nn.Module) else self._call(factory).filled

    @property
    def _is_own(self) -> bool:
        return ":" in self.name and self.name not in MODELS and self.name.partition(":")[0] not in ADAPTERS

    def _expect_name(self) -> None:
        if self.name in MODELS or ":" in self.name:
            return
        if "." in self.name:
            module, _, last = self.name.rpartition(".")
            raise ConfigError(
                f"there is no model {self.name!r}; one of your own is named with a colon: {module or 'module'}:{last}"
            )
        MODELS.expect(self.name)

    def _made(self, source: Path | str | None, *, pretrained: bool = True) -> nn.Module:
        factory = self._imported() if self._is_own else None
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(self.seed)
            if factory is not None:
                return self._own(factory)
            if self.name in MODELS:
                return self._registered(source)
            kind, _, name = self.name.partition(":")
            return ADAPTERS[kind](name, self.input_shape, self.n_classes, self.args, pretrained=pretrained)

    def _registered(self, source: Path | str | None) -> nn.Module:
        factory: Any = MODELS[self.name] if source is None else HUB_MODELS[self.name]
        data = (self.input_shape, self.n_classes) if source is None else (self.input_shape, self.n_classes, source)
        if not self.args:
            shape = " x ".join(map(str, self.input_shape))
            with told_as_sentence(f"{self.name} can't be made for inputs of {shape} and {self.n_classes} classes"):
                return cast(nn.Module, factory(*data))
        taken = list(inspect.signature(factory).parameters)[len(data) :]
        refuse_unknown(self.args, dict.fromkeys(name for name in taken if name != "source"), self.name)
        with told_as_sentence(f"{self.name} can't be made with {written(self.args)}"):
            return cast(nn.Module, factory(*data, **self.args))

    def _imported(self) -> nn.Module | Callable[..., Any]:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(0)  # a module that makes models when it is imported always makes these
            return own_factory(self.name)

    def _own(self, factory: nn.Module | Callable[..., Any]) -> nn.Module:
        if isinstance(factory, nn.Module):
            if self.args:
                raise ConfigError(f"{self.name} is a model already and takes no arguments; leave --model-args out")
            with told_as_sentence(f"{self.name} can't be copied"):
                model = copy.deepcopy(factory)
        else:
            call = self._call(factory)
            with told_as_sentence(f"{self.name} can't be made with {written({**call.filled, **self.args})}"):
                model = call()
        if not isinstance(model, nn.Module):
            raise ConfigError(f"{self.name} returned {type(model).__name__}, not a nn.Module; return the network")
        if not model.training:
            model.train()
        fill_lazy_layers(model, self.input_shape, self.name)
        return model.cpu()

    def _call(self, factory: Callable[..., Any]) -> Call:
        with told_as_sentence(f"the arguments of {self.name} can't be made from {written(self.args)}"):
            return call_of(factory, self.args, self.input_shape, self.n_classes, title=self.name)

    def to_json(self) -> dict[str, Any]:
        """The spec as plain values, as JSON and YAML files hold them."""
        return dict(plain_values(asdict(self)))

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ModelSpec:
        """The spec that `to_json` gave.

        Raises:
            CheckpointError: if a part is missing, of another kind, or unknown.
        """
        unknown = set(stored) - {f.name for f in fields(cls)}
        try:
            if unknown:
                raise ValueError(f"unknown {', '.join(sorted(map(str, unknown)))}")
            weights, head = stored.get("weights"), stored.get("head")
            return cls(
                str(stored["name"]),
                tuple(int(size) for size in stored["input_shape"]),
                int(stored["n_classes"]),
                {str(key): value for key, value in stored.get("args", {}).items()},
                int(stored.get("seed", 0)),
                None if weights is None else str(weights),
                None if head is None else str(head),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"the description of a model is not one that holdfast wrote ({error}); train again, or copy the whole "
                "run folder"
            ) from error
