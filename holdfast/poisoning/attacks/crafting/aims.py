"""What an attacker wants: some images, or every image of a class that carries a patch, taken for another class.

An aim says what the victim is shown when the attack is judged, so that all attacks are judged by one function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.poisoning.attacks.crafting.pixels import pixels_at
from holdfast.streams import torch_stream

#: Top and left of a patch; or anywhere, drawn anew for every image; or the corner.
Place = tuple[int, int] | Literal["random", "bottom-right"]


@dataclass(frozen=True, eq=False)
class Targets:
    """Images that shall be taken for the adversarial class; most attacks have one.

    Attributes:
        images: pixels, float32 of shape (t, channels, height, width).
        labels: their true classes, int64 of shape (t,).
        adversarial_class: what they shall be taken for.
    """

    images: Tensor
    labels: Tensor
    adversarial_class: int

    def __post_init__(self) -> None:
        if len(self.images) == 0 or len(self.images) != len(self.labels):
            raise DataError(f"there are {len(self.images)} targets and {len(self.labels)} labels; give one of each")
        if bool((self.labels == self.adversarial_class).any()):
            raise ConfigError(
                f"a target is of class {self.adversarial_class} already, the adversarial one; choose another"
            )

    @classmethod
    def of(cls, examples: Examples, positions: Tensor | list[int], adversarial_class: int) -> Targets:
        """The examples at `positions`, usually of the test set, as targets."""
        chosen = torch.as_tensor(positions, dtype=torch.int64)
        return cls(pixels_at(examples, chosen), examples.labels[chosen], adversarial_class)

    def shown(self, test: Examples, seed: int = 0) -> Examples:
        """What the victim is asked: the targets themselves, with their true labels."""
        return Examples.of(self.images, self.labels, class_names=test.class_names)

    def one(self, attack: str) -> Tensor:
        """The only target, shape (1, channels, height, width), for attacks that collide with one point."""
        if len(self.images) != 1:
            raise ConfigError(f"{attack} moves features to those of one target and was given {len(self.images)}")
        return self.images

    def state_dict(self) -> dict[str, Any]:
        """As plain values and tensors."""
        return {"images": self.images, "labels": self.labels, "adversarial_class": self.adversarial_class}


@dataclass(frozen=True, eq=False)
class Backdoor:
    """A patch that shall turn images of one class into another.

    Attributes:
        patch: pixels, float32 of shape (channels, height, width).
        source_class: whose images the attacker will patch.
        adversarial_class: what they shall be taken for.
        place: where the patch is pasted.
    """

    patch: Tensor
    source_class: int
    adversarial_class: int
    place: Place = "random"

    def __post_init__(self) -> None:
        if self.patch.ndim != 3:
            raise DataError(f"the patch has shape {tuple(self.patch.shape)}; give (channels, height, width)")
        if self.source_class == self.adversarial_class:
            raise ConfigError(f"source and adversarial class are both {self.source_class}; choose two")

    def paste(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Copies of the images with the patch on them.

        Args:
            images: pixels of shape (n, channels, height, width).
            generator: for random places; one draw per image.

        Returns:
            Shape of `images`.
        """
        channels, height, width = self.patch.shape
        room = (images.shape[2] - height, images.shape[3] - width)
        if channels != images.shape[1] or min(room) < 0:
            raise DataError(f"a patch of shape {tuple(self.patch.shape)} doesn't fit {tuple(images.shape[1:])}")
        n = len(images)
        if self.place == "random":
            top, left = (torch.randint(space + 1, (n,), generator=generator) for space in room)
        else:
            corner = room if self.place == "bottom-right" else self.place
            if not all(0 <= at <= space for at, space in zip(corner, room, strict=True)):
                raise DataError(f"the patch at {corner} leaves the image; its corner goes up to {room}")
            top, left = (torch.full((n,), at) for at in corner)
        pasted = images.clone()
        rows = (top[:, None] + torch.arange(height))[:, None, :, None]
        columns = (left[:, None] + torch.arange(width))[:, None, None, :]
        pasted[torch.arange(n)[:, None, None, None], torch.arange(channels)[None, :, None, None], rows, columns] = (
            self.patch.to(images)
        )
        return pasted

    def shown(self, test: Examples, seed: int = 0) -> Examples:
        """What the victim is asked: patched test images of the source class, at most 1,000, with true labels."""
        source = (test.labels == self.source_class).nonzero().flatten()
        if len(source) == 0:
            raise DataError(f"the test set has no example of the source class {self.source_class}")
        stream = torch_stream(seed, "backdoor", "shown")
        chosen = source[torch.randperm(len(source), generator=stream)[:1000].sort().values]
        return Examples.of(
            self.paste(pixels_at(test, chosen), stream), test.labels[chosen], class_names=test.class_names
        )

    def state_dict(self) -> dict[str, Any]:
        """As plain values and tensors."""
        place = self.place if isinstance(self.place, str) else list(self.place)
        return {
            "patch": self.patch,
            "source_class": self.source_class,
            "adversarial_class": self.adversarial_class,
            "place": place,
        }


#: What an attacker wants.
Aim = Targets | Backdoor


def random_patch(channels: int, side: int, seed: int) -> Tensor:
    """A square of black and white (coloured: of primary colours), drawn at random.

    Args:
        channels: of the images.
        side: of the square.
        seed: decides the pattern.

    Returns:
        0 and 1, float32 of shape (channels, side, side).
    """
    return torch.randint(2, (channels, side, side), generator=torch_stream(seed, "patch")).to(torch.float32)


def aim_from_state(state: dict[str, Any]) -> Aim:
    """The aim that `state_dict` described."""
    if "patch" not in state:
        return Targets(**state)
    place = state["place"]
    return Backdoor(**{**state, "place": place if isinstance(place, str) else (place[0], place[1])})
