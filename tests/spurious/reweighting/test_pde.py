import copy
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from holdfast.data import Examples
from holdfast.data.sets.images.coloured import ColouredDigits
from holdfast.errors import ConfigError, DataError
from holdfast.models import MLP
from holdfast.spurious import GroupBalanced, balanced_subset
from holdfast.spurious.reweighting.pde import Pde, attribute_balanced, draw_expansion
from holdfast.training import Curator, Plan, Run, Training, Uniform, fit
from holdfast.training.policy import as_chain
from tests.training.policies import DropHighest
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_examples, toy_model, toy_splits

DRAWS = ("uniform", "group_even", "ordered")
WATERBIRDS = (3498, 184, 56, 1057)
CELEBA = (71629, 66874, 22880, 1387)


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def counted(*group_sizes: int, attributes: int = 2) -> Examples:
    """Examples with these group sizes; group g is class g // attributes with attribute g % attributes."""
    groups = torch.arange(len(group_sizes)).repeat_interleave(torch.tensor(group_sizes))
    inputs = torch.zeros(len(groups), 1)
    return Examples.of(inputs, groups // attributes, attributes=groups % attributes)


def sets_by_epoch(examples: Examples, policy, epochs: int, seed: int = 0) -> tuple[Curator, list[torch.Tensor]]:
    """The sets of the first epochs of a training that goes on, so that it may stop before the set grows."""
    curator, sets = Curator(examples, policy, seed=seed, batch_size=64), []
    curator.start()
    for _ in range(epochs):
        sets.append(curator.plan.active.nonzero().flatten())
        curator.end_epoch(last=len(sets) == epochs)
    return curator, sets


# ------------------------------------------------------------------------------------------------- the balanced set


@pytest.mark.parametrize(("counts", "size"), [(WATERBIRDS, 224), (CELEBA, 5548)])
def test_the_balanced_set_has_the_size_that_the_paper_states_and_equal_groups(counts, size):
    examples = counted(*counts)
    _, (first,) = sets_by_epoch(examples, Pde(), 1)
    assert len(first) == size
    assert torch.bincount(examples.groups[first]).tolist() == [size // 4] * 4


@pytest.mark.parametrize(("at_least", "sizes"), [(150, [10, 150, 90]), (-1, [10, 10, 10])])
def test_a_cap_lets_larger_groups_exceed_the_smallest(at_least, sizes):
    examples = Examples.of(torch.zeros(500, 1), [0] * 500, groups=[0] * 10 + [1] * 400 + [2] * 90)
    _, (first,) = sets_by_epoch(examples, Pde(at_least=at_least), 1)
    assert torch.bincount(examples.groups[first]).tolist() == sizes


# ---------------------------------------------------------------------------------------------------- an expansion


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("m", [1, 30, 63, 64, 200, None])
def test_an_expansion_never_draws_an_example_twice(draw, m):
    """The released code and its port draw with replacement: 9 duplicates in 30 of 64."""
    unused = torch.arange(100)[torch.randperm(100, generator=stream(5))[:64]]
    groups = torch.arange(100) % 3
    drawn = draw_expansion(draw, unused, groups, m, stream())
    assert len(drawn) == (64 if m is None else min(m, 64))
    assert len(set(drawn.tolist())) == len(drawn)
    assert set(drawn.tolist()) <= set(unused.tolist())


def test_uniform_expansions_ignore_groups():
    groups = torch.tensor([0] * 5 + [1] * 15)
    hits = Counter(
        int(p) for s in range(2000) for p in draw_expansion("uniform", torch.arange(20), groups, 4, stream(s))
    )
    assert all(count == pytest.approx(400, abs=80) for count in hits.values())
    assert len(hits) == 20


def slow_even_shares(sizes: list[int], m: int) -> list[int]:
    """One to each group that has any left, round after round; the last round is left out if it is incomplete."""
    taken = [0] * len(sizes)
    while True:
        open_groups = [g for g, size in enumerate(sizes) if taken[g] < size]
        if not open_groups or sum(taken) + len(open_groups) > m:
            return taken
        for g in open_groups:
            taken[g] += 1


@pytest.mark.parametrize("m", [1, 3, 8, 12, 25, 40])
def test_even_expansions_take_turns_and_an_empty_group_leaves_its_share_to_the_others(m):
    sizes = [30, 2, 0, 12]
    groups = torch.arange(4).repeat_interleave(torch.tensor(sizes))
    drawn = draw_expansion("group_even", torch.arange(44), groups, m, stream())
    shares = torch.bincount(groups[drawn], minlength=4).tolist()
    whole = slow_even_shares(sizes, m)
    assert sum(shares) == m
    assert all(share - 1 <= least <= share for share, least in zip(shares, whole, strict=True))


def test_the_remainder_of_an_even_expansion_goes_to_any_group():
    groups = torch.tensor([0] * 90 + [1] * 10)
    extra = [int(groups[draw_expansion("group_even", torch.arange(100), groups, 1, stream(s))]) for s in range(400)]
    assert sum(extra) == pytest.approx(200, abs=50)


def test_ordered_expansions_take_the_first():
    assert draw_expansion("ordered", torch.tensor([7, 3, 9]), torch.zeros(10).long(), 2, stream()).tolist() == [7, 3]


# ------------------------------------------------------------------------------------------------- the middle stage


def test_the_middle_stage_of_celeba_has_its_48534_examples_with_classes_equal_per_attribute():
    examples = counted(*CELEBA)
    keep = attribute_balanced(examples.labels, examples.attributes, stream())
    assert int(keep.sum()) == 48_534
    assert torch.bincount(examples.groups[keep]).tolist() == [22_880, 1_387, 22_880, 1_387]


def test_the_middle_stage_equals_balancing_the_classes_of_each_attribute_value():
    labels, attributes = torch.randint(3, (300,), generator=stream()), torch.randint(4, (300,), generator=stream(1))
    keep = attribute_balanced(labels, attributes, stream())
    for value in range(4):
        inside = attributes == value
        expected = torch.bincount(labels[inside][balanced_subset(labels[inside], stream())])
        assert torch.bincount(labels[inside & keep]).tolist() == expected.tolist()


def test_an_attribute_value_without_some_class_is_left_out():
    labels, attributes = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 0, 0, 1, 1])
    assert attributes[attribute_balanced(labels, attributes, stream())].tolist() == [0, 0]
    assert int(attribute_balanced(2 * labels, attributes, stream()).sum()) == 2
    with pytest.raises(DataError, match="no attribute value occurs with every class"):
        attribute_balanced(labels, labels, stream())


