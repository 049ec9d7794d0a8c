"""CRAIG, GradMatch and Glister: one weighted subset per epoch."""

import pytest
import torch
import torch.nn.functional as F

from holdfast.coresets import Craig, Glister, GradMatch
from holdfast.coresets.baselines.glister import greedy_by_validation
from holdfast.data import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.models.heads import features_and_logits
from holdfast.primitives.facility_location import facility_location
from holdfast.training import Curator, Training, fit
from holdfast.training.model_outputs import ModelOutputs
from tests.coresets.toy import gaussians, net, sgd, toy_splits
from tests.training.policies import DropHighest


def plan_of(policy, examples=None, model=None, validation=None):
    model = model or net()
    curator = Curator(examples or gaussians(), policy, batch_size=16, validation=validation)
    curator.start(model, sgd(model))
    return curator.plan


METHODS = {"craig": Craig, "gradmatch": GradMatch, "glister": Glister}


@pytest.mark.parametrize("name", METHODS)
def test_a_fraction_is_trained_on_and_chosen_again(name):
    splits, policy = toy_splits(), METHODS[name](fraction=0.2, every=2)
    settings = Training(epochs=4, batch_size=16, learning_rate=0.1, select_by="accuracy")
    result = fit(net(), splits, policy, settings)
    assert [record["examples"] for record in result.history] == [48] * 4
    assert [record["step"] for record in policy.accounts.selections] == [0, 6]
    assert result.test.accuracy > 0.6


@pytest.mark.parametrize("name", METHODS)
def test_it_can_start_on_random_subsets_and_choose_later(name):
    model, policy = net(), METHODS[name](fraction=0.1, start=2, every=2)
    curator = Curator(gaussians(), policy, batch_size=16, validation=gaussians(60, seed=1))
    subsets = list[frozenset[int]]()
    for _ in curator.epochs(5, model, sgd(model)):
        subsets.append(frozenset(curator.plan.active.nonzero().flatten().tolist()))
        if len(subsets) <= 2:
            assert policy.accounts.selections == [] and curator.plan.loss_weight is None
    assert {len(subset) for subset in subsets} == {24}
    assert len({subsets[0], subsets[1], subsets[2]}) == 3 and subsets[2] == subsets[3]
    assert len(policy.accounts.selections) == 2


@pytest.mark.parametrize("name", METHODS)
def test_it_chooses_inside_what_an_earlier_policy_left(name):
    model, upstream = net(), DropHighest(count=40)
    curator = Curator(gaussians(), upstream >> METHODS[name](), batch_size=16, validation=gaussians(60, seed=1))
    sizes = []
    for _ in curator.epochs(3, model, sgd(model)):
        kept = upstream._kept if len(upstream._kept) else torch.ones(len(curator.examples), dtype=torch.bool)
        assert not bool(curator.plan.active[~kept].any())
        sizes.append(int(curator.plan.active.sum()))
    assert sizes == [24, 20, 16]


def test_craig_is_facility_location_in_each_class_with_cluster_sizes_as_weights():
    model, examples = net(), gaussians()
    plan = plan_of(Craig(fraction=0.1), examples, model)
    residuals = ModelOutputs(model, examples).residuals()
    expected = torch.zeros(240)
    for label in range(3):
        members = (examples.labels == label).nonzero().flatten()
        selection = facility_location(residuals[members], 8, metric="euclidean")
        expected[members[selection.chosen]] = selection.weights.float()
    assert torch.equal(plan.active, expected > 0)
    assert torch.allclose(plan.loss_weight, expected / expected[expected > 0].mean())


def test_craig_can_go_by_the_last_layers_gradients():
    plans = [plan_of(Craig(proxy=proxy)).active for proxy in ("logit", "last_layer")]
    assert plans[0].sum() == plans[1].sum() == 24
    assert not torch.equal(plans[0], plans[1])


def test_gradmatch_comes_nearer_to_the_gradient_of_a_class_than_chance():
    model, examples = net(), gaussians()
    plan = plan_of(GradMatch(fraction=0.1), examples, model)
    inputs, labels = examples.gather(torch.arange(240))
    features, logits = features_and_logits(model, inputs)
    residual = (logits.softmax(1) - F.one_hot(labels, 3)).detach()
    features = torch.cat([features.detach(), torch.ones(240, 1)], 1)
    for label in range(3):
        here = labels == label
        gradients = residual[:, label, None] * features
        whole = gradients[here].mean(0)
        weight = plan.loss_weight * here * plan.active
        chosen = (weight[:, None] * gradients).sum(0) / weight.sum()
        drawn = [gradients[here][torch.randperm(80)[:8]].mean(0) for _ in range(50)]
        chance = torch.stack([(one - whole).norm() for one in drawn]).median()
        assert float((chosen - whole).norm()) < float(chance)


