"""The linear theory on hundreds of random draws: what is stated holds, and what is printed wrongly does not."""

import math

import numpy as np
import pytest

from holdfast.theory.personalization import (
    angle_between,
    angle_range,
    conditional_distance,
    deviation_bound,
    disparity,
    disparity_bound,
    entanglement,
    gradient_norm_bound,
    input_gradient_bound,
    input_gradients,
    local_disparity_bound,
    logistic_loss,
    safe_angle,
    spurious_angle,
    transfer_terms,
)
from holdfast.theory.personalization.gaussian import draw

DRAWS = 300


def models(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    size = int(rng.integers(3, 13))
    shared = rng.standard_normal(size) * rng.uniform(0.2, 3)
    return shared, shared + rng.standard_normal(size) * rng.uniform(0.05, 2)


def product_data(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every combination of a few x_r and a few x_s given the label, so that they are independent exactly."""
    n_r, n_s = 4, 5
    inputs, others, labels = [], [], []
    for label, copies in ((0, int(rng.integers(1, 4))), (1, int(rng.integers(1, 4)))):
        x_r = rng.standard_normal((n_r, size - 1)) + label
        x_s, other = rng.standard_normal((2, n_s, 1)) * rng.uniform(0.2, 3) + rng.uniform(-2, 2, (2, 1, 1))
        for part, spurious in ((inputs, x_s), (others, other)):
            pairs = np.concatenate([np.repeat(x_r, n_s, axis=0), np.tile(spurious, (n_r, 1))], axis=1)
            part.append(np.tile(pairs, (copies, 1)))
        labels.append(np.full(n_r * n_s * copies, float(label)))
    return np.concatenate(inputs), np.concatenate(others), np.concatenate(labels)


def test_the_gradient_of_inputs_is_that_of_the_loss():
    rng = np.random.default_rng(0)
    w, x, y = rng.standard_normal(4), rng.standard_normal((5, 4)), np.array([0.0, 1, 0, 1, 1])
    for column in range(4):
        ahead, behind = x.copy(), x.copy()
        ahead[:, column] += 1e-6
        behind[:, column] -= 1e-6
        slope = (logistic_loss(w, ahead, y) - logistic_loss(w, behind, y)) / 2e-6
        np.testing.assert_allclose(input_gradients(w, x, y)[:, column], slope, atol=1e-8)


def test_the_cosine_of_theorem_2_is_an_identity_and_the_printed_form_is_none():
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(DRAWS):
        shared, own = models(rng)
        x, y = rng.standard_normal((50, len(own))), rng.integers(0, 2, 50).astype(float)
        epsilon = rng.uniform(0.01, 1.5)
        terms = transfer_terms(shared, own, x, y, epsilon)
        assert terms.cosine == pytest.approx(math.cos(angle_between(shared, own)), abs=1e-10)
        assert angle_between(shared, own) <= safe_angle(terms, own, epsilon) + 1e-9
        assert -(epsilon**2) * own @ own / 8 <= terms.remainder <= epsilon**2 * shared @ shared / 8
        wrong += not -1 <= terms.printed <= 1
    assert wrong > DRAWS / 2


def test_a_smaller_transferability_loss_or_gradient_means_a_smaller_angle():
    rng = np.random.default_rng(2)
    shared, own = models(rng)
    x, y = rng.standard_normal((50, len(own))), rng.integers(0, 2, 50).astype(float)
    terms = transfer_terms(shared, shared + 0.01 * own, x, y, 0.05)
    assert terms.shared > terms.transfer_loss
    assert terms.cosine > type(terms)(terms.shared, terms.own, terms.remainder, terms.transfer_loss + 0.01).cosine
    assert terms.cosine > type(terms)(terms.shared, 2 * terms.own, terms.remainder, terms.transfer_loss).cosine


def test_theorem_1_and_its_corollaries_are_never_violated_with_the_conditional_distance():
    rng = np.random.default_rng(3)
    for _ in range(DRAWS):
        shared, own = models(rng)
        x, other, y = product_data(rng, len(own))
        distance = conditional_distance(x[:, -1], other[:, -1], y)
        gaps = [disparity(w, x, other, y) for w in (shared, own)]
        assert abs(gaps[1]) <= disparity_bound(own, 1, distance) + 1e-12
        assert abs(gaps[0] - gaps[1]) <= deviation_bound(shared, own, 1, distance) + 1e-12
        assert abs(gaps[1]) <= local_disparity_bound(shared, own, 1, distance) + 1e-12
        low, high = angle_range(shared, own, 1)
        assert low - 1e-9 <= spurious_angle(own, 1) <= high + 1e-9


def test_without_the_label_the_distance_of_environments_that_swap_is_zero_and_the_theorem_false():
    rng = np.random.default_rng(4)
    x, y = draw(20_000, 1.0, rng)
    other = x.copy()
    other[:, 1] -= 2 * (2 * y - 1)
    marginal = np.abs(np.sort(x[:, 1]) - np.sort(other[:, 1])).mean()
    w = np.array([2.0, 2.0])
    gap = disparity(w, x, other, y)
    assert gap == pytest.approx(-1.142, abs=0.05)
    assert abs(gap) > disparity_bound(w, 1, float(marginal))
    assert abs(gap) <= disparity_bound(w, 1, conditional_distance(x[:, 1], other[:, 1], y))


def test_corollary_1_as_printed_fails_where_both_models_are_the_same():
    """With the last term's sign as printed the left side is twice a loss, and the right side is 0."""
    x, y = draw(50_000, 1.0, np.random.default_rng(5))
    w = np.array([2.0, 0.0])
    printed = 2 * abs(float(logistic_loss(w, x, y).mean()))
    assert printed == pytest.approx(0.7126, abs=0.01)
    assert deviation_bound(w, w, 1, 2.0) == pytest.approx(0, abs=1e-12)


def test_proposition_1_holds_with_squared_inputs_and_fails_as_printed():
    shared, own, x, y = np.zeros(1), np.full(1, 0.01), np.full((1, 1), 10.0), np.zeros(1)
    grown = [abs(1 / (1 + math.exp(-float((x @ w)[0])))) * 10 for w in (shared, own)]
    assert grown[1] - grown[0] == pytest.approx(0.2498, abs=1e-3)
    assert grown[1] - grown[0] > 10 * 0.01, "rho E|x| |w_l - w_g|, as printed"
    assert grown[1] - grown[0] <= gradient_norm_bound(shared, own, x)
    rng = np.random.default_rng(6)
    for _ in range(DRAWS):
        shared, own = models(rng)
        x, y = rng.standard_normal((30, len(own))), rng.integers(0, 2, 30).astype(float)
        norms = [np.linalg.norm(input_gradients(w, x, y), axis=1).mean() for w in (shared, own)]
        assert abs(norms[0] - norms[1]) <= input_gradient_bound(shared, own, x) + 1e-12
        assert abs(np.linalg.norm(own) - np.linalg.norm(shared)) <= np.linalg.norm(own - shared) + 1e-12


def test_a_model_without_spurious_weights_stands_at_a_right_angle():
    assert spurious_angle(np.array([2.0, 0.0]), 1) == pytest.approx(math.pi / 2)
    assert spurious_angle(np.array([0.0, 3.0]), 1) == 0
    assert entanglement(np.array([1.0, 3.0, 4.0]), 2) == 5
