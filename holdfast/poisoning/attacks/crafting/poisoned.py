"""A poisoned set: which training examples were changed, by how much, for what aim; saved without pickles.

Perturbations are whole levels of 8-bit images, so what was trained on is what an image file would hold, and a saved set
gives the same training set again to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import Inputs
from holdfast.errors import DataError
from holdfast.poisoning.attacks.crafting.aims import Aim, aim_from_state
from holdfast.poisoning.attacks.crafting.pixels import pixels_at
from holdfast.training.state import load_state, save_state

_FORMAT = "holdfast-poisoned-set-1"


@dataclass(frozen=True, eq=False)
class PoisonedSet:
    """What an attack made of a training set.

    Attributes:
        attack: its name.
        ids: of the examples that were changed, int64 of shape (p,).
        perturbations: what was added to each, float32 of shape (p, channels, height, width).
        aim: what the attacker wants.
        epsilon: largest absolute perturbation that was allowed; None where the attack only prefers small ones.
        labels: new labels, int64 of shape (p,); None where labels were left, as in clean-label attacks.
        objective: what the attack minimised, at the end.
        trace: the same before each step, float32 of shape (steps,).
        settings: how it was made, as plain values.
    """

    attack: str
    ids: Tensor
    perturbations: Tensor
    aim: Aim
    epsilon: float | None = None
    labels: Tensor | None = None
    objective: float = float("nan")
    trace: Tensor = field(default_factory=lambda: torch.zeros(0))
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.perturbations) or len(torch.unique(self.ids)) != len(self.ids):
            raise DataError(
                f"{len(self.perturbations)} perturbations are for {len(torch.unique(self.ids))} examples; give one each"
            )
        if self.labels is not None and len(self.labels) != len(self.ids):
            raise DataError(f"there are {len(self.labels)} new labels for {len(self.ids)} poisons; give one each")
        if self.epsilon is not None and self.largest > self.epsilon * (1 + 1e-6):
            raise DataError(f"a perturbation of {self.largest:g} is over the budget of {self.epsilon:g}")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def largest(self) -> float:
        """The largest absolute perturbation that is there."""
        return float(self.perturbations.abs().max()) if len(self) else 0.0

    @property
    def adversarial_class(self) -> int:
        """What the attacker wants to be predicted."""
        return self.aim.adversarial_class

    def is_poison(self, examples: Examples) -> Tensor:
        """Which of the examples are poisons, bool of shape (n,). For reports only: no defence may see it."""
        return torch.isin(examples.ids, self.ids)

    def apply(self, examples: Examples) -> Examples:
        """The training set with poisons in the place of their bases.

        Args:
            examples: the clean training set, in pixels.

        Returns:
            The same ids in the same order.

        Raises:
            DataError: if a base is missing, is no image in pixels, or of another shape.
        """
        positions = positions_of(examples, self.ids)
        bases = pixels_at(examples, positions)
        if bases.shape != self.perturbations.shape:
            raise DataError(
                f"the perturbations have shape {tuple(self.perturbations.shape[1:])}, "
                f"the images {tuple(bases.shape[1:])}; give the data set that the poisons were made for"
            )
        rows = torch.full((len(examples),), -1)
        rows[positions] = torch.arange(len(self))
        labels = examples.labels
        if self.labels is not None:
            labels = labels.index_copy(0, positions, self.labels)
        return replace(examples, inputs=PerturbedInputs(examples.inputs, rows, self.perturbations), labels=labels)

    def poison(self, splits: Splits) -> Splits:
        """The splits with a poisoned training set."""
        return replace(splits, train=self.apply(splits.train))

    def only(self, ids: Tensor) -> PoisonedSet:
        """The poisons among `ids`; the other bases stay clean. For asking which poisons are effective."""
        wanted = torch.isin(self.ids, ids)
        labels = None if self.labels is None else self.labels[wanted]
        return replace(self, ids=self.ids[wanted], perturbations=self.perturbations[wanted], labels=labels)

    def save(self, path: Path | str) -> None:
        """Write the set as one safetensors file with a JSON header.

        Args:
            path: the file; its folder must exist.
        """
        state = {name: getattr(self, name) for name in _PLAIN}
        save_state({"format": _FORMAT, **state, "aim": self.aim.state_dict()}, Path(path))

    @classmethod
    def load(cls, path: Path | str) -> PoisonedSet:
        """Read what `save` wrote.

        Raises:
            CheckpointError: if there is no such file, or it is damaged.
            DataError: if it holds something else.
        """
        state = load_state(Path(path))
        if state.get("format") != _FORMAT:
            raise DataError(f"{path} holds no poisoned set; give a file that PoisonedSet.save wrote")
        return cls(**{name: state[name] for name in _PLAIN}, aim=aim_from_state(state["aim"]))


_PLAIN = ("attack", "ids", "perturbations", "epsilon", "labels", "objective", "trace", "settings")


@dataclass(frozen=True)
class PerturbedInputs:
    """Images of which some are perturbed when they are gathered.

    Attributes:
        parent: the clean images.
        rows: which perturbation each image gets, int64 of shape (n,); -1 is none.
        perturbations: what is added.
    """

    parent: Inputs
    rows: Tensor
    perturbations: Tensor

    def __len__(self) -> int:
        return len(self.parent)

    def gather(self, positions: Tensor) -> Tensor:
        """The images at `positions`."""
        batch = self.parent.gather(positions)
        assert isinstance(batch, Tensor)
        rows = self.rows[positions]
        places = (rows >= 0).nonzero().flatten()
        if len(places) == 0:
            return batch
        return batch.index_copy(0, places, (batch[places] + self.perturbations[rows[places]]).clamp(0, 1))


def positions_of(examples: Examples, ids: Tensor) -> Tensor:
    """Where the examples called `ids` are, int64 in the order of `ids`.

    Raises:
        DataError: if some are not there.
    """
    order = examples.ids.argsort()
    positions = order[torch.searchsorted(examples.ids[order], ids).clamp(max=len(examples) - 1)]
    missing = examples.ids[positions] != ids
    if bool(missing.any()):
        raise DataError(
            f"{int(missing.sum())} of {len(ids)} bases are not in the training set, such as id "
            f"{int(ids[missing][0])}; give the training set that the poisons were made for"
        )
    return positions
