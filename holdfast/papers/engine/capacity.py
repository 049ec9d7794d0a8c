"""A cost model of a federation on Flower, fitted to measured rounds: ``results/benchmarks/capacity/runs.json``.

``benchmarks/capacity.py`` measures, the documentation shows what is here made of it. Each cost of a round is a sum of
terms that grow with what it is made of: messages (one per node), clients in the round (m), the numbers that they send
(m times P parameters), and all clients of the federation (N). Coefficients are not below zero, and least squares are
taken on relative errors, so that small federations count as much as large ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.papers.engine.jsonfile import expect_keys, number, read_json


@dataclass(frozen=True)
class Measured:
    """One federation and what it took.

    Attributes:
        clients: N.
        cohort: m, clients per round.
        nodes: SuperNodes, as many as messages per round.
        parameters: P.
        server_cpu: seconds of the server per round.
        superlink_cpu: seconds of Flower's SuperLink per round.
        nodes_cpu: seconds of all nodes per round.
        wire: bytes on loopback per round, over the three hops server, SuperLink, node and the node's executor.
        seconds: of a round.
        server_memory: largest proportional set size of the server in bytes.
        superlink_memory: of the SuperLink.
        nodes_memory: of all nodes together.
        disk: bytes that nodes keep of the clients that took part.
        kept: clients that took part.
        evaluation_cpu: seconds of all processes for the last evaluation, on every client.
    """

    clients: float
    cohort: float
    nodes: float
    parameters: float
    server_cpu: float
    superlink_cpu: float
    nodes_cpu: float
    wire: float
    seconds: float
    server_memory: float
    superlink_memory: float
    nodes_memory: float
    disk: float
    kept: float
    evaluation_cpu: float

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Measured:
        """From plain values."""
        names = [field.name for field in fields(cls)]
        expect_keys(stored, " ".join(names))
        return cls(**{name: number(stored[name]) for name in names})

    def term(self, name: str) -> float:
        """What a coefficient is multiplied with."""
        sent = self.cohort * self.parameters
        return {
            "fixed": 1.0,
            "message": self.nodes,
            "message's parameter": self.nodes * self.parameters,
            "client of the round": self.cohort,
            "parameter sent": sent,
            "client": self.clients,
            "client's parameter": self.clients * self.parameters,
            "kept client": self.kept,
            "kept parameter": self.kept * self.parameters,
        }[name]


#: Costs, what they are called, their unit, and the terms that they are made of.
COSTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "server_cpu": ("server, CPU", "s", ("message", "client of the round", "parameter sent", "client")),
    "superlink_cpu": ("SuperLink, CPU", "s", ("message", "parameter sent")),
    "nodes_cpu": ("all nodes, CPU", "s", ("message", "client of the round", "parameter sent", "client")),
    "wire": ("loopback", "B", ("message", "message's parameter", "client of the round", "parameter sent")),
    "server_memory": ("server, memory", "B", ("fixed", "client", "parameter sent")),
    "superlink_memory": ("SuperLink, memory", "B", ("fixed", "parameter sent")),
    "nodes_memory": ("all nodes, memory", "B", ("message", "client", "client's parameter", "parameter sent")),
    "disk": ("nodes, disk", "B", ("kept client", "kept parameter")),
    "evaluation_cpu": ("evaluating everybody once, CPU", "s", ("message", "client", "client's parameter")),
}


@dataclass(frozen=True)
class Fit:
    """A cost as a sum of terms.

    Attributes:
        terms: coefficients by term.
        worst: the largest relative error over what was measured.
    """

    terms: Mapping[str, float]
    worst: float

    def at(self, place: Measured) -> float:
        """The cost of a federation."""
        return sum(value * place.term(name) for name, value in self.terms.items())


def fitted(runs: Sequence[Measured], cost: str) -> Fit:
    """The terms of a cost that explain the runs best."""
    from scipy.optimize import nnls  # type: ignore[import-untyped]  # noqa: PLC0415 - slow

    _, _, terms = COSTS[cost]
    values = np.array([getattr(run, cost) for run in runs])
    table = np.array([[run.term(term) for term in terms] for run in runs]) / values[:, None]
    scale = np.linalg.norm(table, axis=0)
    solution, _ = nnls(table / scale, np.ones(len(runs)))
    coefficients = solution / scale
    return Fit(dict(zip(terms, map(float, coefficients), strict=True)), float(np.abs(table @ coefficients - 1).max()))


def read_runs(file: Path) -> tuple[list[Measured], str | None, str]:
    """What was measured, at which commit, and what else the machine was doing."""

    def build(stored: Mapping[str, Any]) -> tuple[list[Measured], str | None, str]:
        expect_keys(stored, "commit note runs")
        return [Measured.of(run) for run in stored["runs"]], stored["commit"], str(stored["note"])

    return read_json(file, "measured capacity", build)


def page(runs: Sequence[Measured], commit: str | None, note: str = "") -> str:
    """The page: what was measured, what it costs, what a million clients need, and what gives way first."""
    fits = {cost: fitted(runs, cost) for cost in COSTS}
    return "".join(
        [_INTRODUCTION, _table(runs), _coefficients(fits), _million(fits), _limits(fits), _repeat(commit, note)]
    )


_INTRODUCTION = """# Capacity: what a federation on Flower needs, by its number of clients

