"""CREST as a policy: what is trained on, when it is chosen again, and that nothing else is touched."""

import json

import pytest
import torch
import torch.nn.functional as F

from holdfast.coresets import Crest, El2n
from holdfast.coresets.crest.mini_batches import mini_batch_coresets
from holdfast.data import Examples
from holdfast.errors import ConfigError
from holdfast.models.heads import find_head
from holdfast.spurious import GroupBalanced, Jtt
from holdfast.training import Curator, Run, Training, fit
from holdfast.training.clock import Clock
from tests.coresets.toy import CLASSES, gaussians, net, sgd, toy_splits
from tests.training.policies import DropHighest


def train(policy, steps=60, model=None, *, examples=None, rate=0.05, seed=0):
    """A plain loop; returns the curator and every batch that was trained on. The policy is asked after each step."""
    model, examples = model or net(), examples or gaussians()
    optimizer = sgd(model, rate)
    curator = Curator(examples, policy, batch_size=16, seed=seed)
    seen = []
    for batch in curator.steps(steps, model, optimizer):
        losses = F.cross_entropy(model(batch.inputs), batch.labels, reduction="none")
        optimizer.zero_grad()
        (batch.weights * losses).mean().backward()
        optimizer.step()
        seen.append(batch)
    return curator, seen


def small(**options):
    """The algorithm as published; `tests/coresets/crest/test_lazy.py` has the default."""
    return Crest(**{"algorithm": "published", "batch_size": 16, "subset": 60, "proxy": "logit", **options})


# ----------------------------------------------------------------------------------------- what is trained on


def test_every_mini_batch_of_a_run_is_as_near_to_its_subset_as_its_medoids(monkeypatch):
    """|mean of the subset - weighted mean of the mini-batch| is at most the mean distance to the nearest medoid."""
    sides = []

    def watched(proxies, labels, subsets, size, **options):
        batches = mini_batch_coresets(proxies, labels, subsets, size, **options)
        for points, own, one in zip(proxies.chunk(subsets), labels.chunk(subsets), batches, strict=True):
            distances = torch.cdist(points, points[one.chosen])
            distances[own[:, None] != own[one.chosen]] = torch.inf
            off = (one.weights[:, None] * points[one.chosen]).mean(0) - points.mean(0)
            sides.append((float(off.norm()), float(distances.min(1).values.mean())))
        return batches

    monkeypatch.setattr("holdfast.coresets.crest.crest.mini_batch_coresets", watched)
    train(small(tolerance=1e-9), 40)
    assert len(sides) > 50
    assert all(off <= bound + 1e-6 for off, bound in sides)
    assert max(off for off, _ in sides) > 0


@pytest.mark.parametrize("by_class", [True, False])
def test_every_step_takes_one_of_the_chosen_mini_batches_as_it_is(by_class):
    def is_one_of(plan, batch):
        rows = [row for row, positions in enumerate(plan.batches) if torch.equal(positions, batch.positions)]
        return any(torch.equal(plan.batch_weight[row], batch.weights) for row in rows)

    model = net()
    optimizer = sgd(model)
    curator = Curator(gaussians(), small(by_class=by_class), batch_size=16, seed=0)
    for batch in curator.steps(40, model, optimizer):
        assert is_one_of(curator.plan, batch)
        assert len(set(batch.positions.tolist())) == 16
        assert float(batch.weights.mean()) == pytest.approx(1)
        if by_class:
            assert sorted(torch.bincount(batch.labels).tolist()) == [5, 5, 6]
        optimizer.zero_grad()
        (batch.weights * F.cross_entropy(model(batch.inputs), batch.labels, reduction="none")).mean().backward()
        optimizer.step()
    assert curator.clock.step == 40


def test_a_mini_batch_with_equal_weights_is_a_step_of_plain_sgd():
    """The public reference applies twice the gradient: gradients of its checks stay in the optimizer's."""
    examples = gaussians(48)
    everything = small(batch_size=48, subset=48, coresets=1, by_class=False)
    model, plain = net(), net()
    train(everything, 3, model, examples=examples)
    optimizer = sgd(plain)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(plain(examples.inputs.gather(torch.arange(48))), examples.labels).backward()
        optimizer.step()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-7)


