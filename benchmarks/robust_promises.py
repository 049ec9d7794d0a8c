"""Whether a shared model ends within five points of the same run without attack, where a rule's bound covers that.

The criterion is stated before the runs, in `Aggregator.covers`: what a rule's published bound promises, and for which
clients. It covers an attack by *size*, whose updates lie far outside of the honest ones, in a federation

- of clients that are alike (digits dealt out at random) where the rule covers ``alike`` or ``unlike`` clients;
- of clients that differ (five digits each) where it covers ``unlike`` ones.

A bound is relative to the spread of honest updates, so none promises five points against attacks from within that
spread. One is run and shown too (``sign-flip``), and so are rules that nothing covers. An empty cell was not run.

50 clients, a fifth of them malicious and expected, 40 rounds of all clients, and of 25 or as many as the rule needs.
Compared are runs with the same seed, which draws clients, batches and attackers; the initial weights too.

Run: ``python -m benchmarks.robust_promises``, a quarter of an hour of one core. What was run is kept in
results/robust-promises, so it can be stopped and started again, and docs/results/robust-promises.md is made of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch

from benchmarks.robust_rules import RULES, SHARE, attack_of, cohort_for
from holdfast.data import Clients
from holdfast.data.clients.partitioned import DigitsClients, Partitioned
from holdfast.federated import Rounds, Threat, federate
from holdfast.federated.aggregation import build_aggregator
from holdfast.models import build

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "robust-promises" / "runs.jsonl"
PAGE = ROOT / "docs" / "results" / "robust-promises.md"
SIZE = ("gaussian", "a3")
WITHIN_SPREAD = ("sign-flip",)
#: By the words above columns.
SHOWN = {"gaussian": "gaussian 1e20"}
CLIENTS = {"alike": Partitioned(partition="iid"), "unlike": DigitsClients()}
COHORTS, ROUNDS, POINTS = (50, 25), 40, 5.0


@dataclass(frozen=True)
class Cell:
    """One federation: its clients, rule, attack (empty for none), wanted cohort and seed."""

    clients: str
    rule: str
    attack: str
    cohort: int
    seed: int

    def accuracy(self) -> float:
        """Percent of test examples that benign clients get right, every client alike."""
        aggregator, data = build_aggregator(self.rule), _data(self.clients)
        settings = Rounds(
            rounds=ROUNDS,
            cohort=cohort_for(aggregator, self.cohort),
            learning_rate=0.3,
            evaluate_every=0,
            executor="batched",
            chunk=max(COHORTS),
            seed=self.seed,
        )
        threat = Threat(attack_of(self.attack), SHARE) if self.attack else None
        model = build("softmax", (1, 8, 8), 10, seed=self.seed)
        outcome = federate(data, model, settings, aggregator=aggregator, threat=threat, expect_malicious=SHARE)
        return 100 * outcome.reports["global"].mean


Runs = dict[Cell, float]


@cache
def _data(name: str) -> Clients:
    return CLIENTS[name].load(ROOT)


def cells(attacks: tuple[str, ...], seeds: int) -> Iterator[Cell]:
    """Every run, attack by attack."""
    for attack in ("", *attacks):
        for clients, rule, cohort in itertools.product(CLIENTS, RULES, COHORTS):
            yield from (Cell(clients, rule, attack, cohort, seed) for seed in range(seeds))


def kept() -> Runs:
    """What was run before."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return {Cell(**stored["cell"]): stored["accuracy"] for stored in map(json.loads, lines)}


def run_missing(attacks: tuple[str, ...], seeds: int) -> None:
    """Run what was not run before; a line is added for each, so that a stopped run goes on."""
    done = kept()
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with KEPT.open("a") as file:
        for cell in cells(attacks, seeds):
            if cell not in done:
                file.write(json.dumps({"cell": asdict(cell), "accuracy": cell.accuracy()}) + "\n")
                file.flush()


# ------------------------------------------------------------------------------------------------------ the page


def covered(rule: str, clients: str, attack: str) -> bool:
    """Whether the rule's published bound covers the attack among these clients; the criterion."""
    covers = build_aggregator(rule).covers
    return attack in SIZE and (covers == "unlike" or (covers == "alike" and clients == "alike"))


