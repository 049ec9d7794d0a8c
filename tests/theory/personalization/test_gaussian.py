import numpy as np
import pytest

from holdfast.theory.personalization.gaussian import accuracy, draw, loss, optimum
from holdfast.theory.personalization.simulation import federate_gaussian, personalise_gaussian


def test_accuracy_and_loss_have_the_printed_values():
    global_, tuned = np.array([2.0, 0.0]), np.array([2.0, 2.0])
    assert [accuracy(global_, c) for c in (1, -1)] == pytest.approx([0.84134, 0.84134], abs=1e-5)
    assert [accuracy(tuned, c) for c in (1, -1)] == pytest.approx([0.92135, 0.5], abs=1e-5)
    assert [loss(global_, c) for c in (1, -1)] == pytest.approx([0.35632, 0.35632], abs=1e-5)
    assert [loss(tuned, c) for c in (1, -1)] == pytest.approx([0.19308, 1.33540], abs=1e-5)


@pytest.mark.parametrize(
    ("b", "accuracies", "losses"),
    [
        (0.1, 0.02420, 0.04500),
        (0.25, 0.06049, 0.11309),
        (0.5, 0.12080, 0.23018),
        (1.0, 0.23750, 0.48928),
        (2.0, 0.42135, 1.14232),
    ],
)
def test_disparities_have_the_tabulated_values_and_are_below_the_bound(b, accuracies, losses):
    w = np.array([2.0, b])
    assert accuracy(w, 1) - accuracy(w, -1) == pytest.approx(accuracies, abs=1e-4)
    assert loss(w, -1) - loss(w, 1) == pytest.approx(losses, abs=1e-4)
    assert losses <= 2 * b


def test_closed_forms_are_what_samples_give():
    w, rng = np.array([1.3, -0.7]), np.random.default_rng(0)
    x, y = draw(200_000, 0.5, rng)
    assert ((x @ w > 0) == y).mean() == pytest.approx(accuracy(w, 0.5), abs=0.005)


def test_the_best_models_of_environments_are_known():
    np.testing.assert_allclose(optimum([1.0]), [2, 2], atol=1e-8)
    np.testing.assert_allclose(optimum([-0.5]), [2, -1], atol=1e-8)
    np.testing.assert_allclose(optimum([1.0, -1.0]), [2, 0], atol=1e-8)
    np.testing.assert_allclose(optimum([1.0, 0.0]), [2.0, 0.8], atol=1e-2)


def test_fedavg_learns_what_does_not_change_and_not_what_does():
    for seed in range(3):
        vanishing, weakened = (federate_gaussian(case, 200, seed) for case in "ab")
        end = vanishing.weights[-50:].mean(0)
        assert abs(end[1]) < 0.15
        assert 1.85 <= end[0] <= 2.1
        assert 0.7 <= weakened.weights[-50:, 1].mean() <= 0.95
        spread = vanishing.gradients[:50].std(0)
        assert spread[1] >= 2 * spread[0]


def spurious(**coefficients: float) -> tuple[float, float]:
    """Mean |w_s| at the end and its deviation over the last 40 steps, over 20 clients of each sign."""
    ends, wobbles = [], []
    for sign in (1.0, -1.0):
        for seed in range(20):
            path = personalise_gaussian(sign, seed, **coefficients).weights[:, 1]
            ends.append(abs(path[-40:].mean()))
            wobbles.append(path[-40:].std())
    return float(np.mean(ends)), float(np.mean(wobbles))


def test_personalization_entangles_and_both_regularisers_together_hold_it_best():
    plain = spurious()[0]
    assert plain > 1.2
    adversarial = [spurious(adversarial=value)[0] for value in (0.1, 1, 10)]
    weights = [spurious(weights=value) for value in (0.01, 0.1, 1)]
    assert plain > adversarial[0] > adversarial[1] > adversarial[2]
    assert plain > weights[0][0] > weights[1][0] > weights[2][0]
    both = spurious(adversarial=10, weights=0.1)
    assert both[0] < 0.08
    assert both[1] < weights[2][1] / 4
    w = np.array([2.0, both[0]])
    assert accuracy(w, 1) - accuracy(w, -1) < 0.03
    w = np.array([2.0, plain])
    assert accuracy(w, 1) - accuracy(w, -1) > 0.25