def test_weights_belong_to_a_mini_batch_not_to_an_example():
    """The public reference keeps one weight per example, so one in two mini-batches has the wrong one in the first."""
    curator, _ = train(small(coresets=6, tolerance=1e9), 2)
    plan = curator.plan
    weights = {}
    for positions, by in zip(plan.batches.tolist(), plan.batch_weight.tolist(), strict=True):
        for position, weight in zip(positions, by, strict=True):
            weights.setdefault(position, set()).add(round(weight, 5))
    assert any(len(several) > 1 for several in weights.values())


# ----------------------------------------------------------------------------------------------- when it is chosen


def test_choices_hold_while_the_loss_is_as_predicted_and_not_longer():
    counts = []
    for tolerance in (1e9, 0.05, 1e-9):
        policy = small(tolerance=tolerance)
        train(policy)
        counts.append(len(policy.accounts.selections))
    assert counts[0] == 1
    assert counts[0] < counts[1] < counts[2]
    assert len(policy.accounts.checks) == counts[2] - 1


@pytest.mark.parametrize(("error", "again"), [(0.05, False), (0.050001, True)])
def test_an_error_of_exactly_the_tolerance_is_tolerated(error, again, monkeypatch):
    monkeypatch.setattr("holdfast.coresets.crest.quadratic.QuadraticModel.error", lambda *_: error)
    policy = small(tolerance=0.05, order=1)
    train(policy, 3)
    assert len(policy.accounts.checks) == 3
    assert len(policy.accounts.selections) == (4 if again else 1)


@pytest.mark.parametrize(
    ("norms", "options", "intervals", "counts"),
    [
        ([8.0, 8.0, 4.0, 3.0], {}, [1, 1, 2, 3], [5, 5, 5, 10]),
        ([8.0, 4.0, 16.0], {"interval": 4, "coresets": 2}, [4, 8, 2], [2, 8, 15]),
        ([8.0, 0.01, 8.0], {}, [1, 15, 1], [5, 5, 15]),
    ],
)
def test_intervals_and_counts_follow_the_curvature(norms, options, intervals, counts, monkeypatch):
    """T1 = ceil(h |H0| / |H|), P = b T1 at the next choice; a tenth of 2,400 is 15 mini-batches of 16."""
    values = iter(norms)
    monkeypatch.setattr("holdfast.coresets.crest.quadratic.QuadraticModel.error", lambda *_: 1.0)

    def begin(self, weights, loss):
        self._anchor, self.curvature_norm = weights, next(values)

    monkeypatch.setattr("holdfast.coresets.crest.quadratic.QuadraticModel.begin", begin)
    monkeypatch.setattr("holdfast.coresets.crest.quadratic.QuadraticModel.add", lambda *_: None)
    policy = small(drop_learned=False, **options)
    train(policy, sum(intervals[:-1]), examples=gaussians(2400))
    assert [record["interval"] for record in policy.accounts.selections] == intervals
    assert [record["coresets"] for record in policy.accounts.selections] == counts


def test_checks_look_at_the_subsets_only():
    """The public reference forwards the whole training set at every check."""
    examples = gaussians(600)
    looked = []
    policy = small(coresets=3, tolerance=1e9, checked=2)
    original = type(examples.inputs).gather

    def gather(self, positions):
        looked.append(len(positions))
        return original(self, positions)

    model = net()
    optimizer = sgd(model)
    curator = Curator(examples, policy, batch_size=16)
    curator.start(model, optimizer)
    type(examples.inputs).gather = gather
    try:
        curator.end_step(model, optimizer)
    finally:
        type(examples.inputs).gather = original
    assert looked == [60, 60]
    assert policy.accounts.checks[0]["error"] == pytest.approx(0, abs=1e-6)
    assert policy.accounts.forward == 3 * 60 + 3 * 16 + 2 * 60
    assert policy.accounts.backward == 3 * 16 * 2


def test_the_loss_is_modelled_on_some_of_the_mini_batches():
    policy = small(coresets=6, modelled=2, tolerance=1e9)
    curator, _ = train(policy, 1)
    assert curator.plan.batches.shape == (6, 16)
    assert policy.accounts.backward == 2 * 16 * 2


def test_choosing_every_batch_makes_no_model_of_the_loss():
    policy = small(every_batch=True)
    _, seen = train(policy, 20)
    assert len(policy.accounts.selections) == 21
    assert policy.accounts.checks == []
    assert policy.accounts.backward == 0
    assert len({tuple(batch.positions.tolist()) for batch in seen}) == 20


