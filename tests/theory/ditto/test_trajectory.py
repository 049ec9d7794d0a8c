import numpy as np
import pytest

from holdfast.theory.ditto import ditto_trajectory, fedavg_fixed_point


def rounds_by_hand(optima, rounds, *, lambda_, eta, r, s, anchor):
    """Algorithm 2 step by step, with a choice of what the personal model is pulled to."""
    w, v = 0.0, np.zeros(len(optima))
    ws, vs = [w], [v]
    for _ in range(rounds):
        local = np.full(len(optima), w)
        for _ in range(r):
            local = local - eta * (local - optima)
        after = local.mean()
        pulled_to = {"received": w, "own step": local, "next": after}[anchor]
        for _ in range(s):
            v = v - eta * (v - optima + lambda_ * (v - pulled_to))
        w = after
        ws.append(w)
        vs.append(v)
    return np.array(ws), np.array(vs)


def test_three_rounds_of_two_clients_are_the_reference():
    w, v = ditto_trajectory([1, 3], 3, lambda_=1, global_step=0.5, personal_step=0.5)
    assert w.tolist() == [0, 1, 1.5, 1.75]
    assert v.tolist() == [[0, 0], [0.5, 1.5], [1, 2], [1.25, 2.25]]


@pytest.mark.parametrize(("anchor", "first"), [("own step", [0.75, 2.25]), ("next", [1.0, 2.0])])
def test_other_anchors_give_another_trajectory(anchor, first):
    _, v = rounds_by_hand(np.array([1.0, 3.0]), 1, lambda_=1, eta=0.5, r=1, s=1, anchor=anchor)
    assert v[1].tolist() == first


@pytest.mark.parametrize(("r", "s"), [(1, 1), (3, 1), (1, 4), (2, 5)])
def test_the_closed_form_is_what_the_steps_give(r, s):
    optima = np.array([1.0, 3.0, -2.0])
    steps = rounds_by_hand(optima, 12, lambda_=0.7, eta=0.3, r=r, s=s, anchor="received")
    found = ditto_trajectory(
        optima, 12, lambda_=0.7, global_step=0.3, personal_step=0.3, global_steps=r, personal_steps=s
    )
    for mine, theirs in zip(found, steps, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_the_limit_is_the_solution_of_both_problems():
    w, v = ditto_trajectory([1, 3], 200, lambda_=1, global_step=0.5, personal_step=0.4, start=9.0)
    np.testing.assert_allclose(w[-1], 2, atol=1e-12)
    np.testing.assert_allclose(v[-1], [1.5, 2.5], atol=1e-12)


def fedavg(optima, curvatures, step, local_steps, rounds=2000):
    w = 0.0
    for _ in range(rounds):
        local = np.full(len(optima), w)
        for _ in range(local_steps):
            local = local - step * curvatures * (local - optima)
        w = local.mean()
    return w


@pytest.mark.parametrize("local_steps", [1, 5])
@pytest.mark.parametrize("curvatures", [(1.0, 1.0), (1.0, 4.0)])
def test_fedavg_ends_at_its_fixed_point(curvatures, local_steps):
    optima, curvatures = np.array([1.0, 3.0]), np.array(curvatures)
    expected = fedavg_fixed_point(optima, curvatures, 0.1, local_steps)
    assert fedavg(optima, curvatures, 0.1, local_steps) == pytest.approx(expected, abs=1e-12)


def test_fedavg_is_biased_by_local_steps_where_curvatures_differ():
    optima = [1.0, 3.0]
    assert fedavg_fixed_point(optima, [2.0, 2.0], 0.1, 50) == pytest.approx(2, abs=1e-14)
    minimiser = (1 * 1 + 4 * 3) / 5
    assert fedavg_fixed_point(optima, [1.0, 4.0], 0.1, 1) == pytest.approx(minimiser, abs=1e-14)
    biased = [abs(fedavg_fixed_point(optima, [1.0, 4.0], 0.1, r) - minimiser) for r in (2, 5, 20)]
    assert biased[0] > 0.02
    assert biased == sorted(biased)
    assert fedavg_fixed_point(optima, [1.0, 4.0], 1e-6, 5) == pytest.approx(minimiser, abs=1e-5)
