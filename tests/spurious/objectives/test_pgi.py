import math

import pytest
import torch
import torch.nn.functional as F

from holdfast.data import Examples, Splits
from holdfast.errors import ConfigError, DataError
from holdfast.spurious import InferGroups
from holdfast.spurious.objectives.pgi import Pgi, PgiLoss, group_divergence, sides_in_class
from holdfast.training import Curator, Run, Training, fit
from holdfast.training.batches import Batch
from holdfast.training.clock import Clock
from holdfast.training.objective import Forward
from tests.spurious.group_inference.test_jtt import Threshold, of_first_input
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_model, toy_splits

#: Groups are looked at here; what these loops train is beside the point.
pytestmark = pytest.mark.filterwarnings("ignore:.* has a loss of its own")

SETTINGS = Training(epochs=3, batch_size=8, learning_rate=0.02, checkpoint_seconds=0)


def random_batch(b: int, classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(b, classes, generator=generator, dtype=torch.float64)
    return (
        logits,
        torch.randint(classes, (b,), generator=generator),
        torch.randint(2, (b,), generator=generator),
    )


def by_the_formula(logits, labels, sides) -> torch.Tensor:
    """The slow obvious loop over classes."""
    total = torch.zeros((), dtype=logits.dtype)
    for c in range(logits.shape[1]):
        zero, one = (logits[(labels == c) & (sides == side)].softmax(1) for side in (0, 1))
        if len(zero) and len(one):
            p, q = zero.mean(0), one.mean(0)
            total = total + (p * (p / q).log()).sum()
    return total


@pytest.mark.parametrize("seed", range(3))
def test_the_divergence_and_its_gradient_are_those_of_the_formula(seed):
    logits, labels, sides = random_batch(40, 4, seed)
    mine, theirs = (logits.clone().requires_grad_() for _ in range(2))
    found, expected = group_divergence(mine, labels, sides), by_the_formula(theirs, labels, sides)
    found.backward()
    expected.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.allclose(mine.grad, theirs.grad, atol=1e-14)


def test_every_class_counts_not_only_the_last():
    """SpuCo's loop over classes overwrites the divergence, so that the last class alone enters."""
    p = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8], [0.1, 0.1, 0.8]])
    labels, sides = torch.tensor([0, 0, 2, 2]), torch.tensor([0, 1, 0, 1])
    expected = 0.8 * math.log(4) + 0.1 * math.log(1 / 6) + 0.1 * math.log(1 / 2)
    assert float(group_divergence(p.log(), labels, sides)) == pytest.approx(expected, rel=1e-6)
    swapped = 2 - labels
    assert float(group_divergence(p.log(), swapped, sides)) == pytest.approx(expected, rel=1e-6)


def test_the_divergence_is_one_of_distributions():
    """SpuCo passes probabilities where `kl_div` takes logarithms, which isn't even 0 for equal groups."""
    logits, labels, _ = random_batch(10, 3)
    twice = torch.cat([logits, logits]), torch.cat([labels, labels]), torch.arange(20) // 10
    assert float(group_divergence(*twice)) == pytest.approx(0, abs=1e-12)
    p = logits.softmax(1).mean(0)
    assert abs(float(F.kl_div(p, p, reduction="sum"))) > 1
    assert all(float(group_divergence(*random_batch(20, 3, seed))) > 0 for seed in range(5))


def test_a_class_that_is_missing_on_one_side_contributes_nothing():
    logits, labels, sides = random_batch(40, 3)
    sides[labels == 1] = 0
    logits.requires_grad_()
    value = group_divergence(logits, labels, sides)
    value.backward()
    rest = labels != 1
    alone = group_divergence(logits[rest], labels[rest], sides[rest])
    assert value.item() == pytest.approx(alone.item(), rel=1e-12)
    assert float(logits.grad[~rest].abs().max()) == 0
    assert bool(torch.isfinite(logits.grad).all())


def test_a_batch_without_a_complete_class_has_no_divergence_and_no_gradient():
    logits, labels, _ = random_batch(6, 3)
    logits.requires_grad_()
    value = group_divergence(logits, labels, torch.zeros(6, dtype=torch.int64))
    value.backward()
    assert value.item() == 0
    assert float(logits.grad.abs().max()) == 0


def test_predictions_of_next_to_nothing_have_finite_divergence_and_gradient():
    logits = torch.tensor([[300.0, 0.0], [0.0, 300.0]], requires_grad=True)
    value = group_divergence(logits, torch.tensor([0, 0]), torch.tensor([0, 1]))
    value.backward()
    assert value.item() == pytest.approx(300)
    assert float(logits.grad[1].abs().max()) == pytest.approx(1)


def forward_of(examples: Examples, clock: Clock) -> Forward:
    positions = torch.arange(len(examples))
    inputs, labels = examples.gather(positions)
    return Forward(Threshold(), Batch(inputs, labels, positions, torch.ones(len(labels))), clock=clock)


