"""Rounds to aggregate: the golden one of the Ditto spec (2.6), and random ones."""

import torch
from torch import Tensor

UPDATES = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.3, 0.4], [-6.0, 8.0]], dtype=torch.float64)
LOSSES = torch.tensor([0.5, 0.9, 0.7, 0.2, 3.0], dtype=torch.float64)


def random_round(seed: int, m: int, parameters: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Updates with a common part, of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    drift = torch.randn(parameters, generator=generator, dtype=torch.float64)
    lengths = 0.5 + torch.rand(m, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(m, parameters, generator=generator, dtype=torch.float64)
    return (lengths * (drift + noise)).to(dtype)


def random_losses(seed: int, m: int) -> Tensor:
    return torch.rand(m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
