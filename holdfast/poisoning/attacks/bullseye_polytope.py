"""Bullseye Polytope: poisons whose mean, in feature space, is the target.

Aghakhani et al., "Bullseye Polytope: A Scalable Clean-Label Poisoning Attack with Improved Transferability" (EuroS&P
2021, https://arxiv.org/abs/2005.00191). The strongest attack on transfer learning: a linear head that fits the poisons
has the target in their midst. Against fine-tuning, outputs of further layers are matched as well, since features move.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from holdfast.errors import ConfigError
from holdfast.poisoning.attacks.crafting.brewing import Brewed, Brewing, brew
from holdfast.poisoning.attacks.crafting.objectives import bullseye
from holdfast.poisoning.attacks.crafting.surrogates import features_at
from holdfast.poisoning.attacks.crafting.targeted import Crafting, TargetedAttack

#: Adam from the bases on. The published step of 0.04 is in normalised inputs, about 0.01 in pixels.
FEATURE_BREWING = Brewing(steps=1200, step_size=0.01, signed=False, decay=False, start="bases")


@dataclass(frozen=True)
class BullseyePolytope(TargetedAttack):
    """The attack.

    Attributes:
        brewing: how perturbations are searched.
        layers: further layers whose outputs are matched, by name: those of the last blocks for a victim that
            fine-tunes.
        dropout_draws: average over so many draws of the surrogates' dropout layers; 0 leaves dropout off.
        head: name of the surrogates' head where it can't be found.
    """

    brewing: Brewing = FEATURE_BREWING
    layers: tuple[str, ...] = ()
    dropout_draws: int = 0
    head: str | None = None

    def __post_init__(self) -> None:
        if self.dropout_draws < 0:
            raise ConfigError(f"dropout_draws is {self.dropout_draws}; give 0 or more")

    def search(self, work: Crafting) -> Brewed:
        """Move the poisons' mean features to those of the one target."""
        models, target = work.models, work.targets.one("Bullseye Polytope").to(work.device)
        known = [self._features(model, target) for model in models]

        def objective(poisons: Tensor, stream: torch.Generator) -> Tensor:
            if not self.dropout_draws:
                return self._distance(models, known, poisons)
            with torch.random.fork_rng(devices=[]), _dropping(models):
                torch.manual_seed(int(torch.randint(2**62, (), generator=stream)))
                draws = [
                    self._distance(models, [self._features(model, target) for model in models], poisons)
                    for _ in range(self.dropout_draws)
                ]
            return torch.stack(draws).mean()

        return brew(objective, work.images, self.brewing, seed=work.seed, progress=work.progress)

    def _distance(self, models: list[nn.Module], goals: list[list[Tensor]], poisons: Tensor) -> Tensor:
        """Mean over networks and layers of the distance from the bullseye."""
        terms = [
            bullseye(features, goal)
            for model, known in zip(models, goals, strict=True)
            for features, goal in zip(features_at(model, poisons, self.layers, self.head), known, strict=True)
        ]
        return torch.stack(terms).mean()

    def _features(self, model: nn.Module, target: Tensor) -> list[Tensor]:
        with torch.no_grad():
            return features_at(model, target, self.layers, self.head)


@contextmanager
def _dropping(models: list[nn.Module]) -> Iterator[None]:
    """Dropout as in training inside the block, everything else as it is."""
    layers = [module for model in models for module in model.modules() if isinstance(module, _DropoutNd)]
    if not layers:
        raise ConfigError("dropout_draws average over dropout and the surrogates have none; set it to 0")
    for layer in layers:
        layer.train()
    try:
        yield
    finally:
        for layer in layers:
            layer.eval()