# ------------------------------------------------------------------------------------------------------- ablations


def test_without_curvature_it_is_chosen_more_often():
    counts = {}
    for order in (1, 2):
        policy = small(order=order, tolerance=0.02, coresets=4)
        train(policy, 150, rate=0.02)
        counts[order] = len(policy.accounts.selections)
    assert counts[1] > counts[2]


@pytest.mark.parametrize(("order", "choices"), [(2, 1), (1, None)])
def test_on_a_separable_quadratic_loss_one_choice_lasts(monkeypatch, order, choices):
    """All examples have the loss 1 + 1/2 sum_k a_k (w_k - c_k)^2, which the model of order 2 knows exactly."""
    curvatures, centre = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64), torch.tensor([3.0, -1.0, 2.0])

    def loss(logits, labels, reduction):
        assert reduction == "none"
        return 1 + (curvatures * (logits - centre).square()).sum(1) / 2

    class Weights(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(CLASSES, dtype=torch.float64))

        def forward(self, inputs):
            return self.w.expand(len(inputs), CLASSES)

    monkeypatch.setattr("holdfast.coresets.crest.gradient_proxies.F.cross_entropy", loss)
    policy, model = small(order=order, tolerance=0.01, drop_learned=False), Weights()
    optimizer = sgd(model, 0.005)
    for batch in Curator(gaussians(), policy, batch_size=16).steps(500, model, optimizer):
        optimizer.zero_grad()
        (batch.weights * loss(model(batch.inputs), batch.labels, "none")).mean().backward()
        optimizer.step()
    assert float((model.w.detach() - centre).abs().max()) < 0.5, "it went all the way"
    assert len(policy.accounts.checks) >= 1
    if choices is None:
        assert len(policy.accounts.selections) > 1
    else:
        assert len(policy.accounts.selections) == choices
        assert max(check["error"] for check in policy.accounts.checks) < 1e-6


def test_reshuffling_keeps_the_examples_and_mixes_the_mini_batches():
    kept, mixed = small(tolerance=1e9), small(tolerance=1e9, reshuffle=True)
    plans = [train(policy, 1)[0].plan for policy in (kept, mixed)]
    assert sorted(plans[0].batches.flatten().tolist()) == sorted(plans[1].batches.flatten().tolist())
    assert not torch.equal(plans[0].batches, plans[1].batches)


@pytest.mark.parametrize("proxy", ["logit", "feature", "last_layer", "full"])
@pytest.mark.parametrize("metric", ["euclidean", "exponential"])
def test_every_proxy_and_metric_trains(proxy, metric):
    policy = small(proxy=proxy, metric=metric, curvature_of="head", anchor="coreset", smooth=False)
    model, test = net(), gaussians(90, seed=2)
    before = float(F.cross_entropy(model(test.inputs.gather(torch.arange(90))), test.labels).detach())
    train(policy, 60, model)
    after = float(F.cross_entropy(model(test.inputs.gather(torch.arange(90))), test.labels).detach())
    assert after < before / 2


# -------------------------------------------------------------------------------------------- what must not happen


def test_choosing_and_checking_leave_model_and_optimizer_as_they_are():
    model = net("batch", dropout=0.3).train()
    optimizer = sgd(model)
    curator = Curator(gaussians(), small(tolerance=1e-9), batch_size=16)
    model(torch.randn(9, 8)).sum().backward()
    optimizer.step()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    momenta = [state["momentum_buffer"].clone() for state in optimizer.state.values()]
    generator = torch.get_rng_state()
    curator.start(model, optimizer)
    for _ in range(3):
        curator.end_step(model, optimizer)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    assert all(torch.equal(s["momentum_buffer"], m) for s, m in zip(optimizer.state.values(), momenta, strict=True))
    assert torch.equal(torch.get_rng_state(), generator)
    assert model.training


def test_the_same_seed_gives_the_same_choices_and_another_gives_others():
    records, batches = [], []
    for seed in (0, 0, 1):
        policy = small()
        _, seen = train(policy, 30, seed=seed)
        records.append(json.dumps([policy.accounts.selections, policy.accounts.checks]))
        batches.append(torch.stack([batch.positions for batch in seen]))
    assert records[0] == records[1]
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])


# ------------------------------------------------------------------------------------------------ what is learned


