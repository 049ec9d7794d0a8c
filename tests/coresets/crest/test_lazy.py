"""CREST by default: mini-batches are chosen when needed, each is trained on, and choosing ends when it stops paying."""

import pytest
import torch
from torch import nn

from holdfast.coresets import Crest
from holdfast.coresets.crest.crest import _usual_proxy
from holdfast.coresets.crest.gradient_proxies import gradient_proxies, weighted_loss
from holdfast.coresets.crest.mini_batches import SubsetCandidates
from holdfast.coresets.crest.trust_region import TrustRegionSettings
from holdfast.coresets.crest.validity import PointOfChoice
from holdfast.errors import ConfigError
from holdfast.primitives.curvature import flat, gradient_and_product
from holdfast.primitives.facility_location import facility_location
from holdfast.training import Curator, Training, fit
from tests.coresets.crest.test_crest import train
from tests.coresets.toy import gaussians, net, sgd, toy_splits
from tests.training.policies import DropHighest


def rows(seen):
    return [(tuple(batch.positions.tolist()), tuple(batch.weights.tolist())) for batch in seen]


def chosen(policy):
    return sum(record["coresets"] for record in policy.accounts.selections)


@pytest.mark.parametrize("ahead", [1, 4, 7])
def test_every_mini_batch_that_is_chosen_is_trained_on_once(ahead):
    policy = Crest(ahead=ahead)
    _, seen = train(policy, 61)
    assert len(set(rows(seen))) == 61, "none twice"
    assert 61 <= chosen(policy) <= 61 + ahead
    assert 61 / chosen(policy) >= 0.89
    assert all(float(batch.weights.mean()) == pytest.approx(1) for batch in seen)


def test_mini_batches_are_the_medoids_of_subsets_twice_their_size(monkeypatch):
    """Done once more by hand: class by class, every gain of the greedy choice from its definition."""
    subsets, examples, model = [], gaussians(), net()
    draw = SubsetCandidates.draw
    monkeypatch.setattr(SubsetCandidates, "draw", lambda *given: subsets.append(draw(*given)) or subsets[-1])
    curator = Curator(examples, Crest(ahead=3), batch_size=16, seed=5)
    curator.start(model, sgd(model))
    assert [len(subset) for subset in subsets] == [32] * 3
    inputs, labels = examples.gather(torch.arange(len(examples)))
    residuals = (model(inputs).softmax(1) - nn.functional.one_hot(labels)).detach()
    for row, subset in enumerate(subsets):
        positions, sizes = curator.plan.batches[row], 2 * curator.plan.batch_weight[row]
        for label in range(3):
            members, mine = subset[labels[subset] == label], labels[positions] == label
            best = facility_location(residuals[members], int(mine.sum()), method="naive")
            assert members[best.chosen].tolist() == positions[mine].tolist()
            assert torch.allclose(sizes[mine].double(), best.weights.clamp_min(1) * (32 / float(sizes.sum())), rtol=0.1)


def test_what_is_looked_at_is_twice_what_is_trained_on():
    policy = Crest(ahead=4)
    train(policy, 40)
    assert policy.accounts.forward == 2 * 16 * chosen(policy)
    assert policy.accounts.backward == 0
    assert policy.accounts.checks == []


def falling(policy, *, rates, model=None):
    model = model or net()
    optimizer, curator, plans = sgd(model), Curator(gaussians(), policy, batch_size=16), []
    for rate, _ in zip(rates, curator.steps(len(rates), model, optimizer), strict=False):
        optimizer.param_groups[0]["lr"] = rate
        plans.append(curator.plan)
    return curator, plans


def test_choosing_ends_for_good_when_the_rate_has_fallen_below_half_of_its_highest():
    rates = [0.02] * 4 + [0.1] * 8 + [0.05] * 4 + [0.049] * 4 + [0.1] * 20
    curator, plans = falling(policy := Crest(ahead=4), rates=rates)
    assert [plan.batches is not None for plan in plans] == [True] * 20 + [False] * 20
    assert curator.plan.strata is not None
    assert len(policy.accounts.selections) == 5
    kept = Crest(ahead=4, until_rate=0)
    falling(kept, rates=rates)
    assert len(kept.accounts.selections) == 10


def test_after_choosing_ended_mini_batches_are_stratified_and_plain():
    curator, _ = falling(Crest(ahead=2), rates=[0.1] * 4 + [0.01] * 4)
    batches = [next(iter(curator)) for _ in range(1)]
    assert bool((batches[0].weights == 1).all())
    assert sorted(torch.bincount(batches[0].labels).tolist()) == [5, 5, 6]


@pytest.mark.parametrize("validity", ["change", "curvature"])
def test_while_the_loss_is_what_it_was_mini_batches_are_used_again_and_not_longer(validity):
    counts = []
    for tolerance in (1e9, 0.02, 1e-12):
        policy = Crest(ahead=3, uses=4, validity=validity, tolerance=tolerance)
        _, seen = train(policy, 48)
        counts.append(len(set(rows(seen))))
    assert counts[0] == 12, "four uses each"
    assert counts[0] < counts[1] <= counts[2]
    assert counts[2] == 48


