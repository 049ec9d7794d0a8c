"""What a model is made from, in plain values: the same spec gives the same model, today and when a run is read again.

A name stands for one of the networks of `holdfast.models.table`. Everything that builds a model by name goes through
`ModelSpec.build`: commands, experiments, `holdfast.models.build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.errors import CheckpointError, ConfigError
from holdfast.files import plain_values
from holdfast.models.starting_weights import hub_source, load_weights, locate
from holdfast.models.table import HUB_MODELS, MODELS


@dataclass(frozen=True)
class ModelSpec:
    """What a model is made from.

    Attributes:
        name: a key of `holdfast.models.MODELS`.
        input_shape: shape of one input, without the batch dimension.
        n_classes: how many logits.
        args: arguments of the network's own, plain values.
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
        MODELS.expect(self.name)
        if self.n_classes < 1:
            raise ConfigError(f"a model needs at least one class and was asked for {self.n_classes}")
        source = hub_source(self.name, self.weights, root)
        path = None if source is not None else locate(self.name, self.weights, root)
        model = self._started(source)
        if path is not None:
            load_weights(model, path, self.head)
        return model

    def skeleton(self) -> nn.Module:
        """The model without the weights that it would start from, to be filled from a checkpoint: needs no such file."""
        return self._started(None)

    def _started(self, source: Path | str | None) -> nn.Module:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(self.seed)
            if source is not None:
                return HUB_MODELS[self.name](self.input_shape, self.n_classes, source)
            return MODELS[self.name](self.input_shape, self.n_classes, **self.args)

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
