"""6.3 and 6.4: both bounds on random interpolating least squares, trained on the gradient of a part."""

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.theory.epic import kept_descent_bound, printed_descent_bound


@pytest.mark.parametrize("seed", range(40))
def test_training_on_a_part_stays_within_both_bounds(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n, d = 12, 20
    x = draw.standard_normal((n, d)) / np.sqrt(d)
    y = x @ draw.standard_normal(d)
    kept = draw.permutation(n)[: int(draw.integers(6, n))]
    values = np.linalg.eigvalsh(x @ x.T / n)
    pl, rate = float(values[0]), float(1 / values[-1])
    w = draw.standard_normal(d)
    losses, errors, norms, changes = [], [0.0], [0.0], [0.0]
    for _ in range(300):
        residual = x @ w - y
        whole, part = x.T @ residual / n, x[kept].T @ residual[kept] / len(kept)
        losses.append(float(residual @ residual / (2 * n)))
        errors.append(float(np.linalg.norm(whole - part)))
        changes.append(abs(float(np.linalg.norm(whole) - np.linalg.norm(part))))
        norms.append(float(np.linalg.norm(whole)))
        w = w - rate * part
    assert all(norm**2 / 2 >= pl * loss - 1e-12 for norm, loss in zip(norms[1:], losses, strict=True))
    for step, loss in enumerate(losses):
        assert loss <= kept_descent_bound(step, losses[0], rate=rate, pl=pl, error=max(errors)) + 1e-9
    if max(errors) <= max(norms):
        for step, loss in enumerate(losses):
            bound = printed_descent_bound(step, losses[0], rate=rate, pl=pl, change=max(errors), longest=max(norms))
            assert loss <= bound + 1e-9


def test_bounds_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="their product"):
        kept_descent_bound(1, 1.0, rate=2.0, pl=1.0, error=0.0)
    with pytest.raises(ConfigError, match="needs half"):
        printed_descent_bound(1, 1.0, rate=0.1, pl=1.0, change=3.0, longest=1.0)
