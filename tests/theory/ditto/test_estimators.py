import numpy as np
import pytest
import torch

from holdfast.theory.ditto import (
    PointEstimation,
    bayes,
    best_lambda,
    coordinate_error,
    global_model,
    least_squares,
    mixing,
    personalized,
    posterior,
    proximal_minimum,
)

K, N, D = 5, 12, 3
SIGMA, TAU = 0.7, 0.4


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def data(rng):
    """Random designs and targets of related clients."""
    designs = rng.standard_normal((K, N, D)) * rng.uniform(0.5, 2, (K, 1, 1))
    truth = TAU * rng.standard_normal((K, D))
    return designs, np.einsum("knd,kd->kn", designs, truth) + SIGMA * rng.standard_normal((K, N))


def orthogonal(rng, beta):
    """Designs with XᵀX = βI."""
    return np.sqrt(beta) * np.stack([np.linalg.qr(rng.standard_normal((N, D)))[0] for _ in range(K)])


def descend(gradient, start, size, steps=20_000):
    point = start
    for _ in range(steps):
        point = point - size * gradient(point)
    return point


@pytest.mark.parametrize("lambda_", [0.0, 0.3, 5.0])
def test_gradient_descent_ends_at_dittos_estimator(data, lambda_):
    designs, targets = data
    anchor = global_model(designs, least_squares(designs, targets))

    def gradient(v):
        residuals = np.einsum("knd,kd->kn", designs, v) - targets
        return np.einsum("knd,kn->kd", designs, residuals) / N + lambda_ * (v - anchor)

    steepest = np.linalg.eigvalsh(np.einsum("knd,kne->kde", designs, designs) / N).max() + lambda_
    found = descend(gradient, np.zeros((K, D)), 1 / steepest, steps=3_000)
    expected = personalized(designs, least_squares(designs, targets), anchor, lambda_)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_gradient_descent_on_the_sum_of_losses_ends_at_the_global_model(data):
    designs, targets = data

    def gradient(w):
        return np.einsum("knd,kn->d", designs, designs @ w - targets) / N

    found = descend(gradient, np.zeros(D), 0.05, steps=3_000)
    np.testing.assert_allclose(found, global_model(designs, least_squares(designs, targets)), atol=1e-10)


def test_with_equal_orthogonal_designs_the_estimator_is_lemma_9(rng):
    designs, lambda_ = orthogonal(rng, 25.0), 0.8
    local = rng.standard_normal((K, D))
    setting = PointEstimation(K=K, sigma=SIGMA, n=N, tau=TAU, d=D, beta=25.0)
    a, b = mixing(setting, lambda_)
    expected = a * local + b * (local.sum(axis=0) - local)
    np.testing.assert_allclose(
        personalized(designs, local, global_model(designs, local), lambda_), expected, atol=1e-12
    )


def brute_force(designs, targets):
    """Posterior of the stacked (θ, w_1, ..., w_K) with a flat prior on θ, by its precision matrix."""
    precision = np.zeros(((K + 1) * D, (K + 1) * D))
    information = np.zeros((K + 1) * D)
    identity = np.eye(D) / TAU**2
    precision[:D, :D] = K * identity
    for k, (design, target) in enumerate(zip(designs, targets, strict=True), start=1):
        here = slice(k * D, (k + 1) * D)
        precision[here, here] = identity + design.T @ design / SIGMA**2
        precision[here, :D] = precision[:D, here] = -identity
        information[here] = design.T @ target / SIGMA**2
    covariance = np.linalg.inv(precision)
    blocks = [covariance[k * D : (k + 1) * D, k * D : (k + 1) * D] for k in range(1, K + 1)]
    return (covariance @ information)[D:].reshape(K, D), np.stack(blocks)


def test_the_bayes_estimator_is_the_posterior_of_the_joint_gaussian_for_any_design(data):
    mean, covariance = brute_force(*data)
    found = bayes(*data, SIGMA, TAU)
    np.testing.assert_allclose(found.mean, mean, atol=1e-12)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-12)


def test_ditto_at_the_best_lambda_is_the_posterior_mean_with_orthogonal_designs_only(rng, data):
    designs, targets = orthogonal(rng, 25.0), data[1]
    setting = PointEstimation(K=K, sigma=SIGMA, n=N, tau=TAU, d=D, beta=25.0)
    for used, equal in ((designs, True), (data[0], False)):
        local = least_squares(used, targets)
        ditto = personalized(used, local, global_model(used, local), best_lambda(setting))
        mean, covariance = brute_force(used, targets)
        assert (np.abs(ditto - mean).max() < 1e-12) == equal
        if equal:
            np.testing.assert_allclose(covariance[0], posterior(setting).variance * np.eye(D), atol=1e-14)


def test_with_the_literal_loss_the_best_lambda_doubles(rng):
    """Without the 1/2 in the loss its Hessian doubles, as if β did while the noise stayed."""
    setting = PointEstimation(K=K, sigma=SIGMA, n=N, tau=TAU, d=D, beta=25.0)
    c, designs = setting.curvature, orthogonal(rng, 25.0)
    local = rng.standard_normal((K, D))
    common = global_model(designs, local)
    targets = np.einsum("knd,kd->kn", designs, local)

    def literal(lambda_, k):
        design, target = torch.from_numpy(designs[k]), torch.from_numpy(targets[k])
        return proximal_minimum(lambda v: (design @ v - target).square().sum() / N, torch.from_numpy(common), lambda_)

    best = best_lambda(setting)
    expected = personalized(designs, local, common, best)
    np.testing.assert_allclose(literal(2 * best, 1), expected[1], atol=1e-12)
    grid = best * np.geomspace(0.5, 4, 301)
    share = grid / (2 * c + grid)  # how far the literal loss lets a model go towards the global one
    errors = coordinate_error(setting, c * share / (1 - share))
    assert grid[errors.argmin()] == pytest.approx(2 * best, rel=0.01)


def test_prediction_errors_are_beta_times_parameter_errors(rng):
    designs, error = orthogonal(rng, 25.0), rng.standard_normal((K, D))
    predictions = np.einsum("knd,kd->kn", designs, error)
    np.testing.assert_allclose((predictions**2).sum(axis=1), 25 * (error**2).sum(axis=1), rtol=1e-12)
