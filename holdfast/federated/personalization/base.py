"""What a personalization method is: a row of numbers per client, kept between rounds, and a model made of it.

There are three kinds. An `AlongsidePersonalizer` trains a personal model alongside the shared one and never feeds back:
several may share one federation, and they all see the same shared model. A `JointPersonalizer` replaces what clients do
with the shared model and what they send. A `PostHocPersonalizer` starts when the rounds are over, from the final shared
model, on every client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.errors import ConfigError
from holdfast.federated.metrics.scoring import ClientScores, PartName
from holdfast.federated.settings import Rounds

if TYPE_CHECKING:
    from holdfast.federated.engine.client_batch import ClientBatch
    from holdfast.federated.engine.local_training import LocalTraining
    from holdfast.federated.engine.network import Network
    from holdfast.federated.engine.stacked_clients import StackedClients
    from holdfast.federated.engine.store import RowStore

#: Stream of the dropout masks of personal models: those that are compared drop the same.
ROLE = "personal"


@dataclass(frozen=True)
class Personalizer(ABC):
    """A way to a model per client. Subclasses are frozen dataclasses; their fields are the method's options.

    Class attributes:
        name: what users type.
        keeps_statistics: whether a personal model's running statistics are its own. They are not where the gradient is
            taken at a mixture of models, which is thrown away.
        needs_classes: whether outputs must be logits of classes, or a margin.
        needs_examples: whether it looks at single examples and not only at mini-batches that it is handed, so that it
            can't run inside somebody else's training loop.
    """

    name: ClassVar[str]
    keeps_statistics: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = False
    needs_examples: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """Name in tables and files; methods with options that are compared add them."""
        return self.name

    def check(self, settings: Rounds) -> None:  # noqa: B027
        """Refuse what can't work, before work is lost."""

    def check_network(self, network: Network) -> None:
        """Refuse a model that the method can't work with, before work is lost.

        Raises:
            ConfigError: if the method mixes models, and this one has running statistics, which can't be mixed.
        """
        if network.tracks_statistics and not self.keeps_statistics:
            raise ConfigError(
                f"{self.name} mixes models, and the running statistics of batch normalisation can't be mixed; "
                "use a model with group normalisation, or track_running_stats=False"
            )

    def check_data(self, clients: Clients) -> None:  # noqa: B027
        """Refuse data that lacks what the method needs, before work is lost; asked where the data are."""

    def initial(self, network: Network) -> Tensor:
        """What a client's row holds before its first round, shape (width,); the initial model by default."""
        return network.initial

    def models(self, rows: Tensor, shared: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        """The personal models to evaluate.

        Args:
            rows: what is kept, shape (clients, width).
            shared: the shared model now, shape (P,).
            training: the data and the network.
            clients: ids, shape (clients,).

        Returns:
            Shape (clients, P).
        """
        return rows


@dataclass(frozen=True)
class AlongsidePersonalizer(Personalizer):
    """A personal model that follows the shared one and never feeds back. Derive, and write `update`.

    A method whose gradient is not taken at the model that begins its row writes `step` instead.
    """

    @property
    def uses_local(self) -> bool:
        """Whether it looks at the client's copy of the shared model while that takes its steps."""
        return True

    @property
    def updates_from_gradient(self) -> bool:
        """Whether the gradient at the model that begins the row is all it needs.

        Where several such methods run on stacked clients, their gradients are one computation.
        """
        return type(self).step is AlongsidePersonalizer.step

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """One local step, on the batch that the shared model has just seen.

        Args:
            rows: the personal rows of the clients in the batch, changed in place, shape (clients, width).
            batch: their mini-batch.
            local: their copies of the shared model after its step, shape (clients, P).
            stack: the clients; `StackedClients.received` is the model of this round.
        """
        gradient = stack.gradient(rows[:, : stack.network.size], batch, ROLE)
        self.update(rows, gradient, batch, local, stack)

    def update(self, rows: Tensor, gradient: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """One local step from the gradient, shape (clients, P), which may be overwritten; otherwise like `step`."""
        raise NotImplementedError


@dataclass(frozen=True)
class JointPersonalizer(Personalizer):
    """A method that decides what clients do with the shared model and what they send.

    Class attributes:
        shares_whole_model: whether what is shared is a model by itself; it is not where clients keep a part of it.
    """

    shares_whole_model: ClassVar[bool] = True

    @abstractmethod
    def train(self, stack: StackedClients, rows: Tensor) -> Tensor:
        """One round of some clients.

        Args:
            stack: the clients.
            rows: their personal rows, changed in place.

        Returns:
            What each client sends, shape (clients, P).
        """

    def draws(self, steps: Tensor) -> Tensor:
        """Mini-batches that clients draw in a round of so many steps, int64 of shape (clients,)."""
        return steps

    def follow_up(self) -> PostHocPersonalizer | None:
        """What follows when the rounds are over, where something does."""
        return None


class AllClients(Protocol):
    """What a post-hoc method tries its choices on: every client of the federation. Executors are such."""

    @property
    def training(self) -> LocalTraining:
        """The data, the network and the settings."""

    def rows(self, label: str) -> RowStore:
        """The rows of the method of that label."""

    def personalize_all(self, method: PostHocPersonalizer, received: Tensor) -> None:
        """Run a method on every client."""

    def score_all(self, part: PartName, shared: Tensor, label: str | None = None) -> ClientScores:
        """Scores of every client."""


@dataclass(frozen=True)
class PostHocPersonalizer(Personalizer):
    """A personal model that is trained when the rounds are over, from the final shared model.

    Class attributes:
        follows: label of the method whose personal models it starts from; None is the shared model.

    Attributes:
        epochs: walks through a client's data; a client takes max(epochs * n / batch size, epochs) steps.
    """

    follows: ClassVar[str | None] = None
    epochs: int = 50

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ConfigError(f"epochs is {self.epochs}; give at least 1")

    @property
    def starts_after(self) -> int | None:
        """Rounds after which the shared model is what it starts from, where that is not the final one."""
        return None

    def choose_hyperparameters(self, everybody: AllClients, shared: Tensor) -> PostHocPersonalizer:
        """The method with what it chooses for all clients together, once the shared model is known.

        Args:
            everybody: runs it on all clients and scores their validation data, to try a choice.
            shared: the final shared model, shape (P,).

        Returns:
            A method with the same label.
        """
        return self

    @abstractmethod
    def personalize(self, stack: StackedClients) -> Tensor:
        """Personal models of shape (clients, P), from `StackedClients.start`."""