def test_gradmatch_fills_its_budget_with_examples_of_weight_one():
    """Gradients of a class that all point the same way need one vector."""
    x = torch.ones(60, 4)
    examples = Examples.of(x, torch.arange(60) % 2)
    torch.manual_seed(0)
    plan = plan_of(GradMatch(fraction=0.2, ridge=0), examples, torch.nn.Linear(4, 2))
    assert int(plan.active.sum()) == 12
    weights = plan.loss_weight[plan.active]
    assert len(set(weights.tolist())) == 3
    assert int((weights == weights.min()).sum()) == 10


def test_glisters_first_choice_points_most_along_the_validation_gradient():
    model, examples, validation = net(), gaussians(), gaussians(60, seed=1)
    sweeps = [ModelOutputs(model, part, features=True) for part in (examples, validation)]
    head = model[-1]
    inputs, labels = validation.gather(torch.arange(60))
    loss = F.cross_entropy(model(inputs), labels)
    slope = torch.cat([g.flatten() for g in torch.autograd.grad(loss, [head.weight, head.bias])])
    worth = []
    for position in range(240):
        one, label = examples.gather(torch.tensor([position]))
        own = torch.autograd.grad(F.cross_entropy(model(one), label), [head.weight, head.bias])
        worth.append(float(torch.cat([g.flatten() for g in own]) @ slope))

    def with_one(x):
        return torch.cat([x, torch.ones(len(x), 1)], 1)

    picked = greedy_by_validation(
        with_one(sweeps[0].features()),
        sweeps[0].residuals(),
        with_one(sweeps[1].features()),
        validation,
        torch.cat([head.weight, head.bias[:, None]], 1).detach(),
        size=5,
        rounds=5,
        step=0.1,
    )
    assert int(picked[0]) == max(range(240), key=worth.__getitem__)
    assert len(set(picked.tolist())) == 5


@pytest.mark.parametrize("name", METHODS)
def test_models_in_double_precision_are_fine(name):
    examples = gaussians()
    exact = Examples.of(examples.inputs.gather(torch.arange(240)).double(), examples.labels)
    assert int(plan_of(METHODS[name](), exact, net().double(), validation=exact).active.sum()) == 24


@pytest.mark.parametrize("name", ["craig", "gradmatch"])
def test_a_budget_that_would_lose_classes_is_refused(name):
    examples = Examples.of(torch.randn(500, 8), torch.arange(500) % 100)
    with pytest.raises(ConfigError, match="50 of 500 examples are to be kept and there are 100 classes; give a frac"):
        plan_of(METHODS[name](), examples, torch.nn.Linear(8, 100))


@pytest.mark.parametrize("name", METHODS)
def test_a_second_run_has_accounts_of_its_own(name):
    policy = METHODS[name]()
    for _ in range(2):
        plan_of(policy, validation=gaussians(60, seed=1))
        assert len(policy.accounts.selections) == 1


def test_glister_needs_validation_data():
    with pytest.raises(DataError, match="has no validation set"):
        plan_of(Glister())


@pytest.mark.parametrize("method", METHODS.values())
def test_fractions_and_intervals_that_make_no_sense_are_refused(method):
    with pytest.raises(ConfigError, match="above 0, at most 1"):
        method(fraction=0)
    with pytest.raises(ConfigError, match="give at least 0 and 1"):
        method(every=0)
    with pytest.raises(ConfigError, match="starts after -1 epochs"):
        method(start=-1)
    with pytest.raises(ConfigError, match="give a whole number"):
        method(every=1.5)


def test_words_that_craig_does_not_know_are_refused():
    with pytest.raises(ConfigError, match="proxy of craig is 'logits'; did you mean 'logit'"):
        Craig(proxy="logits")
    with pytest.raises(ConfigError, match="no cosines of last-layer gradients"):
        Craig(proxy="last_layer", metric="cosine")