def changes(runs: Runs, clients: str, rule: str, attack: str, cohort: int) -> list[float]:
    """Accuracy against the same run without attack, in points, seed by seed."""
    found = []
    for cell, accuracy in runs.items():
        if (cell.clients, cell.rule, cell.attack, cell.cohort) == (clients, rule, attack, cohort):
            alone = runs.get(Cell(clients, rule, "", cohort, cell.seed))
            found += [] if alone is None else [accuracy - alone]
    return found


def page(runs: Runs) -> str:
    """The page: the criterion, what it covers and how that ended, and everything else."""
    opening, _, rest = (__doc__ or "").partition("\n\n")
    criterion = rest.partition("\n\nRun:")[0]
    parts = [
        "<!-- Written by benchmarks/robust_promises.py; don't edit. -->\n\n# Within five points\n\n",
        f"{opening} `python -m benchmarks.robust_promises` repeats it.\n\n{criterion}\n\n{_verdict(runs)}",
    ]
    for clients in CLIENTS:
        attacks = [attack for attack in (*SIZE, *WITHIN_SPREAD) if any(cell.attack == attack for cell in runs)]
        heading = [f"{SHOWN.get(attack, attack)}, {cohort}" for attack in attacks for cohort in COHORTS]
        parts.append(
            f"\n## Clients that are {clients}\n\nWithout attack: accuracy in percent, mean ± standard deviation over "
            "seeds. Under attack: change in points, mean over seeds (of the seed that loses most). "
            "**Bold**: covered. ✗: a seed loses more than five points.\n\n"
            "| rule | covers | none, 50 | none, 25 | " + " | ".join(heading) + " |\n"
            "| --- | --- | --- | --- |" + " --- |" * len(heading) + "\n"
        )
        for rule in RULES:
            row = [f"`{rule}`", build_aggregator(rule).covers]
            row += [_alone(runs, clients, rule, cohort) for cohort in COHORTS]
            row += [_change(runs, clients, rule, attack, cohort) for attack in attacks for cohort in COHORTS]
            parts.append("| " + " | ".join(row) + " |\n")
    return "".join(parts)


def _verdict(runs: Runs) -> str:
    """How many covered pairs of runs there are, and which lose more than five points."""
    losses: dict[str, float] = {}
    pairs = 0
    for clients in CLIENTS:
        for rule in RULES:
            for attack in filter(lambda one: covered(rule, clients, one), SIZE):
                for cohort in COHORTS:
                    found = changes(runs, clients, rule, attack, cohort)
                    pairs += len(found)
                    beyond = [change for change in found if change < -POINTS]
                    if beyond:
                        name = f"`{rule}`, {clients} clients, {SHOWN.get(attack, attack)}, cohort {cohort}"
                        losses[f"{name}: {len(beyond)} of {len(found)} seeds"] = min(beyond)
    said = f"**{pairs} pairs of runs are covered, and "
    if not losses:
        return said + "every one ends within five points.**\n"
    return said + "these lose more:** " + "; ".join(f"{name} ({least:+.1f})" for name, least in losses.items()) + ".\n"


def _alone(runs: Runs, clients: str, rule: str, cohort: int) -> str:
    found = [
        accuracy
        for cell, accuracy in runs.items()
        if (cell.clients, cell.rule, cell.attack, cell.cohort) == (clients, rule, "", cohort)
    ]
    used = cohort_for(build_aggregator(rule), cohort)
    larger = "" if used == cohort else f" ({used} clients)"
    return f"{statistics.mean(found):.1f} ± {statistics.stdev(found):.1f}{larger}" if len(found) > 1 else ""


def _change(runs: Runs, clients: str, rule: str, attack: str, cohort: int) -> str:
    found = changes(runs, clients, rule, attack, cohort)
    if not found:
        return ""
    cell = f"{statistics.mean(found):+.1f} ({min(found):+.1f})"
    marked = f"**{cell}**" if covered(rule, clients, attack) else cell
    return marked + (" ✗" if min(found) < -POINTS else "")


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--attacks", nargs="*", choices=(*SIZE, *WITHIN_SPREAD), default=(*SIZE, *WITHIN_SPREAD))
    parser.add_argument("--page", action="store_true", help="only write the page of what was run")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if not chosen.page:
        run_missing(tuple(chosen.attacks), chosen.seeds)
    PAGE.write_text(page(kept()))


if __name__ == "__main__":
    main()
