"""One space for all attacks: inputs are pixels from 0 to 1, and what normalises them is part of the model.

A budget of 8/255 means the same for every network only there. Data sets that normalise when a batch is gathered, such
as CIFAR-10, are taken back to pixels by `in_pixels`; a network that was trained on normalised inputs gets its
normalisation in front by `Normalised`.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.data.inputs import Inputs, SubsetInputs, TensorInputs
from holdfast.data.transforms import Normalise, ScalePixels
from holdfast.errors import DataError


class Normalised(nn.Module):
    """A network behind the normalisation that its inputs need, so that the whole takes pixels.

    Args:
        model: the network, for normalised inputs.
        normalise: mean and standard deviation per channel.
    """

    def __init__(self, model: nn.Module, normalise: Normalise) -> None:
        super().__init__()
        self.normalise = normalise
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits for pixels from 0 to 1."""
        logits: Tensor = self.model(self.normalise(inputs))
        return logits


def in_pixels(examples: Examples) -> Examples:
    """The same examples with inputs as pixels from 0 to 1: whatever is done to stored bytes is left out.

    Args:
        examples: images; floats are taken to be pixels already.

    Returns:
        The examples.
    """
    return replace(examples, inputs=_in_pixels(examples.inputs))


def pixels_at(examples: Examples, positions: Tensor) -> Tensor:
    """The images at `positions`, checked to be pixels.

    Args:
        examples: images.
        positions: int64 of shape (p,).

    Returns:
        float32 of shape (p, channels, height, width).

    Raises:
        DataError: if the inputs are no images or go outside of 0 to 1.
    """
    images = examples.inputs.gather(positions)
    if not isinstance(images, Tensor) or images.ndim != 4 or not images.is_floating_point():
        raise DataError("attacks perturb images; give float inputs of shape (channels, height, width)")
    if len(images) and (images.min() < 0 or images.max() > 1):
        raise DataError(
            f"inputs go from {images.min():g} to {images.max():g}, so they aren't pixels; use in_pixels(examples), and "
            "Normalised(model, ...) for a network that was trained on normalised ones"
        )
    return images.to(torch.float32)


def _in_pixels(inputs: Inputs) -> Inputs:
    if isinstance(inputs, SubsetInputs):
        return SubsetInputs(_in_pixels(inputs.parent), inputs.positions)
    if isinstance(inputs, TensorInputs) and isinstance(inputs.values, Tensor) and inputs.values.dtype == torch.uint8:
        return TensorInputs(inputs.values, ScalePixels())
    return inputs
