"""Who takes part in a round: a function of (seed, round) and the clients' sizes, the same for every method."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.settings import Rounds
from holdfast.streams import torch_stream


def select(settings: Rounds, number: int, sizes: Tensor, malicious: Tensor, seed: int | None = None) -> Tensor:
    """Clients of a round, without replacement.

    Draws in proportion to size are made by Gumbel noise on the logarithm of the sizes: the largest keys are a draw
    without replacement, however many clients there are.

    Args:
        settings: cohort, sampling and seed.
        number: of the round, from 0.
        sizes: training examples of each client, shape (clients,).
        malicious: bool of shape (clients,); only looked at by ``stratified`` sampling.
        seed: of the draw, where it is not the federation's: who took part may have to stay a secret.

    Returns:
        Ids, ascending.
    """
    if settings.cohort > len(sizes):
        raise ConfigError(f"a round wants {settings.cohort} clients and there are {len(sizes)}; lower the cohort")
    generator = torch_stream(settings.seed if seed is None else seed, "selection", number)
    uniform = torch.rand(len(sizes), dtype=torch.float64, generator=generator)
    if settings.sampling == "poisson":
        return (uniform < settings.cohort / len(sizes)).nonzero().flatten()
    keys = -torch.log(-torch.log(uniform))
    if settings.sampling == "examples":
        keys = keys + torch.log(sizes.double())
    if settings.sampling == "stratified":
        attackers = settings.cohort * int(malicious.sum()) // len(sizes)
        chosen = [
            _largest(keys, malicious, attackers),
            _largest(keys, ~malicious, settings.cohort - attackers),
        ]
        return torch.cat(chosen).sort().values
    return keys.topk(settings.cohort).indices.sort().values


def _largest(keys: Tensor, among: Tensor, count: int) -> Tensor:
    if count > int(among.sum()):
        raise ConfigError(
            f"stratified sampling wants {count} clients of a kind that has {int(among.sum())}; lower the cohort or use "
            "another --sampling"
        )
    return torch.where(among, keys, -torch.inf).topk(count).indices