def test_learned_examples_leave_the_pool_and_stay_out():
    examples = gaussians(600, spread=0.5)
    policy = small(window=1, learned_loss=0.05, sightings=1, tolerance=0.01)
    train(policy, 300, examples=examples, rate=0.1)
    pools = [record["pool"] for record in policy.accounts.selections]
    assert pools[0] == 600
    assert pools == sorted(pools, reverse=True)
    assert pools[-1] < 600
    kept = small(window=1, learned_loss=0.05, sightings=1, tolerance=0.01, drop_learned=False)
    train(kept, 300, examples=examples, rate=0.1)
    assert {record["pool"] for record in kept.accounts.selections} == {600}
    assert pools[-1] >= 0.2 * 600


# ------------------------------------------------------------------------------------------------- where it is used


def test_it_chooses_inside_what_an_earlier_policy_left_and_again_when_that_shrinks():
    chain = DropHighest() >> small(batch_size=8, subset=20, tolerance=1e9)
    model, examples = net(), gaussians(96)
    optimizer = sgd(model)
    curator = Curator(examples, chain, batch_size=8)
    for _ in curator.epochs(4, model, optimizer):
        for batch in curator:
            assert curator.plan.active is None or bool(curator.plan.active[batch.positions].all())
            optimizer.zero_grad()
            (batch.weights * F.cross_entropy(model(batch.inputs), batch.labels, reduction="none")).mean().backward()
            optimizer.step()
            curator.end_step(model, optimizer)
    assert int(curator.plan.active.sum()) < 96


def test_every_class_is_trained_on_however_many_there_are():
    labels = torch.arange(1000) % 100
    examples = Examples.of(torch.randn(1000, 8, generator=torch.Generator().manual_seed(0)), labels)
    model = torch.nn.Linear(8, 100)
    _, seen = train(Crest(batch_size=32, every_batch=True), 100, model, examples=examples)
    assert len(torch.cat([batch.labels for batch in seen]).unique()) == 100


def test_it_goes_by_how_often_earlier_policies_want_an_example():
    """A group of a tenth, drawn as often as the other by the policy before: half of the weight in the loss is its."""
    plain = gaussians(2000)
    group = (torch.arange(2000) % 10 == 0).long()
    examples = Examples.of(plain.inputs.gather(torch.arange(2000)), plain.labels, groups=group)

    def share(policy):
        _, seen = train(policy, 60, examples=examples)
        positions, weights = (torch.cat(parts) for parts in zip(*((b.positions, b.weights) for b in seen), strict=True))
        return float(weights[group[positions] == 1].sum() / weights.sum())

    assert share(small(tolerance=1e-9)) == pytest.approx(0.1, abs=0.04)
    assert share(GroupBalanced() >> small(tolerance=1e-9)) == pytest.approx(0.5, abs=0.06)


def test_what_is_learned_is_dropped_within_what_an_earlier_policy_left():
    """Floors that counted examples which are not there let the pool run empty."""
    policy = small(window=1, sightings=1, learned_loss=1e9, tolerance=1e-9)
    settings = Training(epochs=40, epoch_size=64, batch_size=16, learning_rate=0.1, select_by="accuracy")
    fit(net(), toy_splits(), El2n(fraction=0.3, score_epochs=1) >> policy, settings)
    assert min(record["pool"] for record in policy.accounts.selections) >= 0.2 * 72


def test_a_method_that_starts_again_comes_before_it():
    settings = Training(epochs=2, batch_size=16, select_by="accuracy")
    with pytest.raises(ConfigError, match="jtt after it starts training again; put jtt before crest"):
        fit(net(), toy_splits(), small() >> Jtt(infer_epoch=1), settings)


