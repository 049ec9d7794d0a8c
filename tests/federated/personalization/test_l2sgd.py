from dataclasses import replace

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated.federation import federate
from holdfast.federated.personalization import L2Sgd
from holdfast.federated.settings import Rounds
from tests.federated.personalization.toy import SETTINGS, Point, Squares, points, rows, run


@pytest.mark.parametrize("rounds", [1, 2, 5, 9])
@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_the_shared_model_is_the_mean_of_all_personal_models_after_every_round(rounds, executor):
    settings = replace(SETTINGS, rounds=rounds, executor=executor)
    outcome = run(L2Sgd(0.5), settings=settings)
    everyone = rows(outcome, "l2sgd")
    torch.testing.assert_close(outcome.weights, everyone.double().mean(0).float(), rtol=0, atol=2e-7)
    assert not torch.allclose(outcome.weights, run(settings=settings).weights, atol=1e-3)


def test_the_reference_variant_is_no_exact_mean():
    outcome = run(L2Sgd(0.5, reference=True))
    assert (outcome.weights - rows(outcome, "l2sgd").mean(0)).abs().max() > 1e-3


@pytest.mark.parametrize("reference", [False, True])
def test_rounds_are_those_of_the_algorithm_on_paper(monkeypatch, reference):
    """Two of four clients take part in each round; mean and personal models by a scalar loop."""
    monkeypatch.setattr("holdfast.federated.preparation.Network", Squares)
    values, eta, lambda_ = [1.0, 3.0, -2.0, 6.0], 0.2, 0.7
    settings = Rounds(
        rounds=5, cohort=2, batch_size=1, learning_rate=eta, sampling="uniform", evaluate_every=0, executor="serial"
    )
    chosen = []
    monkeypatch.setattr(
        "holdfast.federated.federation.select",
        lambda settings, number, sizes, malicious, secret: (
            chosen.append([number % 4, (number + 1) % 4]) or torch.tensor(sorted(chosen[-1]))
        ),
    )
    outcome = federate(points(values), Point(), settings, personalize=[L2Sgd(lambda_, reference=reference)])
    mean, v = 0.0, [0.0] * 4
    for pair in chosen:
        moved = 0.0
        for k in pair:
            old = v[k]
            for _ in range(settings.local_steps):
                v[k] -= eta * (v[k] - values[k] + lambda_ * (v[k] - mean))
            moved += v[k] - (mean if reference else old)
        mean += moved / 4
    assert float(outcome.weights) == pytest.approx(mean, abs=1e-6)
    torch.testing.assert_close(rows(outcome, "l2sgd").flatten(), torch.tensor(v), rtol=1e-5, atol=1e-6)


def test_a_pull_that_overshoots_is_refused():
    with pytest.raises(ConfigError, match="lambda 20 times"):
        run(L2Sgd(20.0))
