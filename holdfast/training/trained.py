"""A trained model together with what is known of it, built again from what a run left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from holdfast.errors import CheckpointError
from holdfast.models.spec import ModelSpec
from holdfast.training.model_card import ModelCard


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model that can be used, and what must be known to use it.

    Attributes:
        model: with its trained weights, on the CPU, in evaluation mode.
        card: which inputs it takes and what its outputs mean.
        spec: what it is made from.
    """

    model: nn.Module
    card: ModelCard
    spec: ModelSpec

    @property
    def n_classes(self) -> int:
        """How many classes it tells apart."""
        return 2 if self.card.task == "margin" else self.spec.n_classes

    @property
    def class_names(self) -> tuple[str, ...]:
        """A name per class; its number where it has none."""
        return self.card.classes or tuple(str(place) for place in range(self.n_classes))

    def of_client(self, client: str, state: Mapping[str, Any]) -> TrainedModel:
        """The same network with a client's own weights."""
        model = rebuilt(self.spec, state, f"the personal model of {client}")
        return TrainedModel(model, replace(self.card, made={**(self.card.made or {}), "client": client}), self.spec)


def rebuilt(spec: ModelSpec, state: Mapping[str, Any], where: str) -> nn.Module:
    """The model that a spec describes, with these weights, in evaluation mode.

    Args:
        spec: what it is made from; weights that training started from are not needed.
        state: its state dict.
        where: what the message calls the weights.

    Raises:
        CheckpointError: if the weights are of another model.
    """
    model = spec.skeleton()
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{where} doesn't fit the model {spec.name} that the run describes ({reason})") from error
    return model.eval()
