import numpy as np
import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import Bulyan, Mean, bulyan_mean, bulyan_select
from tests.federated.aggregation.rounds import random_round


def slowly(updates: np.ndarray, f: int) -> np.ndarray:
    """Algorithm of the paper in plain loops."""
    m, left, selected = len(updates), list(range(len(updates))), []
    while len(selected) < m - 2 * f:
        scores = {}
        for i in left:
            others = sorted(float(((updates[i] - updates[j]) ** 2).sum()) for j in left if j != i)
            scores[i] = sum(others[: max(len(left) - f - 2, 1)])
        best = min(left, key=lambda i: (scores[i], i))
        selected.append(best)
        left.remove(best)
    result = np.empty(updates.shape[1])
    for coordinate in range(updates.shape[1]):
        values = updates[selected, coordinate]
        nearest = sorted(values, key=lambda value: abs(value - np.median(values)))
        result[coordinate] = np.mean(nearest[: m - 4 * f])
    return result


@pytest.mark.parametrize(("m", "f"), [(7, 1), (9, 1), (11, 2), (15, 3), (23, 5)])
def test_bulyan_is_what_plain_loops_give(m, f):
    updates = random_round(m, m, 25)
    updates[:f] += 3
    torch.testing.assert_close(bulyan_mean(updates, f), torch.as_tensor(slowly(updates.numpy(), f)), rtol=0, atol=1e-12)


def test_one_coordinate_that_krum_would_let_pass_is_averaged_away():
    generator = torch.Generator().manual_seed(0)
    updates = torch.randn(11, 5000, generator=generator, dtype=torch.float64)
    updates[:2] = updates[2:].mean(0)
    updates[:2, 0] = 30.0  # nearer to the others than they are to each other
    assert set(bulyan_select(updates, 2)[:1].tolist()) <= {0, 1}
    assert abs(float(Bulyan()(updates, f=2)[0])) < 3


def test_without_attackers_it_is_the_mean_and_too_many_are_refused():
    updates = random_round(0, 6, 8)
    torch.testing.assert_close(Bulyan()(updates), Mean()(updates), rtol=0, atol=1e-12)
    for refused in (lambda: Bulyan()(updates, f=2), lambda: Bulyan().check(6, 2)):
        with pytest.raises(ConfigError, match="expect fewer attackers"):
            refused()
    assert "4f" in Bulyan().check(6, 1)[0]