@pytest.mark.parametrize("epoch_size", [64, 100])
def test_examples_gone_through_are_those_of_its_mini_batches(epoch_size):
    settings = Training(epochs=2, epoch_size=epoch_size, batch_size=16, learning_rate=0.05, select_by="accuracy")
    result = fit(net(), toy_splits(), small(batch_size=24), settings)
    steps = sum(-(-epoch_size // 24) for _ in range(2))
    assert result.history[-1]["full_epochs"] == pytest.approx(24 * steps / 240)


def test_what_came_after_the_last_choice_is_left_too(tmp_path):
    run = Run.create(tmp_path / "run", {})
    settings = Training(epochs=2, epoch_size=160, batch_size=16, learning_rate=0.05, select_by="accuracy")
    policy = small(tolerance=1e9)
    fit(net(), toy_splits(), policy, settings, run=run)
    left = json.loads((run.path / "crest.json").read_text())
    assert len(left["selections"]) == 1
    assert len(left["checks"]) == len(policy.accounts.checks) > 10


def test_a_head_that_is_not_trained_has_no_curvature():
    model = net()
    find_head(model)[1].requires_grad_(False)
    with pytest.raises(ConfigError, match="over the parameters of head and none of those is trained"):
        train(small(curvature_of="head"), 1, model)


def test_a_run_leaves_what_was_chosen_when_and_at_which_price(tmp_path):
    run = Run.create(tmp_path / "run", {})
    settings = Training(epochs=3, epoch_size=64, learning_rate=0.05, select_by="accuracy")
    fit(net("batch"), toy_splits(), small(), settings, run=run)
    left = json.loads((run.path / "crest.json").read_text())
    assert left["selections"][0]["coresets"] == 5
    assert set(left["seconds"]) >= {"look", "choose", "model"}
    assert left["forward"] > 0


def test_a_new_stage_starts_afresh():
    policy = small()
    train(policy, 10)
    assert policy.due(Clock(epoch=3, step=30, stage=1, stage_began=3))
    model = net()
    curator = Curator(gaussians(), policy, batch_size=16)
    curator.start(model, sgd(model))
    assert [record["step"] for record in policy.accounts.selections] == [0]


def test_it_needs_a_model():
    with pytest.raises(ConfigError, match="looks at the model and was given none"):
        Curator(gaussians(), small()).start()


def test_mini_batches_are_as_large_as_the_run_says():
    curator = Curator(gaussians(), Crest(algorithm="published", subset=60), batch_size=24)
    curator.start(net())
    assert curator.plan.batches.shape[1] == 24
    with pytest.raises(ConfigError, match="mini-batches of 24 from subsets of 20; give a subset of at least 24"):
        Curator(gaussians(), Crest(subset=20), batch_size=24).start(net())


def test_full_gradients_are_accounted_for():
    cheap, full = (small(proxy=proxy, every_batch=True) for proxy in ("logit", "full"))
    for policy in (cheap, full):
        train(policy, 3)
    assert (cheap.accounts.forward, cheap.accounts.backward) == (4 * 60, 0)
    assert (full.accounts.forward, full.accounts.backward) == (2 * 4 * 60, 4 * 60)


def test_a_small_set_is_its_own_subset():
    examples = Examples.of(torch.randn(30, 8), torch.arange(30) % CLASSES)
    policy = Crest(batch_size=10)
    curator, _ = train(policy, 5, examples=examples)
    assert curator.plan.batches.shape[1] == 10
    tiny, _ = train(Crest(batch_size=10), 5, examples=gaussians(6))
    assert sorted(tiny.plan.batches[0].tolist()) == [0, 1, 2, 3, 4, 5]
    assert bool((tiny.plan.batch_weight == 1).all())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size of crest is 0; give at least 1"),
        ({"subset": 4, "batch_size": 8}, "give a subset of at least 8"),
        ({"tolerance": 0}, "tolerance of crest is 0; give a positive number"),
        ({"interval": -1}, "interval of crest is -1"),
        ({"interval": float("inf")}, "interval of crest is inf"),
        ({"proxy": "logits"}, "did you mean 'logit'"),
        ({"coresets": 0}, "coresets of crest is 0"),
        ({"coresets": 5.0}, "coresets of crest is 5.0; give a whole number"),
        ({"batch_size": True}, "batch_size of crest is True; give a whole number"),
        ({"order": 3}, "order of crest is 3; known are 1, 2"),
        ({"tolerance": "0.1"}, "tolerance of crest is '0.1'; give a number"),
        ({"tolerance": float("nan")}, "tolerance of crest is nan; give a number"),
        ({"by_class": "no"}, "by_class of crest is 'no'; give True or False"),
        ({"statistics": "runing"}, "did you mean 'running'"),
        ({"anchor": "pair"}, "did you mean 'paired'"),
        ({"curvature_of": "heads"}, "did you mean 'head'"),
        ({"curvature_memory": 1.0}, "curvature_memory of crest is 1.0; give a number from 0, below 1"),
        ({"proxy": "last_layer", "metric": "cosine"}, "no cosines of last-layer gradients"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        Crest(**options)
