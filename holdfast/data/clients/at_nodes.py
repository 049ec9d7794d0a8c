"""Data that only the nodes of a federation have: it stands where a server's configuration names its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from holdfast.data.clients.federations import FederatedData, TrainingRecipe
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.data.clients.clients import Clients


@dataclass(frozen=True)
class AtNodes(FederatedData):
    """Data of the nodes, without a recipe: all settings are in the options that the federation was founded with."""

    name = "nodes"
    summary = "data that only the nodes of a federation have"
    recipe: ClassVar[TrainingRecipe] = TrainingRecipe("mlp", 0.05, 16, rounds=100, cohort=10)

    def load(self, root: Path, seed: int = 0) -> Clients:
        """There is nothing to read.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("the data is at the nodes; each reads its own, see `holdfast federation join`")