def test_the_middle_stage_replaces_the_set_and_expansions_follow():
    examples = counted(*CELEBA)
    policy = Pde(first_expansion=16, every=10, added=50, rate_decay=1, middle_stage=True)
    curator, sets = sets_by_epoch(examples, policy, 50)
    assert [len(s) for s in sets] == [5_548] * 16 + [48_534] * 10 + [48_584] * 10 + [48_634] * 10 + [48_684] * 4
    assert not set(sets[0].tolist()) <= set(sets[16].tolist())
    assert curator.learning_rate_scale == 1
    assert list(policy.additions) == [0, 16, 26, 36, 46]


def test_a_missing_attribute_is_told_before_training():
    examples = Examples.of(torch.zeros(4, 1), [0, 1, 0, 1], groups=[0, 1, 2, 3])
    with pytest.raises(DataError, match="middle stage needs an attribute per training example"):
        Curator(examples, Pde(middle_stage=True)).start()


# ----------------------------------------------------------------------------------------------------- the schedule


@pytest.mark.parametrize("draw", DRAWS)
def test_the_set_only_grows_at_the_milestones_until_nothing_is_left(draw):
    examples = counted(20, 8, 5, 17)
    policy = Pde(first_expansion=3, every=2, added=8, draw=draw)
    curator, sets = sets_by_epoch(examples, policy, 14)
    assert [len(s) for s in sets] == [20] * 3 + [28] * 2 + [36] * 2 + [44] * 2 + [50] * 5
    for before, after in pairwise(sets):
        assert set(before.tolist()) <= set(after.tolist())
    added = torch.cat(list(policy.additions.values()))
    assert sorted(added.tolist()) == list(range(50))
    assert curator.plan.copies.tolist() == [1] * 50


def test_the_number_of_expansions_can_be_limited_and_all_can_be_added_at_once():
    examples = counted(20, 8, 5, 17)
    _, sets = sets_by_epoch(examples, Pde(first_expansion=2, every=1, added=3, expansions=2), 6)
    assert [len(s) for s in sets] == [20, 20, 23, 26, 26, 26]
    _, sets = sets_by_epoch(examples, Pde(first_expansion=2, added="all"), 4)
    assert [len(s) for s in sets] == [20, 20, 50, 50]


