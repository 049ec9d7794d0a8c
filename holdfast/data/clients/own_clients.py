"""Data of one's own as a federation's data set: ``holdfast federate --data wards.csv --client ward``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.data.clients.federations import FederatedData, TrainingRecipe
from holdfast.data.own.options import ReadingOptions

if TYPE_CHECKING:
    from holdfast.data.clients.clients import Clients
    from holdfast.data.clients.partitioned import Partitioned

#: Models that suit small clients, by that of a training on all data: no batch norm, few parameters.
_MODELS = {"resnet18": "pocket-cnn", "resnet20": "pocket-cnn"}
_RATES = {"mlp": 0.1, "text-bag": 0.5, "pocket-cnn": 0.05}
_COHORT = 10  # clients in a round, or all where there are fewer


@dataclass(frozen=True)
class OwnClients(FederatedData):
    """Clients of your own data, by a column that says whose each row is, or dealt out where there is none.

    Attributes:
        path: a file, a folder, or hf:NAME.
        reading: which column says what, and how inputs are made.
        dealing: how rows are dealt out, where no column says whose they are.
    """

    name = "own"
    summary = "your own data: rows of a table, texts or images, with a column that says whose each is"

    path: str
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    dealing: Partitioned | None = None

    def __post_init__(self) -> None:
        """Options were checked where they were made; the names of `Partitioned` are not imported for it."""

    @cached_property
    def recipe(self) -> TrainingRecipe:  # type: ignore[override] # of a class for published sets, of the data here
        """Settings to begin with, by what the inputs are and how many clients there are."""
        from holdfast.data.own.reading import count_clients, recipe_for  # noqa: PLC0415 - help pages read no files

        pooled = recipe_for(self.path, self.reading)
        model = _MODELS.get(str(pooled["model"]), str(pooled["model"]))
        clients = count_clients(self.path, self.reading) or _COHORT
        return TrainingRecipe(model, _RATES.get(model, 0.05), 16, rounds=100, cohort=min(_COHORT, clients))

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read and check the data; `root` isn't looked at."""
        from holdfast.data.clients.own import clients_of_rows, stackable  # noqa: PLC0415
        from holdfast.data.clients.partitioned import Partitioned, partition  # noqa: PLC0415
        from holdfast.data.own.reading import read_rows  # noqa: PLC0415

        rows = read_rows(self.path, self.reading, federated=True, seed=seed)
        if self.reading.client is not None:
            return replace(clients_of_rows(rows), notes=rows.notes, schema=rows.schema)
        clients = partition(stackable(rows.examples), (self.dealing or Partitioned()).how(), seed)
        kept = tuple(note for note in rows.notes if not note.startswith("split:"))
        dealt = f"no --client column: dealt out to {len(clients)} clients, 72/8/20 of each for training and tests"
        return replace(clients, notes=(*kept, dealt), schema=rows.schema)
