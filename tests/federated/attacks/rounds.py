"""Sending with the arguments that most tests don't care about."""

import torch
from torch import Tensor

from holdfast.federated.attacks import Attack


def send(attack: Attack, updates: Tensor, malicious: list[int], seed: int = 0, number: int = 0) -> Tensor:
    """What the server receives; clients have the ids 10, 11, ..."""
    who = torch.zeros(len(updates), dtype=torch.bool)
    who[malicious] = True
    return attack.send(updates, who, clients=torch.arange(10, 10 + len(updates)), seed=seed, number=number)
