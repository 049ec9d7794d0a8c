"""Adam for rows of parameters (Kingma and Ba, 2015): what local training uses instead of SGD where it is asked to.

A client starts every round with a fresh state, so nothing is carried from one client to another or sent anywhere.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Running means of gradients and of their squares, a row per client.

    Args:
        models: rows that will be moved, shape (clients, P); only their shape matters.
    """

    def __init__(self, models: Tensor) -> None:
        self.first, self.second = torch.zeros_like(models), torch.zeros_like(models)
        self.steps = 0

    def step(self, models: Tensor, gradient: Tensor, rate: float) -> None:
        """Move the first rows; those that stop earlier come last, so the number of steps is the same for all.

        Args:
            models: shape (clients still at work, P); changed.
            gradient: of the same shape.
            rate: the learning rate.
        """
        self.steps += 1
        first, second = self.first[: len(models)], self.second[: len(models)]
        first.lerp_(gradient, 1 - _BETA1)
        second.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
        size = second.sqrt().div_(math.sqrt(1 - _BETA2**self.steps)).add_(_EPSILON)
        models.addcdiv_(first, size, value=-rate / (1 - _BETA1**self.steps))
