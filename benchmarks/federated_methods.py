"""What a round costs with each method, relative to FedAvg in the same run.

Every objective, server optimizer and personalization method of the tables of names, and client-level privacy, on 20
clients of the bundled digits with the small CNN of the CPU tables: rounds of 10 clients, five local steps each,
stacked, one torch thread. A round's time is the processor's between two events of the federation, which others on the
machine hardly change, and the median of its rounds; FedAvg is measured right before every method. FedBN's network has
batch normalisation, and so has the FedAvg that it is compared with. Methods that begin when the rounds are over cost
a round nothing and are left out. AFL, whose round is another (one full gradient of every client), is shown as it is.

What a method may cost follows from the gradients that it takes per local step of FedAvg, with a fifth on top, and a
tenth for what does no more than FedAvg on clients.

Run: ``python benchmarks/federated_methods.py``. Takes under three minutes, and writes
results/benchmarks/federated-methods.json. ``--list`` says what would be measured.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from holdfast.data import load_federation
from holdfast.federated import (
    OBJECTIVES,
    PERSONALIZATION,
    SERVER_OPTIMIZERS,
    ClientPrivacy,
    Ditto,
    Rounds,
    federate,
)
from holdfast.federated.personalization.base import PostHocPersonalizer
from holdfast.models import build
from holdfast.papers.engine.benchmarks import Ratio, write_benchmark
from holdfast.training import Event

SETTINGS = Rounds(
    rounds=8,
    cohort=10,
    batch_size=16,
    local_steps=5,
    learning_rate=0.05,
    sampling="uniform",
    evaluate_every=0,
    executor="batched",
    chunk=10,
)
PASSES = 3
#: Gradients per local step of FedAvg, where they are not two (the shared model's and the personal one's), with what a
#: round has beside them: passes for losses, or candidates that are tried.
GRADIENTS = {
    **{"ditto": 5.0, "pfedme": 6.0, "per-fedavg": 3.0, "apfl": 3.0, "mapper": 4.0, "fedper": 1.0, "fedbn": 1.0},
    **{"ditto, one lambda": 2.0, "ditto, the head alone": 2.0, "ditto, skl": 4.0, "ditto, ewc": 3.0},
}
DITTOS = {
    "ditto, one lambda": Ditto(1.0),
    "ditto, the head alone": Ditto(1.0, layers=("head",)),
    "ditto, skl": Ditto(1.0, distance="skl"),
    "ditto, ewc": Ditto(1.0, distance="ewc"),
}
PLAIN, NORMALISED = "cnn-half", "cnn-half-batchnorm"
LOSSES = 2.0  # forward passes over all of a client's data
MORE, ALIKE = 1.2, 1.1


def methods() -> Iterator[tuple[str, dict[str, Any], float]]:
    """Every method, with what it is for `federate` and what it may cost."""
    for name, objective in OBJECTIVES.items():
        if name != "fedavg":
            yield name, {"objective": objective()}, (LOSSES if objective.needs_losses else 1.0) * MORE
    for name, optimizer in SERVER_OPTIMIZERS.items():
        yield name, {"server_optimizer": optimizer()}, ALIKE
    yield "private", {"privacy": ClientPrivacy(0.3, noise_seed=0)}, ALIKE
    for name, method in PERSONALIZATION.items():
        if not issubclass(method, PostHocPersonalizer):
            yield name, {"personalize": [method()]}, GRADIENTS.get(name, 2.0) * MORE
    for name, ditto in DITTOS.items():
        yield name, {"personalize": [ditto]}, GRADIENTS[name] * MORE


def network_for(name: str) -> str:
    """The network that a method is measured on."""
    return NORMALISED if name == "fedbn" else PLAIN


def seconds_of_a_round(options: Mapping[str, Any], network: str) -> float:
    """The median over the rounds of a federation; the first is for warming up."""
    clients = load_federation("digits-clients", clients=20)
    settings = replace(SETTINGS, sampling="poisson") if "privacy" in options else SETTINGS
    times: list[float] = []

    def listen(event: Event) -> None:
        times.append(time.process_time())

    federate(clients, build(network, clients.input_shape, 10, seed=0), settings, listeners=[listen], **options)
    rounds = times[1 : settings.rounds + 1]  # between the start and the end
    return statistics.median(later - earlier for earlier, later in pairwise(rounds))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=PASSES, help="over all methods")
    parser.add_argument("--list", action="store_true", help="say what would be measured, and stop")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the results folder")
    arguments = parser.parse_args()
    every = list(methods())
    if arguments.list:
        for name, _, target in every:
            print(f"{name:16} at most {target:.2f} of FedAvg's round")
        return
    torch.set_num_threads(1)
    seconds_of_a_round({}, PLAIN)
    ratios: dict[str, list[float]] = {name: [] for name, _, _ in every}
    for _ in range(arguments.passes):
        for name, options, _ in every:
            fedavg = seconds_of_a_round({}, network_for(name))
            ratios[name].append(seconds_of_a_round(options, network_for(name)) / fedavg)
    found = [Ratio.over(f"a round of {name}", ratios[name], round(target, 2), "FedAvg") for name, _, target in every]
    for ratio in found:
        print(f"{ratio.name:28} {ratio.value:6.2f}  (at most {ratio.target:.2f}){'' if ratio.met else '  NOT MET'}")
    print(write_benchmark("federated-methods", found, arguments.results))


if __name__ == "__main__":
    main()
