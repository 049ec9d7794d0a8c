import copy
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from holdfast.data import Examples
from holdfast.errors import ConfigError
from holdfast.spurious import GroupBalanced
from holdfast.training import Curator, Plan
from tests.training.policies import DropHighest, FixedBatches, Growing, LossWeights, TwoStages
from tests.training.toy import toy_examples, toy_model


def numbered(n: int) -> Examples:
    return Examples.of(torch.arange(n, dtype=torch.float32)[:, None], torch.zeros(n, dtype=torch.int64))


def train(curator: Curator, epochs: int, *, report_steps: bool, seed: int = 0):
    """Somebody's plain loop; gives the model and the positions seen in each epoch."""
    model = toy_model(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    seen = []
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for _ in curator.epochs(epochs, model, optimizer):
            seen.append([])
            for x, y, positions, weight in curator:
                loss = (weight * F.cross_entropy(model(x), y, reduction="none")).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen[-1] += positions.tolist()
                if report_steps:
                    curator.end_step(model, optimizer)
    return model, optimizer, seen


def test_plain_shuffling_sees_every_example_once_per_epoch():
    _, _, seen = train(Curator(toy_examples(), batch_size=8), 3, report_steps=False)
    assert [sorted(epoch) for epoch in seen] == [list(range(60))] * 3
    assert seen[0] != seen[1]


def test_the_loop_equals_a_hand_written_one():
    """The same batches through an ordinary loop give the same weights to the bit."""
    curator = Curator(toy_examples(), batch_size=8, seed=3)
    model, _, seen = train(curator, 2, report_steps=False)
    twin = toy_model()
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    data = toy_examples()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for epoch in seen:
            for start in range(0, 60, 8):
                x, y = data.gather(torch.tensor(epoch[start : start + 8]))
                optimizer.zero_grad()
                F.cross_entropy(twin(x), y, reduction="none").mean().backward()
                optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True))


def test_iterating_has_no_side_effect():
    curator = Curator(numbered(10), batch_size=4)
    curator.start()
    first = [batch.positions.tolist() for batch in curator]
    next(iter(curator))
    assert [batch.positions.tolist() for batch in curator] == first
    curator.end_epoch()
    assert [batch.positions.tolist() for batch in curator] != first


@pytest.mark.parametrize("report_steps", [True, False])
def test_reporting_steps_or_not_gives_the_same_draws(report_steps):
    _, _, seen = train(Curator(toy_examples(), GroupBalanced(), batch_size=7), 3, report_steps=report_steps)
    _, _, other = train(Curator(toy_examples(), GroupBalanced(), batch_size=7), 3, report_steps=not report_steps)
    assert seen == other
    assert [len(epoch) for epoch in seen] == [60, 60, 60]


def test_a_growing_set_is_seen_whole_each_epoch():
    _, _, seen = train(Curator(toy_examples(), Growing(first=8, step=4, after=2), batch_size=6), 5, report_steps=False)
    assert [sorted(epoch) for epoch in seen] == [list(range(n)) for n in (8, 8, 12, 16, 20)]


def test_a_fixed_epoch_size_cycles_small_sets_and_continues_large_ones():
    curator = Curator(numbered(10), Growing(first=4, step=0, after=99), batch_size=3, epoch_size=10)
    curator.start()
    epochs = []
    for _ in range(2):
        epochs.append(torch.cat([batch.positions for batch in curator]).tolist())
        curator.end_epoch()
    drawn = [*epochs[0], *epochs[1]]
    assert [len(epoch) for epoch in epochs] == [10, 10]
    assert [sorted(drawn[start : start + 4]) for start in range(0, 20, 4)] == [[0, 1, 2, 3]] * 5
    large = Curator(numbered(10), batch_size=3, epoch_size=5)
    large.start()
    halves = []
    for _ in range(2):
        halves += torch.cat([batch.positions for batch in large]).tolist()
        large.end_epoch()
    assert sorted(halves) == list(range(10))


@pytest.mark.parametrize(("n", "sizes"), [(9, [4, 5]), (10, [4, 4, 2]), (5, [5]), (1, [1]), (8, [4, 4])])
def test_a_lone_last_example_joins_the_batch_before(n, sizes):
    curator = Curator(numbered(n), batch_size=4)
    curator.start()
    assert [len(batch.labels) for batch in curator] == sizes
    assert len(curator) == curator.steps_left == len(sizes)
    for _ in sizes:
        curator.end_step()
    assert curator.steps_left == 0


