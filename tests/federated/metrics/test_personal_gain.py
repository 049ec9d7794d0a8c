"""Personal models against the shared one: recomputed by hand, and reasons only where they were observed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data import load_federation
from holdfast.federated import Ditto, FineTuning, Local, Rounds, federate
from holdfast.federated.metrics.client_report import ClientReport
from holdfast.federated.metrics.personal_gain import Observed, PersonalGain
from holdfast.federated.metrics.scoring import ClientScores
from holdfast.federated.run_files import gains_of
from holdfast.models import build

CLIENTS = 6


def report(correct, benign, count=10):
    counts = torch.full((len(correct),), count)
    scores = ClientScores(torch.arange(len(correct)), torch.zeros(len(correct)).double(), torch.tensor(correct), counts)
    return ClientReport(scores, torch.tensor(benign))


def observed(**given):
    """Nothing that would explain anything."""
    usual = {"steps": torch.full((CLIENTS,), 500), "joined": torch.full((CLIENTS,), 20), "rounds": 20}
    return Observed(**{**usual, "validation": torch.full((CLIENTS,), 100), **given})


@given(
    *(st.lists(st.integers(0, 10), min_size=CLIENTS, max_size=CLIENTS) for _ in range(2)),
    *(st.lists(st.booleans(), min_size=CLIENTS, max_size=CLIENTS) for _ in range(2)),
)
def test_counts_and_mean_are_over_benign_clients_with_a_model_of_their_own(own, shared, benign, trained):
    gain = PersonalGain.of(
        "ditto", report(own, benign), report(shared, benign), torch.tensor(trained), observed(steps=torch.ones(CLIENTS))
    )
    keep = np.array(benign) & np.array(trained)
    if not keep.any():
        assert gain is None
        return
    difference = (np.array(own) - np.array(shared))[keep] / 10
    assert (gain.clients, gain.better, gain.worse) == (keep.sum(), (difference > 0).sum(), (difference < 0).sum())
    assert gain.mean == pytest.approx(difference.mean(), abs=1e-12)
    if keep.sum() > 1:
        assert gain.error == pytest.approx(difference.std(ddof=1) / keep.sum() ** 0.5, abs=1e-12)
    assert bool(gain.reasons) == (gain.mean < 0)
    assert f"worse for {gain.worse}" in gain.sentence()


CHOSEN = {"candidates": (0.1, 1.0, 2.0), "enough": 4}


@pytest.mark.parametrize(
    ("given", "clauses"),
    [
        ({}, []),
        ({"steps": torch.full((CLIENTS,), 8)}, ["at most 8 steps (give more steps to each)"]),
        (
            {"steps": torch.full((CLIENTS,), 8), "joined": torch.full((CLIENTS,), 4), "from_initial": True},
            ["at most 4 of 20 rounds, with 8 personal steps from the initial weights"],
        ),
        ({"joined": None, "steps": torch.full((CLIENTS,), 8)}, ["at most 8 steps"]),
        ({**CHOSEN, "chosen": torch.full((CLIENTS,), 2.0)}, ["2 for 6 of 6 (offer larger candidates)"]),
        ({**CHOSEN, "chosen": torch.full((CLIENTS,), 0.1)}, ["0.1 for 6 of 6 (offer smaller candidates)"]),
        ({**CHOSEN, "chosen": torch.full((CLIENTS,), 1.0)}, []),
        ({**CHOSEN, "chosen": torch.full((CLIENTS,), torch.nan)}, []),
        ({**CHOSEN, "candidates": (2.0,), "chosen": torch.full((CLIENTS,), 2.0)}, []),
        (
            {**CHOSEN, "chosen": torch.full((CLIENTS,), 1.0), "validation": torch.tensor([2, 3, 5, 6, 9, 9])},
            ["at most 5 validation examples, and 2 had too few to choose at all"],
        ),
        ({"validation": torch.zeros(CLIENTS, dtype=torch.int64)}, []),
    ],
)
def test_reasons_are_those_that_were_observed(given, clauses):
    reasons = observed(**given).reasons(torch.ones(CLIENTS, dtype=torch.bool))
    assert len(reasons) == len(clauses)
    for reason, clause in zip(reasons, clauses, strict=True):
        assert clause in reason


def test_a_federation_of_few_rounds_says_so():
    clients = load_federation("digits-clients", clients=20)
    settings = Rounds(rounds=6, cohort=4, learning_rate=0.3, evaluate_every=0, executor="serial")
    methods = [Ditto(start="initial"), Ditto(0.5, steps=7), Local(), FineTuning(epochs=2)]
    outcome = federate(clients, build("softmax", (1, 8, 8), 10), settings, personalize=methods)
    gains = gains_of(outcome)
    assert list(gains) == ["ditto-auto", "ditto-0.5", "local", "finetuning"]
    joined = int((outcome.joined > 0).sum())
    assert joined < 20
    assert [gain.clients for gain in gains.values()] == [joined, joined, joined, 20]
    steps = int(outcome.joined[outcome.joined > 0].median())
    assert gains["local"].mean < 0 and gains["ditto-auto"].mean < 0
    assert f"with {2 * steps} personal steps (" in gains["local"].sentence()
    assert f"with {2 * steps} personal steps from the initial weights (" in gains["ditto-auto"].sentence()
    if gains["ditto-0.5"].mean < 0:
        assert f"with {7 * steps} personal steps (" in gains["ditto-0.5"].sentence()
