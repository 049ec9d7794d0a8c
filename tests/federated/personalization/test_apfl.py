import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated.federation import federate
from holdfast.federated.personalization import Apfl, Ditto
from holdfast.federated.settings import Rounds
from tests.federated.personalization.toy import Point, Squares, points, rows

VALUES = [1.0, 3.0, -2.0]
#: The shared model stays where it is.
FIXED = Rounds(
    rounds=10,
    cohort=3,
    batch_size=1,
    local_steps=20,
    learning_rate=1e-12,
    personal_learning_rate=0.9,
    evaluate_every=0,
    executor="batched",
)


@pytest.fixture(autouse=True)
def squares(monkeypatch):
    monkeypatch.setattr("holdfast.federated.preparation.Network", Squares)


def test_with_the_shared_model_at_rest_mixtures_end_at_the_local_optimum_whatever_alpha():
    """So APFL is training alone in the limit, and Ditto is not."""
    net = Point()
    net.w.data.fill_(0.5)
    methods = [Apfl(alpha) for alpha in (0.3, 0.5, 0.8, 1.0)]
    outcome = federate(points(VALUES), net, FIXED, personalize=[*methods, Ditto(1.0)])
    everybody = torch.arange(3)
    for method in methods:
        mixed = outcome.runtime.personal(method.label, everybody, outcome.weights).flatten()
        torch.testing.assert_close(mixed, torch.tensor(VALUES), rtol=0, atol=1e-5)
    pulled = outcome.runtime.personal("ditto-1", everybody, outcome.weights).flatten()
    torch.testing.assert_close(pulled, (torch.tensor(VALUES) + 0.5) / 2, rtol=0, atol=1e-5)


def by_hand(value, alpha, adaptive, *, rounds=4, steps=2, eta=0.2):
    """Clients' copies and own models for everybody in every round."""
    w, v, alphas = 0.0, [0.0] * len(value), [alpha] * len(value)
    for _ in range(rounds):
        copies = [w] * len(value)
        for k, x in enumerate(value):
            for _ in range(steps):
                copies[k] -= eta * (copies[k] - x)
                gradient = alphas[k] * v[k] + (1 - alphas[k]) * copies[k] - x
                slope = gradient * (v[k] - copies[k])
                v[k] -= eta * alphas[k] * gradient
                if adaptive:
                    alphas[k] = min(max(alphas[k] - eta * slope, 0.0), 1.0)
        w = sum(copies) / len(copies)
    return w, v, alphas


@pytest.mark.parametrize("adaptive", [False, True])
def test_rounds_are_those_of_the_algorithm_on_paper(adaptive):
    method = Apfl(0.3, adaptive=adaptive)
    settings = Rounds(rounds=4, cohort=3, batch_size=1, learning_rate=0.2, evaluate_every=0, executor="serial")
    outcome = federate(points(VALUES), Point(), settings, personalize=[method])
    w, v, alphas = by_hand(VALUES, 0.3, adaptive)
    assert float(outcome.weights) == pytest.approx(w, abs=1e-6)
    kept = rows(outcome, method.label)
    torch.testing.assert_close(kept, torch.tensor([v, alphas]).T, rtol=1e-5, atol=1e-6)
    assert (kept[:, 1] != 0.3).any() == adaptive
    personal = outcome.runtime.personal(method.label, torch.arange(3), outcome.weights).flatten()
    expected = [a * own + (1 - a) * w for a, own in zip(alphas, v, strict=True)]
    torch.testing.assert_close(personal, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_alpha_is_a_share():
    with pytest.raises(ConfigError, match="alpha is 2"):
        Apfl(2.0)