def here_at(model, examples):
    return TrustRegionSettings(model, examples, None, "batch")


def test_the_change_of_the_loss_is_that_of_the_subset():
    examples, model, some = gaussians(), net(), torch.arange(30, 62)
    before = gradient_proxies(model, examples, some).losses
    point = PointOfChoice.of_subset(some, before)
    assert point.error(here_at(model, examples)) == pytest.approx(0, abs=1e-7)
    with torch.no_grad():
        model[0].weight += 0.3
    inputs, labels = examples.gather(some)
    after = nn.functional.cross_entropy(model(inputs), labels).detach()
    change = float((after - before.mean()).abs() / before.mean())
    # A small difference of means in single precision, which are added up in another order.
    assert change > 1e-3 and point.error(here_at(model, examples)) == pytest.approx(change, abs=1e-6)


def test_looking_back_along_a_quadratic_loss_is_exact(monkeypatch):
    torch.manual_seed(0)
    root = torch.randn(5, 5, dtype=torch.float64)
    matrix, linear = root @ root.T, torch.randn(5, dtype=torch.float64)

    class Weights(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(5, dtype=torch.float64))

    def quadratic(model, *_):
        return 20 + linear @ model.w + 0.5 * model.w @ matrix @ model.w

    monkeypatch.setattr("holdfast.coresets.crest.validity.weighted_loss", quadratic)
    model = Weights()
    point = PointOfChoice.of_mini_batch(here_at(model, None), torch.arange(3), torch.ones(3))
    with torch.no_grad():
        model.w += torch.randn(5, dtype=torch.float64)
    assert float(quadratic(model).detach()) != pytest.approx(point.loss, rel=1e-3)
    assert point.error(here_at(model, None)) < 1e-12


def test_products_with_the_hessian_are_those_of_the_whole_matrix():
    examples, model = gaussians(40), net().double()
    examples = type(examples).of(examples.inputs.gather(torch.arange(40)).double(), examples.labels)
    parameters = list(model.parameters())
    direction = torch.randn(len(flat(parameters)), dtype=torch.float64)

    def loss():
        return weighted_loss(model, examples, torch.arange(40), torch.ones(40))

    gradient, product = gradient_and_product(loss(), parameters, direction)
    first = torch.autograd.grad(loss(), parameters, create_graph=True)
    whole = torch.cat([part.reshape(-1) for part in first])
    hessian = torch.stack([flat(torch.autograd.grad(entry, parameters, retain_graph=True)) for entry in whole])
    assert torch.allclose(gradient, whole.detach())
    assert torch.allclose(product, hessian @ direction, atol=1e-10)
    assert all(parameter.grad is None for parameter in parameters)


def test_last_layer_gradients_stand_for_examples_under_batch_norm_where_the_last_layer_is_known():
    assert _usual_proxy(net("batch"), None, "euclidean") == "last_layer"
    assert _usual_proxy(net(), None, "euclidean") == "logit"
    assert _usual_proxy(net("batch"), None, "cosine") == "logit"

    class Unknown(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x):
            return self.norm(x)[:, :3]

    assert _usual_proxy(Unknown(), None, "euclidean") == "logit"
    policy = Crest(ahead=2)
    train(policy, 6, net("batch"))
    assert chosen(policy) == 8


@pytest.mark.parametrize(("option", "value"), [("interval", 4.0), ("order", 1), ("modelled", 1), ("reshuffle", True)])
def test_options_of_the_published_algorithm_are_refused_and_not_ignored(option, value):
    with pytest.raises(ConfigError, match=f"{option} of crest belongs to the published algorithm; set algorithm to"):
        Crest(**{option: value})
    assert getattr(Crest(algorithm="published", **{option: value}), option) == value


@pytest.mark.parametrize(("options", "message"), [({"ahead": 0}, "ahead of crest is 0"), ({"uses": 0}, "at least 1")])
def test_numbers_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Crest(**options)


def test_behind_a_policy_that_drops_it_chooses_anew_from_what_is_left():
    policy = Crest(batch_size=8, ahead=50)
    curator = Curator(gaussians(), DropHighest(count=30) >> policy, batch_size=8)
    model = net()
    for _ in curator.epochs(3, model, sgd(model)):
        for batch in curator:
            active = curator.plan.active
            assert active is None or bool(active[batch.positions].all())
            curator.end_step(model, None)
    assert len(policy.accounts.selections) >= 3


def test_fit_trains_with_it_and_leaves_its_record(tmp_path):
    result = fit(net(), toy_splits(), Crest(), Training(epochs=3, batch_size=16, learning_rate=0.05))
    assert result.test.accuracy > 0.6