One message per node and round carries all of that node's clients in the round. So what a federation costs follows from
four numbers: nodes (messages), clients in a round (m), parameters of the model (P), and clients in all (N). Measured
here are a server, Flower's SuperLink and its SuperNodes on one machine with two cores, over loopback; clients have 10
examples and a personal model by Ditto. CPU and bytes are per round, over all nodes; memory is the largest proportional
set size.

"""


def _table(runs: Sequence[Measured]) -> str:
    lines = [
        "## Measured\n\n| N | m | nodes | P | round | server CPU | SuperLink CPU | nodes CPU | loopback | "
        "server memory | SuperLink memory | nodes memory | disk per client | evaluating everybody, CPU |\n",
        "| --- " * 14 + "|\n",
    ]
    for run in runs:
        told = [f"{value:,.0f}" for value in (run.clients, run.cohort, run.nodes, run.parameters)]
        told += [f"{value:.2g} s" for value in (run.seconds, run.server_cpu, run.superlink_cpu, run.nodes_cpu)]
        memory = (run.wire, run.server_memory, run.superlink_memory, run.nodes_memory, run.disk / run.kept)
        told += [size(value) for value in memory]
        lines.append(f"| {' | '.join(told)} | {run.evaluation_cpu:.3g} s |\n")
    return "".join(lines)


def _coefficients(fits: Mapping[str, Fit]) -> str:
    lines = [
        "\n## Fitted\n\nEach cost is the sum of its terms. The last column is the largest relative error over the runs "
        "above: where it is large, take the sum as an order of magnitude.\n\n"
        "| cost | terms | largest error |\n| --- | --- | --- |\n"
    ]
    for cost, fit in fits.items():
        name, unit, _ = COSTS[cost]
        terms = [f"{amount(value, unit)} per {term}" for term, value in fit.terms.items() if value and term != "fixed"]
        fixed = [amount(fit.terms["fixed"], unit)] if fit.terms.get("fixed") else []
        lines.append(f"| {name} | {' + '.join([*fixed, *terms]) or '0'} | {100 * fit.worst:.0f} % |\n")
    return "".join(lines)


#: A million clients: how many nodes, clients in a round, parameters.
MILLION = ((10, 1_000, 8_000), (100, 10_000, 8_000), (100, 1_000, 1_000_000))


def _million(fits: Mapping[str, Fit]) -> str:
    lines = [
        "\n## A million clients\n\nWhat the sums above say of N = 1,000,000; nothing of it was run. Nodes share "
        "evenly what all of them need; disk is for clients that have all taken part.\n\n"
        "| nodes | m | P | server CPU per round | server memory | SuperLink memory | a node: CPU per round | memory | "
        "disk | on its line per round | evaluating everybody, CPU |\n",
        "| --- " * 11 + "|\n",
    ]
    for nodes, cohort, parameters in MILLION:
        place = _at(1_000_000, cohort, nodes, parameters)
        cost = {name: fit.at(place) for name, fit in fits.items()}
        told = [f"{value:,.0f}" for value in (nodes, cohort, parameters)]
        told += [f"{cost['server_cpu']:.2g} s", size(cost["server_memory"]), size(cost["superlink_memory"])]
        told += [f"{cost['nodes_cpu'] / nodes:.2g} s", size(cost["nodes_memory"] / nodes), size(cost["disk"] / nodes)]
        told += [size(cost["wire"] / nodes / 3), f"{cost['evaluation_cpu']:,.0f} s"]
        lines.append(f"| {' | '.join(told)} |\n")
    return "".join(lines)


#: Bytes of memory of the machines that limits are told for, and the largest record of protobuf.
_MACHINE, _RECORD = 16e9, 2e9
_LIMITS = """
## What gives way first