def test_dropping_the_incomplete_batch_starts_a_fresh_pass_each_epoch():
    curator = Curator(numbered(10), batch_size=4, drop_last=True)
    curator.start()
    for _ in range(3):
        seen = [batch.positions.tolist() for batch in curator]
        assert [len(batch) for batch in seen] == [4, 4]
        assert len({position for batch in seen for position in batch}) == 8
        curator.end_epoch()
    assert len(Curator(numbered(3), batch_size=4, drop_last=True)) == 1


def test_dropped_examples_never_return():
    curator = Curator(toy_examples(), DropHighest(count=5), batch_size=8)
    _, _, seen = train(curator, 4, report_steps=False)
    assert [len(epoch) for epoch in seen] == [60, 55, 50, 45]
    assert all(set(later) < set(earlier) for earlier, later in pairwise(seen))


def test_mini_batches_are_chosen_inside_what_is_left():
    curator = Curator(toy_examples(), DropHighest(count=6) >> FixedBatches(), batch_size=5)
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in curator.epochs(3, model, optimizer):
        for batch in curator:
            active = curator.plan.active
            assert active is None or bool(active[batch.positions].all())
            rows = curator.plan.batches.tolist()
            assert batch.positions.tolist() in rows
            expected = curator.plan.batch_weight[rows.index(batch.positions.tolist())]
            assert torch.equal(batch.weights, expected)
            optimizer.zero_grad()
            (batch.weights * F.cross_entropy(model(batch.inputs), batch.labels, reduction="none")).mean().backward()
            optimizer.step()
            curator.end_step(model, optimizer)
    assert int(curator.plan.active.sum()) == 60 - 2 * 6


def test_a_drop_makes_explicit_batches_choose_again_even_when_they_are_not_due():
    never_again = FixedBatches(every=10_000, count=12, size=5)
    curator = Curator(toy_examples(), DropHighest(count=30) >> never_again, batch_size=5)
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    plans = []
    for _ in curator.epochs(2, model, optimizer):
        plans.append(curator.plan)
        for _ in curator:
            curator.end_step(model, optimizer)
    assert not torch.equal(plans[0].batches, plans[1].batches)
    assert bool(plans[1].active[plans[1].batches].all())


def test_a_policy_that_acts_between_steps_must_be_told_of_steps():
    with pytest.raises(ConfigError, match=r"curator\.end_step"):
        train(Curator(toy_examples(), FixedBatches(), batch_size=5), 1, report_steps=False)


def test_a_second_stage_starts_from_the_first_weights_with_a_fresh_optimizer():
    policy = TwoStages(first=2, times=3)
    curator = Curator(toy_examples(), policy, batch_size=8)
    model = toy_model()
    initial = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    lengths = []
    for epoch in curator.epochs(3, model, optimizer):
        if epoch == 2:
            assert all(torch.equal(a, b) for a, b in zip(initial.values(), model.state_dict().values(), strict=True))
            assert not optimizer.state
        lengths.append(curator.epoch_length)
        for x, y, _, weight in curator:
            optimizer.zero_grad()
            (weight * F.cross_entropy(model(x), y, reduction="none")).mean().backward()
            optimizer.step()
    assert len(lengths) == 5
    wrong = int((curator.plan.copies == 3).sum())
    assert 0 < wrong < 60
    assert lengths == [60, 60] + [60 + 2 * wrong] * 3


def test_a_second_stage_without_an_optimizer_is_refused():
    curator = Curator(toy_examples(), TwoStages(first=1), batch_size=8)
    model = toy_model()
    with pytest.raises(ConfigError, match="give it the model and the optimizer"):
        list(curator.epochs(2, model))


@pytest.mark.parametrize("reset", [False, True])
def test_the_learning_rate_is_cut_and_momentum_kept_unless_asked(reset):
    curator = Curator(toy_examples(), Growing(after=2, reset=reset), batch_size=4)
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    before = None
    for epoch in curator.epochs(4, model, optimizer):
        if epoch == 2:
            buffers = [optimizer.state[p].get("momentum_buffer") for p in model.parameters()]
            if reset:
                assert buffers == [None] * len(buffers)
            else:
                assert all(torch.equal(a, b) for a, b in zip(before, buffers, strict=True))
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05 if epoch < 2 else 0.005)
        for x, y, _, _ in curator:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        before = [optimizer.state[p]["momentum_buffer"].clone() for p in model.parameters()]


