import math

import pytest
import torch

from holdfast.data import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.spurious.objectives.group_dro import GroupDRO, GroupDroLoss, group_losses
from holdfast.training import Batch, Forward, Run, Training, evaluate, fit
from holdfast.training.method import as_method
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_model, toy_splits


def examples_of(groups: list[int], n_groups: int | None = None) -> Examples:
    names = None if n_groups is None else [f"g{g}" for g in range(n_groups)]
    return Examples.of(torch.zeros(len(groups), 1), [0] * len(groups), groups=groups, group_names=names)


class Given(Forward):
    """A forward pass whose losses are given."""

    def __init__(self, losses, positions, weights=None) -> None:
        losses = torch.as_tensor(losses)
        weights = torch.ones(len(losses)) if weights is None else torch.tensor(weights)
        batch = Batch(torch.zeros(len(losses), 1), torch.zeros(len(losses)).long(), torch.tensor(positions), weights)
        super().__init__(torch.nn.Identity(), batch)
        self.losses = losses


def prepared(groups: list[int], **options) -> GroupDroLoss:
    objective = GroupDroLoss(**options)
    objective.prepare(examples_of(groups))
    return objective


def test_group_losses_equal_the_loop():
    generator = torch.Generator().manual_seed(0)
    losses, groups = torch.rand(40, generator=generator), torch.randint(5, (40,), generator=generator)
    groups[groups == 2] = 0
    means, present = group_losses(losses, groups, 6)
    assert present.tolist() == [True, True, False, True, True, False]
    for g in range(6):
        inside = losses[groups == g]
        assert float(means[g]) == pytest.approx(float(inside.mean()) if len(inside) else 0)


def test_the_loss_and_the_weights_follow_the_formula_over_many_steps():
    groups, eta = [0, 0, 1, 1, 2, 2], 0.1
    objective = prepared(groups, eta_q=eta)
    q = [1 / 3] * 3
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        losses = torch.rand(6, generator=generator)
        means = [float(losses[2 * g : 2 * g + 2].mean()) for g in range(3)]
        q = [weight * math.exp(eta * mean) for weight, mean in zip(q, means, strict=True)]
        q = [weight / sum(q) for weight in q]
        loss = objective(Given(losses, list(range(6))))
        assert float(loss) == pytest.approx(sum(w * m for w, m in zip(q, means, strict=True)), rel=1e-4)
        assert objective.q.tolist() == pytest.approx(q, rel=1e-3)
        assert float(objective.q.sum()) == pytest.approx(1)


@pytest.mark.parametrize("adjustment", [0.0, 3.0])
def test_an_absent_group_keeps_its_weight_before_normalisation(adjustment):
    objective = prepared([0, 1, 2], eta_q=0.5, adjustment=adjustment)
    objective(Given([2.0, 1.0], [0, 1]))
    raw = [math.exp(0.5 * (2 + adjustment)), math.exp(0.5 * (1 + adjustment)), 1.0]
    assert objective.q.tolist() == pytest.approx([weight / sum(raw) for weight in raw])


def test_without_a_step_size_the_loss_is_the_mean_of_the_group_losses():
    objective = prepared([0, 0, 0, 1], eta_q=0)
    assert float(objective(Given([1.0, 2.0, 3.0, 10.0], [0, 1, 2, 3]))) == pytest.approx((2 + 10) / 2)


def test_weights_start_uniform_over_the_groups_that_have_examples():
    objective = GroupDroLoss()
    objective.prepare(examples_of([0, 0, 2, 3], n_groups=5))
    assert objective.q.tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    loss = objective(Given([1.0, 1.0, 1.0, 1.0], [0, 1, 2, 3]))
    assert float(loss) == pytest.approx(1)
    assert float(objective.q[1]) == 0


def test_the_gradient_is_that_of_the_weighted_sum_with_the_weights_held_fixed():
    losses = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
    objective = prepared([0, 0, 1], eta_q=0.2)
    objective(Given(losses, [0, 1, 2])).backward()
    q = objective.q
    assert losses.grad.tolist() == pytest.approx([float(q[0]) / 2, float(q[0]) / 2, float(q[1])])
    assert not q.requires_grad


def test_the_adjustment_acts_on_the_weights_and_not_on_the_loss():
    groups = [0] * 16 + [1] * 4
    plain, adjusted = prepared(groups, eta_q=0.3), prepared(groups, eta_q=0.3, adjustment=2.0)
    forward = Given([1.0, 1.0], [0, 19])
    assert float(plain(forward)) == pytest.approx(1)
    assert float(adjusted(forward)) == pytest.approx(1)
    raw = [math.exp(0.3 * (1 + 2 / 4)), math.exp(0.3 * (1 + 2 / 2))]
    assert adjusted.q.tolist() == pytest.approx([weight / sum(raw) for weight in raw])


def test_a_group_that_was_easy_for_very_long_can_come_back():
    """As plain float32 numbers the weight would be 0 after 210 such steps, for good."""
    objective = prepared([0, 1], eta_q=0.5)
    for losses, steps in (([1.0, 0.0], 300), ([0.0, 1.0], 320)):
        for _ in range(steps):
            objective(Given(losses, [0, 1]))
    assert objective.q.tolist() == pytest.approx([0, 1], abs=1e-3)


def test_weights_of_the_examples_count():
    objective = prepared([0, 0, 1], eta_q=0)
    assert float(objective(Given([1.0, 1.0, 1.0], [0, 1, 2], weights=[0.0, 2.0, 3.0]))) == pytest.approx(2)


def test_the_method_draws_groups_equally_often_and_raises_the_weight_of_the_worst():
    method, splits, plans = as_method(GroupDRO(eta_q=0.1)), toy_splits(), []
    settings = Training(epochs=6, batch_size=16, learning_rate=0.02, ties="first")
    result = fit(
        toy_model(), splits, method, settings, listeners=[lambda e: plans.append(e) if e.kind == "plan" else 0]
    )
    assert [event.values["slots"] for event in plans] == [["sample_weight"]]
    train = evaluate(result.model, splits.train)
    assert int(method.objective.q.argmax()) == min(range(4), key=lambda g: train.by_group[g].accuracy)


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    settings = Training(epochs=4, batch_size=8, learning_rate=0.02, checkpoint_seconds=0)
    straight, resumed = as_method(GroupDRO()), as_method(GroupDRO())
    expected = fit(toy_model(), toy_splits(), straight, settings)
    run = Run.create(tmp_path / "run", {})
    for steps in (1, 13, 27):
        with pytest.raises(StopHere):
            fit(toy_model(), toy_splits(), GroupDRO(), settings, run=run, listeners=[stop_after(steps)])
    result = fit(toy_model(), toy_splits(), resumed, settings, run=run)
    assert torch.equal(straight.objective.q, resumed.objective.q)
    assert fingerprint(result.model) == fingerprint(expected.model)


def test_what_is_missing_is_named():
    with pytest.raises(DataError, match="group-dro needs a group per training example"):
        GroupDroLoss().prepare(Examples.of(torch.zeros(2, 1), [0, 1]))
    with pytest.raises(ConfigError, match=r"call objective\.prepare\(train\)"):
        GroupDroLoss()(Given([1.0], [0]))
    for options in ({"eta_q": -1.0}, {"adjustment": -0.5}, {"eta_q": math.nan}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} of group-dro is"):
            GroupDRO(**options)
