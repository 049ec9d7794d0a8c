"""What every rule leaves of a shared model under every attack, with the number of malicious clients expected.

50 clients with five digits each (``digits-clients``), a fifth of them malicious and expected, 60 rounds, softmax.
Rounds have 25 clients, or as many as a rule needs to bear what a round may hold. Printed are percent of test examples
that benign clients get right, every client alike, and behind the backdoor its success rate, means over seeds.

Run: ``python benchmarks/robust_rules.py``. Takes about a quarter of an hour on one core, and writes nothing. What
attacks cost against the same run without one, seed by seed, is in ``benchmarks/robust_promises.py``.
"""

from __future__ import annotations

import argparse
import statistics
from functools import cache

import torch

from holdfast.data import Clients, load_federation
from holdfast.federated import ATTACKS, Attack, Backdoor, Expectation, Gaussian, Rounds, Threat, federate
from holdfast.federated.aggregation import Aggregator, build_aggregator
from holdfast.federated.metrics.backdoor import backdoor_success
from holdfast.federated.metrics.client_report import benign_of
from holdfast.federated.result import FederationResult
from holdfast.models import build

RULES = (
    *("mean", "median", "trimmed-mean", "geometric-median", "krum", "multi-krum", "bulyan", "clipping"),
    *("centred-clipping", "momentum+centred-clipping", "k-norm", "fedmgda", "clipping+median", "clipping+krum"),
    *("nnm+trimmed-mean", "nnm+median", "nnm+geometric-median", "nnm+krum", "nnm+multi-krum", "nnm+bulyan"),
    *("arc+krum", "arc+nnm+krum", "arc+nnm+trimmed-mean", "momentum+krum"),
    *("bucketing+median", "bucketing+trimmed-mean", "momentum+nnm+trimmed-mean"),
)
#: The attacks of the table, by the words above their columns.
COLUMNS = {
    "none": None,
    "gaussian 1e20": "gaussian",
    "a1": "a1",
    "a3": "a3",
    "sign-flip": "sign-flip",
    "alie": "alie",
    "min-max": "min-max",
    "mimic": "mimic",
    "optimised alie": "optimised-alie",
    "optimised inner product": "optimised-inner-product",
    "backdoor (success)": "backdoor",
}
SHARE, ROUNDS, COHORT = 0.2, 60, 25


@cache
def data() -> Clients:
    """The clients."""
    return load_federation("digits-clients")


def attack_of(name: str) -> Attack:
    """An attack with its defaults; Gaussian noise is huge."""
    return Gaussian(1e20) if name == "gaussian" else ATTACKS.find(name)()


def cohort_for(rule: Aggregator, cohort: int) -> int:
    """The cohort, or a larger one in which the rule bears what a round may hold."""
    settings = Rounds(rounds=ROUNDS, cohort=cohort)
    expected = Expectation(SHARE).resolve(len(data()), settings, None)
    if rule.stands(cohort) is None or not expected.overwhelms(rule):
        return cohort
    return expected.bearable_cohort(rule) or len(data())


def run(rule: str, attack: Attack | None, cohort: int, seed: int) -> FederationResult:
    """One federation."""
    settings = Rounds(
        rounds=ROUNDS,
        cohort=cohort,
        learning_rate=0.3,
        evaluate_every=0,
        executor="batched",
        seed=seed,
    )
    return federate(
        data(),
        build("softmax", (1, 8, 8), 10, seed=seed),
        settings,
        aggregator=build_aggregator(rule),
        threat=None if attack is None else Threat(attack, SHARE),
        expect_malicious=SHARE,
    )


def accuracies(rule: str, attack: str | None, cohort: int, seeds: int) -> tuple[list[float], list[float]]:
    """Accuracy in percent with each seed, and the success of a backdoor."""
    found, successes = [], []
    for seed in range(seeds):
        rehearsed = None if attack is None else attack_of(attack)
        outcome = run(rule, rehearsed, cohort, seed)
        found.append(100 * outcome.reports["global"].mean)
        if isinstance(rehearsed, Backdoor):
            benign = benign_of(outcome.malicious, len(outcome.joined))
            rates = backdoor_success(outcome.runtime, outcome.weights, ["global"], rehearsed, benign)
            successes.append(100 * rates["global"]["success"])
    return found, successes


def cell(rule: str, attack: str | None, cohort: int, seeds: int) -> str:
    """Mean accuracy over seeds, and the mean success of a backdoor."""
    found, successes = accuracies(rule, attack, cohort, seeds)
    success = f" ({statistics.mean(successes):.0f})" if successes else ""
    return f"{statistics.mean(found):.0f}{success}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| rule | clients | " + " | ".join(COLUMNS) + " |")
    print("| --- | --- | " + " | ".join("---" for _ in COLUMNS) + " |")
    for rule in RULES:
        cohort = cohort_for(build_aggregator(rule), COHORT)
        cells = [cell(rule, attack, cohort, chosen.seeds) for attack in COLUMNS.values()]
        print(f"| `{rule}` | {cohort} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
