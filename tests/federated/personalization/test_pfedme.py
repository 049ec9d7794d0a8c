from dataclasses import replace

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated.federation import federate
from holdfast.federated.personalization import PFedMe
from holdfast.federated.settings import Rounds
from tests.federated.personalization.toy import SETTINGS, Point, Squares, points, rows, run


@pytest.mark.parametrize("beta", [1.0, 0.5, 2.0])
def test_with_many_inner_steps_theta_is_the_proximal_point_and_the_server_mixes_by_beta(monkeypatch, beta):
    """On (w - x)^2 / 2 the proximal point is (x + lambda w) / (1 + lambda)."""
    monkeypatch.setattr("holdfast.federated.federation.Network", Squares)
    values, eta, lambda_ = [1.0, 3.0, -2.0], 0.2, 2.0
    settings = Rounds(rounds=3, cohort=3, batch_size=1, learning_rate=eta, evaluate_every=0, executor="batched")
    outcome = federate(points(values), Point(), settings, personalize=[PFedMe(lambda_, inner=60, beta=beta)])
    w, theta = 0.0, [0.0] * 3
    for _ in range(3):
        copies = []
        for k, x in enumerate(values):
            copy = w
            for _ in range(settings.local_steps):
                theta[k] = (x + lambda_ * copy) / (1 + lambda_)
                copy -= eta * lambda_ * (copy - theta[k])
            copies.append(copy)
        w = (1 - beta) * w + beta * sum(copies) / 3
    assert float(outcome.weights) == pytest.approx(w, abs=1e-5)
    torch.testing.assert_close(rows(outcome, "pfedme").flatten(), torch.tensor(theta), rtol=1e-5, atol=1e-5)


def test_options_are_checked():
    with pytest.raises(ConfigError, match="inner is 0"):
        PFedMe(inner=0)
    with pytest.raises(ConfigError, match="beta is 0"):
        PFedMe(beta=0.0)
    with pytest.raises(ConfigError, match=r"lambda 15 times the learning rate 0\.2"):
        run(PFedMe(), settings=replace(SETTINGS, learning_rate=0.2))