def test_loss_weights_reach_the_batches_with_mean_one():
    curator = Curator(numbered(9), LossWeights(), batch_size=9)
    curator.start()
    (batch,) = curator
    assert torch.allclose(batch.weights, (1.0 + batch.positions % 3) / 2)
    assert batch.weights.mean() == 1
    assert torch.equal(curator.weights(batch.positions), batch.weights)


def test_augmentation_depends_on_the_step_alone():
    def jitter(x, generator):
        return x + torch.rand(x.shape, generator=generator)

    curator = Curator(numbered(8), batch_size=4, augment=jitter)
    curator.start()
    first = [batch.inputs for batch in curator]
    again = [batch.inputs for batch in curator]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0] - first[0].floor(), first[1] - first[1].floor())


def test_policies_that_look_at_the_model_say_so_when_there_is_none():
    curator = Curator(toy_examples(), DropHighest(start=0), batch_size=8)
    with pytest.raises(ConfigError, match="was given no model"):
        curator.start()


def test_looking_before_the_start_is_refused():
    with pytest.raises(ConfigError, match="not started"):
        next(iter(Curator(numbered(3))))
    with pytest.raises(ConfigError, match="not started"):
        Curator(numbered(3)).epoch_draws()


def test_a_longer_run_goes_on_where_a_shorter_one_ended():
    def lengths(curator, *budgets):
        return [curator.epoch_length for n in budgets for _ in curator.epochs(n)]

    policy = Growing(first=8, step=4, after=1)
    assert lengths(Curator(numbered(40), policy), 2, 3, 5) == lengths(Curator(numbered(40), policy), 5)


def test_a_policy_twice_in_a_chain_is_refused():
    with pytest.raises(ConfigError, match="more than once"):
        DropHighest() >> FixedBatches() >> DropHighest()


def test_a_plan_of_the_wrong_length_is_refused():
    class Short(DropHighest):
        def update(self, context):
            return Plan(copies=torch.ones(3))

    with pytest.raises(ConfigError, match="for 3 examples, the training set has 60"):
        Curator(toy_examples(), Short(start=0)).start()


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"epoch_size": 0}])
def test_sizes_below_one_are_refused(options):
    with pytest.raises(ConfigError, match="at least 1"):
        Curator(numbered(3), **options)


def test_steps_cross_epochs_and_equal_the_epochs_batches():
    by_epoch, by_step = (Curator(toy_examples(), GroupBalanced(), batch_size=16, seed=5) for _ in range(2))
    expected = [batch.positions.tolist() for _ in by_epoch.epochs(3) for batch in by_epoch]
    rounds = [[batch.positions.tolist() for batch in by_step.steps(n)] for n in (1, 5, 0, 6)]
    assert [positions for part in rounds for positions in part] == expected
    assert by_step.clock.epoch == 3


def test_a_client_of_a_federation_keeps_its_policy_over_rounds():
    """Three clients, each with a policy of its own on its own data, under plain averaging; one client is restarted."""

    def clients():
        parts = [toy_examples(24, seed) for seed in range(3)]
        return [Curator(part, DropHighest(count=2), batch_size=6, seed=i) for i, part in enumerate(parts)]

    def play(curators, model, rounds):
        for _ in range(rounds):
            updates = []
            for curator in curators:
                local = copy.deepcopy(model)
                optimizer = torch.optim.SGD(local.parameters(), lr=0.05)
                for x, y, _, weight in curator.steps(3, local, optimizer):
                    optimizer.zero_grad()
                    (weight * F.cross_entropy(local(x), y, reduction="none")).mean().backward()
                    optimizer.step()
                updates.append(local.state_dict())
            mean = {k: torch.stack([u[k].double() for u in updates]).mean(0) for k in updates[0]}
            model.load_state_dict({k: v.to(updates[0][k].dtype) for k, v in mean.items()})
        return model

    with torch.random.fork_rng():
        torch.manual_seed(0)
        straight = clients()
        expected = play(straight, toy_model(), 5)
        torch.manual_seed(0)
        first = clients()
        model = play(first, toy_model(), 2)
        second = clients()
        for old, new in zip(first, second, strict=True):
            new.load_state_dict(old.state_dict())
        model = play(second, model, 3)
    assert [int(curator.plan.active.sum()) for curator in straight] == [16, 16, 16]
    assert all(
        torch.equal(a, b) for a, b in zip(expected.state_dict().values(), model.state_dict().values(), strict=True)
    )


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    curator = Curator(toy_examples(), GroupBalanced(), batch_size=8)
    for _ in curator.epochs(2):
        list(curator)
    assert torch.equal(before, torch.get_rng_state())
