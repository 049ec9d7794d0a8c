from dataclasses import replace

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated.federation import federate
from holdfast.federated.personalization import PFedMe
from holdfast.federated.settings import Rounds
from tests.federated.personalization.toy import SETTINGS, Point, Squares, points, rows, run


@pytest.fixture(autouse=True)
def squares(monkeypatch):
    monkeypatch.setattr("holdfast.federated.preparation.Network", Squares)


VALUES, ETA, LAMBDA = [1.0, 3.0, -2.0], 0.2, 2.0
SMALL = Rounds(rounds=3, cohort=3, batch_size=1, learning_rate=ETA, evaluate_every=0, executor="batched")


def by_hand(solve, beta):
    """Everybody in every round, where `solve(x, theta, copy)` gives the new theta."""
    w, theta = 0.0, [0.0] * 3
    for _ in range(SMALL.rounds):
        copies = []
        for k, x in enumerate(VALUES):
            copy = theta[k] = w
            for _ in range(SMALL.local_steps):
                theta[k] = solve(x, theta[k], copy)
                copy -= ETA * LAMBDA * (copy - theta[k])
            copies.append(copy)
        w = (1 - beta) * w + beta * sum(copies) / 3
    return w, theta


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_with_many_inner_steps_theta_is_the_proximal_point_and_the_server_mixes_by_beta(beta):
    """On (w - x)^2 / 2 the proximal point is (x + lambda w) / (1 + lambda)."""
    outcome = federate(points(VALUES), Point(), SMALL, personalize=[PFedMe(LAMBDA, inner=25, beta=beta)])
    w, theta = by_hand(lambda x, theta, copy: (x + LAMBDA * copy) / (1 + LAMBDA), beta)
    assert float(outcome.weights) == pytest.approx(w, abs=1e-5)
    torch.testing.assert_close(rows(outcome, "pfedme").flatten(), torch.tensor(theta), rtol=1e-5, atol=1e-5)


def test_inner_steps_start_at_the_received_model_in_each_round():
    outcome = federate(points(VALUES), Point(), SMALL, personalize=[PFedMe(LAMBDA, inner=1)])
    w, theta = by_hand(lambda x, theta, copy: theta - ETA * (theta - x + LAMBDA * (theta - copy)), 1.0)
    assert float(outcome.weights) == pytest.approx(w, abs=1e-6)
    torch.testing.assert_close(rows(outcome, "pfedme").flatten(), torch.tensor(theta), rtol=1e-5, atol=1e-6)


def test_options_are_checked():
    with pytest.raises(ConfigError, match="inner is 0"):
        PFedMe(inner=0)
    with pytest.raises(ConfigError, match="beta is 0"):
        PFedMe(beta=0.0)
    with pytest.raises(ConfigError, match=r"lambda 15 times the learning rate 0\.2"):
        run(PFedMe(), settings=replace(SETTINGS, learning_rate=0.2))