def test_the_same_seed_gives_the_same_sets_and_another_seed_others():
    examples = counted(*WATERBIRDS)
    policy = Pde(first_expansion=1, every=1)
    one, same, other = (sets_by_epoch(examples, policy, 4, seed)[1] for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_what_an_earlier_policy_dropped_is_never_added():
    class FirstHalf(Uniform):
        name = "first-half"

        def update(self, context):
            return Plan(copies=torch.arange(len(context.examples)) < 30)

    examples = toy_examples(60)
    _, sets = sets_by_epoch(examples, FirstHalf() >> Pde(first_expansion=1, every=1, added=3), 20)
    assert all(int(s.max()) < 30 for s in sets)
    first = len(sets[0])
    assert [len(s) for s in sets] == [min(first + 3 * epoch, 30) for epoch in range(20)]
    assert first < 12


# ---------------------------------------------------------------------------------- the paper's accounting, spec 2.4


def full_epochs(examples: Examples, policy: Pde, epochs: int) -> float:
    curator, _ = sets_by_epoch(examples, policy, epochs)
    return curator.examples_seen / len(examples)


def test_waterbirds_costs_what_the_paper_says():
    examples = counted(*WATERBIRDS)
    policy = Pde(first_expansion=140, every=10, added=10)
    curator, sets = sets_by_epoch(examples, policy, 300)
    assert sum(len(s) for s in sets[:140]) / 4795 == pytest.approx(6.54, abs=0.005)
    assert sum(-(-len(s) // 64) for s in sets[:140]) == 560
    assert curator.examples_seen / 4795 == pytest.approx(16.9, abs=0.05)
    assert len(policy.additions) - 1 == 16
    assert len(sets[-1]) == 384
    early_stop = next(e for e in range(300) if sum(len(s) for s in sets[:e]) / 4795 >= 8.9)
    assert 40 <= len(sets[early_stop]) - 224 <= 50


def test_celeba_costs_what_the_paper_says():
    examples = counted(*CELEBA)
    policy = Pde(first_expansion=16, every=10, added=50, middle_stage=True)
    assert full_epochs(examples, policy, 16) == pytest.approx(0.545, abs=0.0005)
    assert full_epochs(examples, policy, 17) - full_epochs(examples, policy, 16) == pytest.approx(0.298, abs=0.0005)


def test_civilcomments_costs_what_the_paper_says():
    """A partition with the stated sizes: 91 groups above the cap of 150 and one of 55 make 13,705."""
    rest = 269_038 - 55 - 90 * 1_000
    groups = torch.arange(92).repeat_interleave(torch.tensor([55] + [1_000] * 90 + [rest]))
    examples = Examples.of(torch.zeros(len(groups), 1), groups % 2, groups=groups)
    policy = Pde(first_expansion=15, every=2, added=300, at_least=150)
    assert full_epochs(examples, policy, 15) == pytest.approx(0.764, abs=0.0005)
    assert len(policy.additions[0]) == 13_705
    assert full_epochs(examples, policy, 15 + 12 * 2) == pytest.approx(2.1, abs=0.1)
    assert len(policy.additions) - 1 == 12


# ------------------------------------------------------------------------------------------- inside a training run


SETTINGS = Training(epochs=9, batch_size=7, learning_rate=0.05, seed=3, checkpoint_seconds=0)
QUICK = {"first_expansion": 3, "every": 2, "added": 5}


def test_the_learning_rate_is_cut_once_at_the_first_expansion():
    settings = Training(epochs=9, batch_size=8, learning_rate=0.4)
    history = fit(toy_model(), toy_splits(), Pde(**QUICK, rate_decay=0.1), settings).history
    assert [record["learning_rate"] for record in history] == pytest.approx([0.4] * 3 + [0.04] * 6)


def test_a_run_counts_what_it_went_through_and_returns_the_first_best_epoch():
    policy = Pde(**QUICK)
    result = fit(toy_model(), toy_splits(), policy, SETTINGS)
    size = len(policy.additions[0])
    assert [r["examples"] for r in result.history] == [size] * 3 + [size + 5] * 2 + [size + 10] * 2 + [size + 15] * 2
    assert result.history[-1]["full_epochs"] == pytest.approx(sum(r["examples"] for r in result.history) / 60)
    scores = [record["score"] for record in result.history]
    assert result.best_epoch == scores.index(max(scores))


def buffers(optimizer) -> list[torch.Tensor]:
    return [state["momentum_buffer"].clone() for state in optimizer.state.values()]


@pytest.mark.parametrize("momentum", ["keep", "reset"])
def test_momentum_at_the_switch_is_kept_to_the_bit_or_cleared(momentum, monkeypatch):
    made, before, after = [], [], []
    build = fit.__globals__["build_optimizer"]

    def spy(model, settings):
        made.append(build(model, settings))
        return made[-1]

    class Watched(Pde):
        def update(self, context):
            if context.clock.epoch == self.first_expansion:
                before.extend(buffers(made[0]))
            return super().update(context)

    def listener(event):
        if event.kind == "epoch" and event.epoch == 2:
            after.extend(buffers(made[0]))

    monkeypatch.setattr("holdfast.training.fitting.build_optimizer", spy)
    fit(toy_model(), toy_splits(), Watched(**QUICK, momentum=momentum), SETTINGS, listeners=[listener])
    assert len(before) == 6
    assert all(bool(buffer.any()) for buffer in before)
    if momentum == "reset":
        assert after == []
    else:
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_papers_momentum_and_the_frameworks_take_the_same_path():
    """g <- gamma g + (1 - gamma) grad with rate eta is heavy-ball SGD with rate eta (1 - gamma)."""
    gamma, eta = 0.9, 0.3
    gradients = torch.randn(50, 20, dtype=torch.float64, generator=stream())
    paper, g = torch.zeros(20, dtype=torch.float64), torch.zeros(20, dtype=torch.float64)
    ours = torch.nn.Parameter(torch.zeros(20, dtype=torch.float64))
    sgd = torch.optim.SGD([ours], lr=eta * (1 - gamma), momentum=gamma)
    for gradient in gradients:
        g = gamma * g + (1 - gamma) * gradient
        paper = paper - eta * g
        ours.grad = gradient.clone()
        sgd.step()
        assert torch.allclose(ours.detach(), paper, atol=1e-6)


POLICIES = {
    "pde": lambda: Pde(**QUICK),
    "even, reset": lambda: Pde(**QUICK, draw="group_even", momentum="zero_buffers"),
    "middle stage": lambda: Pde(**QUICK, middle_stage=True),
    "exhausted": lambda: Pde(first_expansion=1, every=1, added=25),
    "drop >> pde >> balanced": lambda: DropHighest(start=2) >> Pde(**QUICK) >> GroupBalanced(),
}


@pytest.mark.parametrize("name", POLICIES)
def test_an_interrupted_run_ends_with_the_same_weights_and_sets(name, tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    straight, broken = Run.create(tmp_path / "straight", {}), Run.create(tmp_path / "broken", {})
    then, now = POLICIES[name](), POLICIES[name]()
    expected = fit(toy_model(), toy_splits(), then, SETTINGS, run=straight)
    total = straight.metrics()[-1]["step"]
    for steps in (1, total // 3, total // 2, total - 2):
        with pytest.raises(StopHere):
            fit(toy_model(), toy_splits(), POLICIES[name](), SETTINGS, run=broken, listeners=[stop_after(steps)])
    result = fit(toy_model(), toy_splits(), now, SETTINGS, run=broken)
    assert fingerprint(result.model) == fingerprint(expected.model)
    assert result.history == expected.history
    additions = [
        member.additions for chain in (then, now) for member in as_chain(chain).members if member.name == "pde"
    ]
    assert list(additions[0]) == list(additions[1])
    assert all(torch.equal(additions[0][epoch], additions[1][epoch]) for epoch in additions[0])


def test_a_policy_object_can_be_used_for_a_second_run():
    policy = Pde(**QUICK)
    first = fit(toy_model(), toy_splits(), policy, SETTINGS)
    additions = copy.deepcopy(policy.additions)
    again = fit(toy_model(), toy_splits(), policy, SETTINGS)
    assert first.history == again.history
    assert all(torch.equal(additions[epoch], policy.additions[epoch]) for epoch in policy.additions)


def test_pde_rescues_the_worst_group_of_coloured_digits():
    """PDE spec 9.3 P3, shortened: half the warm-up, a few expansions, a third of plain training."""
    splits = ColouredDigits().load(Path())
    shared = {"batch_size": 32, "learning_rate": 0.01, "weight_decay": 1e-3, "threads": 1}

    def model() -> MLP:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return MLP((3, 10, 10), 2)

    erm = fit(model(), splits, None, Training(epochs=4, **shared))
    pde = Pde(first_expansion=15, every=2, added=10, rate_decay=0.1, expansions=5)
    ours = fit(model(), splits, pde, Training(epochs=25, **shared))
    assert len(pde.additions[0]) == pytest.approx(970, abs=40)
    assert erm.test.worst_accuracy <= 0.3
    assert ours.test.worst_accuracy >= erm.test.worst_accuracy + 0.4
    assert ours.history[-1]["full_epochs"] < erm.history[-1]["full_epochs"]


@pytest.mark.parametrize(
    "options",
    [{"first_expansion": 0}, {"every": 0}, {"added": 0}, {"expansions": 0}, {"rate_decay": 0}],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))} of pde is 0"):
        Pde(**options)


def test_without_groups_the_remedy_is_named():
    with pytest.raises(DataError, match="pde needs a group per training example"):
        Curator(Examples.of(torch.zeros(4, 1), [0, 1, 0, 1]), Pde()).start()


# ----------------------------------------------------------------------------------------------------- more options


def test_a_budget_in_which_the_set_never_grows_is_refused():
    with pytest.raises(ConfigError, match="first grows its set after epoch 30 and training has 12"):
        fit(toy_model(), toy_splits(), Pde(), Training(epochs=12))


def test_equal_parts_use_everything_up_at_the_last_expansion():
    examples = counted(40, 10, 4, 30)
    curator, sets = Curator(examples, Pde(first_expansion=2, every=2, added="equal"), batch_size=64), []
    for _ in curator.epochs(8):
        sets.append(int(curator.plan.active.sum()))
    assert sets == [16, 16, 39, 39, 62, 62, 84, 84]
    with pytest.raises(ConfigError, match="does not know the number of epochs"):
        sets_by_epoch(examples, Pde(first_expansion=1, added="equal"), 2)


def test_caps_raise_what_is_kept_of_each_group_and_keep_what_is_there():
    examples = counted(40, 10, 4, 30)
    _, sets = sets_by_epoch(examples, Pde(first_expansion=1, every=1, caps=(8, 20)), 4)
    counts = [torch.bincount(examples.groups[chosen]).tolist() for chosen in sets]
    assert counts == [[4, 4, 4, 4], [8, 8, 4, 8], [20, 10, 4, 20], [20, 10, 4, 20]]
    assert set(sets[0].tolist()) <= set(sets[1].tolist()) <= set(sets[2].tolist())
    for options in ({"caps": (20, 8)}, {"caps": (8,), "middle_stage": True}):
        with pytest.raises(ConfigError, match="caps of pde are"):
            Pde(**options)


def test_even_draws_after_the_warm_up_give_every_group_the_same_mass():
    examples = counted(40, 10, 4, 30)
    curator = Curator(examples, Pde(first_expansion=1, every=1, added=20, even_draws=True), batch_size=64)
    plans = [curator.plan for _ in curator.epochs(2)]
    assert plans[0].sample_weight is None
    assert plans[1].shares(examples.groups).tolist() == pytest.approx([0.25] * 4)


def options_after(policy: Pde, epochs: int = 2):
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    curator = Curator(toy_splits().train, policy, batch_size=8, augment=lambda inputs, _: inputs)
    seen = []
    for _ in curator.epochs(epochs, model, optimizer):
        for x, y, _, _ in curator:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        group = optimizer.param_groups[0]
        seen.append((round(group["lr"], 6), group["momentum"], curator.augment is not None))
    return seen


def test_what_becomes_of_momentum_rate_and_augmentation_at_the_first_expansion():
    quick = {"first_expansion": 1, "every": 1, "added": 4, "rate_decay": 0.5}
    assert options_after(Pde(**quick)) == [(0.1, 0.9, True), (0.05, 0.9, True)]
    assert options_after(Pde(**quick, momentum="no_momentum")) == [(0.1, 0.9, True), (0.05, 0.0, True)]
    assert options_after(Pde(**quick, momentum="new_optimizer")) == [(0.1, 0.9, True), (0.005, 0.9, True)]
    assert options_after(Pde(**quick, augment_warmup_only=True)) == [(0.1, 0.9, True), (0.05, 0.9, False)]