def test_the_loss_is_the_cross_entropy_and_the_weighted_divergence():
    examples = of_first_input([-1, 1, 0.5, 2], [0, 0, 1, 1]).with_groups([0, 1, 2, 3])
    loss = PgiLoss(lam=3.0, ramp_epochs=4)
    loss.prepare(examples)
    forward = forward_of(examples, Clock(epoch=3, stage_began=2))
    divergence = group_divergence(forward.logits, examples.labels, torch.tensor([0, 1, 0, 1]))
    expected = F.cross_entropy(forward.logits, examples.labels) + 3 / 4 * divergence
    assert float(loss(forward).detach()) == pytest.approx(float(expected.detach()), rel=1e-6)


def test_the_penalty_grows_linearly_over_the_epochs_of_the_stage():
    loss = PgiLoss(lam=2.0, ramp_epochs=10)
    weights = [loss.weight(Clock(epoch=3 + epoch, stage_began=3)) for epoch in (0, 1, 5, 10, 40)]
    assert weights == pytest.approx([0, 0.2, 1, 2, 2])
    assert PgiLoss(lam=2.0, ramp_epochs=0).weight(Clock()) == 2


def test_a_loss_that_has_not_seen_the_training_set_says_so():
    with pytest.raises(ConfigError, match="has not seen the training set"):
        PgiLoss()(forward_of(of_first_input([-1, 1], [0, 1]), Clock()))


def test_sides_follow_the_order_of_the_groups_in_each_class():
    labels = torch.tensor([0, 0, 1, 1, 2])
    assert sides_in_class(labels, torch.tensor([5, 2, 0, 1, 7])).tolist() == [1, 0, 0, 1, 0]
    with pytest.raises(DataError, match="class 1 has more"):
        sides_in_class(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 2]))


def curator_of(policy) -> Curator:
    examples = of_first_input([-1, -2, -1, 1, 1, -3, 2, 2], [0, 0, 0, 0, 1, 1, 1, 1])
    model = Threshold()
    curator = Curator(examples, policy, batch_size=4)
    for _ in curator.epochs(1, model, torch.optim.SGD(model.parameters(), lr=0.1)):
        pass
    return curator


def test_group_zero_of_a_class_is_what_the_first_stage_got_wrong():
    plan = curator_of(Pgi()).plan
    assert plan.groups.tolist() == [1, 1, 1, 0, 3, 2, 3, 3]
    assert curator_of(InferGroups(Pgi())).plan.groups.tolist() == plan.groups.tolist()


def test_the_two_groups_are_drawn_equally_often_unless_told_otherwise():
    plan = curator_of(Pgi()).plan
    assert plan.shares(plan.groups % 2).tolist() == pytest.approx([0.5, 0.5])
    assert curator_of(Pgi(even_draws=False)).plan.sample_weight is None


def test_a_first_stage_without_errors_is_an_error_with_a_remedy():
    perfect = of_first_input([-1, 1], [0, 1])
    with pytest.raises(ConfigError, match="pgi finds one environment only"):
        fit(Threshold(), Splits("perfect", perfect, perfect, perfect), Pgi(), SETTINGS)


def test_the_penalty_brings_the_predictions_for_the_groups_together():
    settings = Training(epochs=15, batch_size=30, learning_rate=0.1)
    divergences = []
    for lam in (0.0, 20.0):
        splits, model = toy_splits(), toy_model()
        fit(model, splits, Pgi(lam=lam, ramp_epochs=3), settings)
        model.eval()
        sides = (splits.train.attributes == splits.train.labels).long()
        with torch.no_grad():
            logits = model(splits.train.gather(torch.arange(60))[0])
        divergences.append(float(group_divergence(logits, splits.train.labels, sides)))
    assert divergences[1] < divergences[0] / 2


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    straight, broken = Run.create(tmp_path / "straight", {}), Run.create(tmp_path / "broken", {})
    expected = fit(toy_model(), toy_splits(), Pgi(ramp_epochs=2), SETTINGS, run=straight)
    total = straight.metrics()[-1]["step"]
    for steps in (1, total // 3, total // 2, total - 2):
        with pytest.raises(StopHere):
            fit(toy_model(), toy_splits(), Pgi(ramp_epochs=2), SETTINGS, run=broken, listeners=[stop_after(steps)])
    result = fit(toy_model(), toy_splits(), Pgi(ramp_epochs=2), SETTINGS, run=broken)
    assert fingerprint(result.model) == fingerprint(expected.model)
    assert result.history == expected.history


@pytest.mark.parametrize("option", ["lam", "ramp_epochs"])
def test_options_that_make_no_sense_are_refused(option):
    with pytest.raises(ConfigError, match=f"{option} of pgi is -1"):
        Pgi(**{option: -1})
