"""Dynamic pruning: what an epoch leaves out, that no bias comes of it, and that losses are had for nothing."""

import pytest
import torch
import torch.nn.functional as F

from holdfast.coresets import DynamicPruning, Stratified
from holdfast.coresets.baselines.dynamic import easy_examples
from holdfast.errors import ConfigError
from holdfast.training import Curator, Training, fit
from holdfast.training.clock import Clock
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.policy import Context, PlannedTraining, as_chain
from tests.coresets.toy import gaussians, net, sgd, toy_splits
from tests.training.policies import DropHighest


def plan_at(policy, losses, epoch=1, seed=0):
    """The plan after an epoch with these losses."""
    examples, chain = gaussians(len(losses)), as_chain(policy)
    chain.update(Context(Clock(), examples, chain.merged(), None, None, seed))
    policy.record(torch.arange(len(losses)), losses)
    later = Clock(step=9 * epoch, epoch=epoch, stage_step=9 * epoch)
    context = Context(later, examples, chain.merged(), None, None, seed)
    return chain.update(context), context.requests


def test_half_of_what_is_below_the_mean_is_left_out_and_the_other_half_weighs_double():
    losses = torch.cat([torch.full((60,), 0.1), torch.full((40,), 2.0)])
    plan, (request,) = plan_at(DynamicPruning(full_epochs=True), losses)
    assert int(plan.copies[:60].sum()) == 30 and bool(plan.copies[60:].all())
    kept = plan.active.nonzero().flatten()
    assert (plan.loss_weight[kept[kept < 60]] / plan.loss_weight[60]).unique().tolist() == [2.0]
    assert float(plan.loss_weight[kept].mean()) == pytest.approx(1)
    assert request.factor == pytest.approx(100 / 70)


@pytest.mark.parametrize("easiest", [None, 0.7])
def test_the_weighted_loss_of_an_epoch_is_that_of_all_examples_in_the_mean_over_draws(easiest):
    losses, values = torch.rand(90, generator=torch.Generator().manual_seed(3)) ** 3, torch.randn(90).double()
    means = []
    for seed in range(600):
        plan, _ = plan_at(DynamicPruning(ratio=0.6, easiest=easiest), losses, seed=seed)
        kept = plan.active.nonzero().flatten()
        means.append((plan.loss_weight[kept].double() * values[kept]).mean())
    off = torch.stack(means) - values.mean()
    assert float(off.mean().abs()) < 4 * float(off.std()) / 600**0.5
    assert float(off.std()) > 0.01, "single draws do differ"


def test_without_weights_there_would_be_a_bias():
    losses = torch.cat([torch.zeros(50), torch.ones(50)])
    plan, _ = plan_at(DynamicPruning(), losses)
    kept = plan.active.nonzero().flatten()
    assert float(losses[kept].mean()) > 0.6
    assert float((plan.loss_weight[kept] * losses[kept]).mean()) == pytest.approx(0.5)


def test_the_easiest_are_a_share_or_those_below_the_mean():
    losses = torch.tensor([3.0, 0.5, torch.inf, 1.0, 0.1])
    assert easy_examples(losses, None).tolist() == [1, 3, 4]
    assert easy_examples(losses, 0.4).tolist() == [4, 1]
    assert easy_examples(torch.full((3,), torch.inf), None).tolist() == []


def test_fit_writes_the_losses_down_on_the_way_and_looks_at_nothing(monkeypatch):
    swept, seen = [], {}
    monkeypatch.setattr(Context, "outputs", property(lambda _: swept.append(1)))
    original = DynamicPruning.record

    def record(self, positions, losses):
        seen.update(zip(positions.tolist(), losses.tolist(), strict=True))
        original(self, positions, losses)
        assert all(float(self._losses[place]) == pytest.approx(loss) for place, loss in seen.items())

    monkeypatch.setattr(DynamicPruning, "record", record)
    policy = DynamicPruning(anneal=0.25)
    settings = Training(epochs=4, batch_size=16, learning_rate=0.05, select_by="accuracy")
    result = fit(net(), toy_splits(), policy, settings)
    counts = [record["examples"] for record in result.history]
    assert counts[0] == counts[-1] == 240, "the first epoch, and the last quarter, are whole"
    assert all(120 < count < 220 for count in counts[1:-1])
    assert swept == [] and len(seen) == 240


def test_the_rate_is_raised_by_as_much_as_epochs_are_shorter_and_taken_back_in_the_end():
    policy, model, scales = DynamicPruning(anneal=0.25), net(), []
    optimizer, curator = sgd(model, 0.1), Curator(gaussians(), policy, batch_size=16)
    for _ in curator.epochs(4, model, optimizer):
        scales.append((optimizer.param_groups[0]["lr"] / 0.1, 240 / curator.epoch_length))
        for batch in curator:
            policy.record(batch.positions, F.cross_entropy(model(batch.inputs), batch.labels, reduction="none"))
    assert all(rate == pytest.approx(length) for rate, length in scales)
    assert scales[0][0] == scales[-1][0] == pytest.approx(1) and scales[1][0] > 1.1


def test_a_loop_that_keeps_its_losses_to_itself_has_them_looked_up():
    policy, model = DynamicPruning(), net()
    curator = Curator(gaussians(), policy, batch_size=16)
    lengths = [curator.epoch_length for _ in curator.epochs(3, model, sgd(model))]
    assert lengths[0] == 240 and lengths[1] < 240
    assert torch.allclose(policy._losses, ModelOutputs(model, gaussians()).losses(), atol=1e-6)


def test_it_chains():
    upstream = DropHighest(count=20, start=0)
    chain = upstream >> Stratified() >> DynamicPruning()
    settings = Training(epochs=3, batch_size=16, learning_rate=0.05, select_by="accuracy")
    result = fit(net(), toy_splits(), chain, settings)
    assert result.history[0]["examples"] == 220
    assert result.history[1]["examples"] < 190


def test_the_last_epochs_are_counted_from_the_budget():
    policy = DynamicPruning(anneal=0.5)
    policy.validate(PlannedTraining(epochs=4))
    losses = torch.rand(60)
    assert plan_at(policy, losses, epoch=1)[0].copies is not None
    assert plan_at(policy, losses, epoch=2)[0].copies is None


@pytest.mark.parametrize("options", [{"ratio": 1.0}, {"ratio": -0.1}, {"easiest": 0.0}, {"anneal": 1.5}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))} of dynamic-pruning is"):
        DynamicPruning(**options)
