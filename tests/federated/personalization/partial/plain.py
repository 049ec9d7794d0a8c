"""Personal layers by a plain loop: modules of torch, its optimizer, state dicts by name; nothing of the engine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.clients.clients import Clients
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.selection import select
from holdfast.federated.settings import Rounds
from tests.federated.personalization.toy import clients

State = dict[str, Tensor]


def in_double(data: Clients | None = None) -> Clients:
    """The toy clients in double precision."""
    data = data or clients()
    return replace(
        data,
        **{
            name: replace(part, inputs=part.inputs.double()) for name, part in data.parts.items() if name != "elsewhere"
        },
    )


def plain_loop(
    net: nn.Module, data: Clients, rounds: Rounds, is_own: Callable[[str], bool], head_steps: int | None = None
) -> tuple[State, dict[int, State]]:
    """The shared state, and what each client keeps, after all rounds.

    Args:
        net: where everybody starts.
        data: of the clients.
        rounds: settings.
        is_own: whether a part, by its name in the state, stays with the client.
        head_steps: steps of that part alone before those of the others alone; both together without.
    """
    shared, own = floats(net), {}
    drawn = dict.fromkeys(range(len(data)), 0)
    for number in range(rounds.rounds):
        chosen = select(rounds, number, data.train.counts, torch.zeros(len(data), dtype=torch.bool)).tolist()
        after = {}
        for client in chosen:
            local = copy.deepcopy(net).train()
            local.load_state_dict({**shared, **own.get(client, kept(floats(net), is_own))}, strict=False)
            phases = [(rounds.local_steps, lambda name: True)]
            if head_steps is not None:
                phases = [(head_steps, is_own), (rounds.local_steps, lambda name: not is_own(name))]
            inputs, labels = data.train.of(client)
            batches = mini_batches(rounds, client, len(labels), drawn[client])
            for steps, moves in phases:
                moving = [value for name, value in local.named_parameters() if moves(name)]
                optimizer = torch.optim.SGD(moving, lr=rounds.learning_rate)
                for _ in range(steps):
                    rows = next(batches)
                    local.zero_grad()
                    F.cross_entropy(local(inputs[rows]), labels[rows]).backward()
                    optimizer.step()
                    drawn[client] += 1
            after[client] = floats(local)
        own |= {client: kept(state, is_own) for client, state in after.items()}
        for name in shared:
            if not is_own(name):
                changes = torch.stack([state[name] - shared[name] for state in after.values()])
                shared[name] = shared[name] + changes.mean(0)
    return shared, own


def mini_batches(rounds: Rounds, client: int, size: int, first: int) -> Iterator[Tensor]:
    yield from BatchStream(rounds.seed, rounds.batch_size).rows(client, size, first, 100)


def floats(net: nn.Module) -> State:
    return {name: value.clone() for name, value in net.state_dict().items() if value.is_floating_point()}


def kept(state: State, is_own: Callable[[str], bool]) -> State:
    return {name: value for name, value in state.items() if is_own(name)}
