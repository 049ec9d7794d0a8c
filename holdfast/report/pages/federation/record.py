"""What a federation's directory says, read once: methods, rounds so far, and how every client fares at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.federated.run_files import history_of, read_clients
from holdfast.report.pages.federation.measure import Measure
from holdfast.training.health.check import Health
from holdfast.training.run import Run, understanding

#: Name of the shared model.
SHARED = "global"


@dataclass(frozen=True)
class ModelRows:
    """How clients fare with one model, a value per client.

    Attributes:
        accuracy: on the test data.
        loss: on the test data.
        lambdas: the pull towards the shared model, None where there is none.
    """

    accuracy: tuple[float, ...]
    loss: tuple[float, ...]
    lambdas: tuple[float | None, ...]


@dataclass(frozen=True)
class ClientRows:
    """The clients of a finished federation, a value per client.

    Attributes:
        names: of the clients.
        benign: whether they count.
        joined: rounds they took part in.
        counts: their test examples.
        models: their scores by model, the shared one first.
    """

    names: tuple[str, ...]
    benign: tuple[bool, ...]
    joined: tuple[int, ...]
    counts: tuple[int, ...]
    models: Mapping[str, ModelRows]

    @classmethod
    def of(cls, columns: Mapping[str, list[Any]]) -> ClientRows:
        """Out of the columns of ``clients.parquet``."""
        labels = list(dict.fromkeys(columns["model"]))
        number = len(columns["model"]) // len(labels)

        def part(key: str, place: int = 0) -> tuple[Any, ...]:
            return tuple(columns[key][place * number : (place + 1) * number])

        models = {
            label: ModelRows(part("accuracy", place), part("loss", place), part("lambda", place))
            for place, label in enumerate(labels)
        }
        return cls(part("name"), part("benign"), part("joined"), part("count"), models)

    @property
    def counted(self) -> list[int]:
        """Clients in the numbers: benign, with test examples."""
        return [place for place, benign in enumerate(self.benign) if benign and self.counts[place]]

    def accuracies(self, label: str) -> list[float]:
        """Of the clients that count."""
        return [self.models[label].accuracy[place] for place in self.counted]


@dataclass(frozen=True)
class FederationRecord:
    """A federation's run in one value.

    Attributes:
        path: its directory.
        status: ``finished``, ``running`` or ``interrupted``.
        config: its configuration.
        rounds: how many it was to have.
        done: how many are over, as far as is known.
        history: summaries by model at rounds that were evaluated, under ``round`` their number.
        models: the last summaries by model, the shared one first; empty before the first evaluation.
        results: the record of a finished run.
        clients: how every client fares, of a finished run.
    """

    path: Path
    status: str
    config: Mapping[str, Any]
    rounds: int
    done: int
    history: tuple[dict[str, Any], ...]
    models: Mapping[str, dict[str, float]]
    results: Mapping[str, Any] = field(default_factory=dict)
    clients: ClientRows | None = None

    @classmethod
    def of(cls, run: Run) -> FederationRecord:
        """Read the run's files; none of them is changed."""
        with understanding(run.path):
            return cls._read(run)

    @classmethod
    def _read(cls, run: Run) -> FederationRecord:
        config, results = run.config, run.results
        history = tuple(results["history"]) if results else tuple(history_of(run.metrics()))
        last = history[-1] if history else {}
        return cls(
            path=run.path,
            status=run.status,
            config=config,
            rounds=int(config["rounds"]),
            done=int(last.get("round", 0)),
            history=history,
            models={label: summary for label, summary in last.items() if label != "round"},
            results=results or {},
            clients=ClientRows.of(read_clients(run)) if results else None,
        )

    @property
    def health(self) -> Health | None:
        """What was found of the methods' assumptions; None where that was not looked at, as in older runs."""
        return Health.from_json(self.results["health"]) if "health" in self.results else None

    @property
    def finished(self) -> bool:
        """Whether the final scores are there."""
        return self.status == "finished"

    @property
    def measure(self) -> Measure:
        """What clients are scored by."""
        if "measure" in self.results:
            return Measure(str(self.results["measure"]))
        return Measure("mean squared error") if any("r2" in scores for scores in self.models.values()) else Measure()

    @property
    def personal(self) -> list[str]:
        """Labels of the personal models."""
        return [label for label in self.models if label != SHARED]

    @property
    def headline(self) -> str:
        """The model of the headline: the first personal one, where there is one."""
        return next(iter(self.personal), SHARED)

    def settings(self, *keys: str) -> list[str]:
        """Values of the configuration, those that are set."""
        return [str(value) for key in keys if (value := self.config.get(key)) not in (None, "", "none")]