- **Memory for a round's updates.** A reply holds all updates of a node's clients, and the server puts them into one
  matrix. With 16 GB the server has room for m P = {server:.1e} numbers and the SuperLink for {link:.1e}, so {first}
  memory is the first limit of a round: for P = 8,000 at m = {small:,.0f}, for P = 1,000,000 at m = {large:,.0f}. More
  nodes don't help; fewer clients per round do.
- **The size of one reply.** It is one record of m P / nodes numbers of 4 bytes, and protobuf has no records above
  2 GB: m P / nodes is at most {record:.0e}. Here more nodes help.
- **Clients that do nothing** cost the server {idle} each (numbers of examples, batches drawn, the report): 16 GB
  would be {everybody:.0e} clients, so they are not the limit.
- **Evaluating everybody** takes {evaluated} of CPU per client, the longest pause at N = 1,000,000. `--evaluate-every 0`
  does it once, at the end.
- **Disk of a node**: two states per client that took part, {kept} for P = 8,000, in two files. A node of 100,000
  clients has 200,000 of them, so mind the inodes.
"""


def _limits(fits: Mapping[str, Fit]) -> str:
    """Where each part gives way, for machines of usual size."""
    memory = fits["server_memory"].terms
    server, link, everybody = (
        _MACHINE / max(value, 1e-12)
        for value in (memory["parameter sent"], fits["superlink_memory"].terms["parameter sent"], memory["client"])
    )
    sent = min(server, link)
    return _LIMITS.format(
        server=server,
        link=link,
        first="the SuperLink's" if link < server else "the server's",
        small=sent / 8_000,
        large=sent / 1_000_000,
        record=_RECORD / 4,
        idle=amount(memory["client"], "B"),
        everybody=everybody,
        evaluated=amount(fits["evaluation_cpu"].terms["client"], "s"),
        kept=size(fits["disk"].at(_at(1, 1, 1, 8_000))),
    )


def _repeat(commit: str | None, note: str) -> str:
    beside = f"\nMeasured while {note}.\n" if note else ""
    return (
        f"{beside}\nMeasured at commit `{(commit or '')[:12]}` by\n\n```sh\npython benchmarks/capacity.py\n```\n\n"
        "which runs each federation in a network namespace of its own, so it wants root on Linux.\n"
    )


def _at(clients: float, cohort: float, nodes: float, parameters: float) -> Measured:
    """A federation of which nothing is measured; all of its clients have taken part."""
    unknown = dict.fromkeys((*COSTS, "seconds"), 0.0)
    return Measured(clients=clients, cohort=cohort, nodes=nodes, parameters=parameters, kept=clients, **unknown)


def size(value: float) -> str:
    """Bytes with a unit."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} B"


def amount(value: float, unit: str) -> str:
    """A coefficient with a unit that suits it."""
    if unit == "B":
        return size(value)
    for small, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= factor:
            return f"{value / factor:.3g} {small}"
    return f"{value / 1e-9:.3g} ns"
