"""Any policy of `holdfast.training.fit` inside clients: SPARE, PDE or group balancing on each client's own data.

A policy decides what to train on; on a client it sees the client's examples only, and starts from the shared model.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.data.examples import Examples, Splits
from holdfast.errors import ConfigError, DataError, HoldfastWarning
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import PostHocPersonalizer
from holdfast.federated.settings import Rounds
from holdfast.streams import derive_seed
from holdfast.training.fitting import fit
from holdfast.training.policy import PlannedTraining, Policy, Uniform
from holdfast.training.settings import Training

_PARTS = {"train": "training", "validation": "validation"}


@dataclass(frozen=True)
class WithPolicy(PostHocPersonalizer):
    """Fine-tuning with a policy; the epoch with the best validation accuracy is kept.

    Attributes:
        policy: what decides, for instance `holdfast.spurious.Spare`; every client has a fresh copy.
        epochs: walks through a client's data.
        called: the name in tables and files; the policy's by default.
    """

    name: ClassVar[str] = "policy"
    needs_classes: ClassVar[bool] = True
    needs_examples: ClassVar[bool] = True
    policy: Policy = field(default_factory=Uniform)
    epochs: int = 5
    called: str = ""

    @property
    def label(self) -> str:
        """What it is called."""
        return self.called or self.policy.name

    def check(self, settings: Rounds) -> None:
        """Ask the policy whether it can do its work in so many epochs."""
        copy.deepcopy(self.policy).validate(PlannedTraining(self.epochs, settings.batch_size))

    def check_data(self, clients: Clients) -> None:
        """Refuse data without the groups that the policy must be given.

        Raises:
            DataError: if there are none.
        """
        needed = self.policy.needs_groups_of
        if needed is not None and clients.parts[needed].groups is None:
            raise DataError(
                f"{self.label} inside clients needs a group per {_PARTS[needed]} example, and the clients' data has "
                "none; give the data groups, or use a method that infers them, such as spare"
            )

    def personalize(self, stack: StackedClients) -> Tensor:
        """Client after client."""
        return torch.stack([self._tuned(stack, client) for client in stack.clients.tolist()])

    def _tuned(self, stack: StackedClients, client: int) -> Tensor:
        if stack.network.task != "classes":
            raise ConfigError(f"{self.label} is for classes, and this data has margins; use finetuning")
        settings = Training(
            epochs=self.epochs,
            batch_size=stack.settings.batch_size,
            learning_rate=stack.personal_rate,
            momentum=0.0,
            optimizer=stack.settings.optimizer,
            select_by="accuracy",
            seed=derive_seed(stack.settings.seed, "policy", client),
            threads=1,
        )
        model = stack.network.load(stack.received).cpu().train()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HoldfastWarning)  # of every client's clusters, over and over
            result = fit(model, client_splits(stack.data, client), copy.deepcopy(self.policy), settings)
        return Network(result.model).initial.to(stack.received.device)


def client_splits(clients: Clients, client: int) -> Splits:
    """One client's data as `fit` takes it; a client without validation data is looked at on its training data."""
    names = tuple(str(label) for label in range(clients.classes))

    def examples(part: ClientPart) -> Examples:
        inputs, labels = part.of(client)
        groups = None if part.groups is None else part.groups[int(part.offsets[client]) : int(part.offsets[client + 1])]
        return Examples.of(inputs, labels, attributes=groups, class_names=names)

    held_out = clients.validation if clients.validation.counts[client] else clients.train
    return Splits(f"client {client}", examples(clients.train), examples(held_out), examples(clients.test))
