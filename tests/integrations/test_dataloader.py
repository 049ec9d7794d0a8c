import subprocess
import sys

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader

from holdfast.data import Examples, LazyInputs
from holdfast.errors import ConfigError, HoldfastWarning
from holdfast.integrations.dataloader import CuratedSampler, curated_loader
from holdfast.spurious.reweighting.balancing import ClassBalanced
from holdfast.training import Curator
from tests.integrations.conftest import (
    EPOCHS,
    GROWING,
    SHRINKING,
    EveryStep,
    Resize,
    make_curator,
    seen_by_curator,
)


def test_importing_the_integrations_imports_no_framework():
    code = (
        "import sys, holdfast.integrations, holdfast.integrations.dataloader, holdfast.integrations.hf_trainer, "
        "holdfast.integrations.accelerate, holdfast.integrations.trackers.tracker; "
        "heavy = {'lightning', 'transformers', 'accelerate', 'mlflow', 'tensorboard'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("sizes", [GROWING, SHRINKING])
@pytest.mark.parametrize("epoch_size", [None, 40])
def test_a_plain_dataloader_sees_what_the_curator_draws(sizes, epoch_size):
    curator = make_curator(Resize(sizes), epoch_size=epoch_size)
    loader = DataLoader(range(64), sampler=CuratedSampler(curator), batch_size=8)
    seen, lengths = [], []
    for epoch in curator.epochs(EPOCHS):
        loader.sampler.set_epoch(epoch)
        lengths.append(len(loader))
        seen.append([batch.tolist() for batch in loader])
    assert seen == seen_by_curator(Resize(sizes), epoch_size=epoch_size)
    assert lengths == [-(-(epoch_size or size) // 8) for size in sizes]


def test_looking_twice_and_setting_the_epoch_twice_changes_nothing():
    curator = make_curator(Resize(), epoch_size=40)
    sampler = CuratedSampler(curator)
    curator.start()
    first = list(sampler)
    sampler.set_epoch(0)
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert (curator.clock.epoch, curator.clock.step) == (0, 0)


def test_a_loop_that_never_ends_the_curators_epoch_is_told():
    curator = make_curator(Resize(), epoch_size=40)
    sampler = CuratedSampler(curator)
    curator.start()
    sampler.set_epoch(0)
    with pytest.warns(HoldfastWarning, match=r"curator is still in its epoch 0.*end_epoch"):
        sampler.set_epoch(1)


@pytest.mark.parametrize("draws", [2, 5, 9, 40, 41, 42, 43])
@pytest.mark.parametrize(("replicas", "parts"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 1), (5, 1), (8, 1)])
def test_ranks_and_parts_divide_every_step_of_the_curator(draws, replicas, parts):
    """Every rank has as many batches of two at least, and the mean of means is that over the curator's mini-batch."""
    policy = Resize(weigh=True)
    curator, alone = make_curator(policy, epoch_size=draws), make_curator(policy, epoch_size=draws)
    curator.start()
    alone.start()
    size = None if parts == 1 else 8 // replicas // parts
    loaders = [curated_loader(curator, batch_size=size, num_replicas=replicas, rank=rank) for rank in range(replicas)]
    batches = [list(loader) for loader in loaders]
    assert {len(loader) for loader in loaders} == {len(rank) for rank in batches}
    for loader, rank in zip(loaders, batches, strict=True):
        assert len(loader.sampler) == sum(len(batch.labels) for batch in rank) == len(list(loader.sampler))
    values, taken = torch.randn(len(curator.examples), dtype=torch.float64), 0
    for whole in alone:
        # All but a last step have all parts; a loop divides by their number all the same.
        count = min(parts, len(batches[0]) - taken)
        step = [batch for rank in batches for batch in rank[taken : taken + count]]
        taken += count
        assert min(len(batch.labels) for batch in step) >= min(2, len(whole.labels)) or parts > 1
        counted = torch.cat([batch.positions[batch.weights > 0] for batch in step])
        assert sorted(counted.tolist()) == sorted(whole.positions.tolist())
        means = torch.stack([(batch.weights * values[batch.positions]).mean() for batch in step])
        expected = (whole.weights * values[whole.positions]).mean()
        torch.testing.assert_close(means.sum() / (replicas * parts), expected, rtol=1e-6, atol=1e-7)
    assert taken == len(batches[0])


def test_a_share_is_augmented_as_inside_its_mini_batch():
    curator, alone = (make_curator(augment=noisy, epoch_size=13) for _ in range(2))
    curator.start()
    alone.start()
    shares = [list(curated_loader(curator, num_replicas=3, rank=rank)) for rank in range(3)]
    for whole, *parts in zip(alone, *shares, strict=True):
        inputs = dict(zip(whole.positions.tolist(), whole.inputs, strict=True))
        for part in parts:
            for position, seen in zip(part.positions.tolist(), part.inputs, strict=True):
                assert torch.equal(seen, inputs[position])


def test_the_share_is_asked_for_when_iteration_starts(monkeypatch):
    curator = make_curator(epoch_size=40)
    sampler = CuratedSampler(curator)
    curator.start()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert list(sampler) == curator.epoch_draws()[1::2].tolist()
    assert len(sampler) == 20


def noisy(inputs, generator):
    return inputs + torch.randn(inputs.shape, generator=generator)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
@pytest.mark.parametrize("epoch_size", [None, 40, 41])
def test_the_loader_yields_the_curators_own_batches(options, epoch_size):
    ours = make_curator(Resize(weigh=True), augment=noisy, epoch_size=epoch_size)
    theirs = make_curator(Resize(weigh=True), augment=noisy, epoch_size=epoch_size)
    loader = curated_loader(ours, **options)
    for _ in zip(ours.epochs(EPOCHS), theirs.epochs(EPOCHS), strict=True):
        assert len(loader) == len(theirs)
        for batch, expected in zip(loader, theirs, strict=True):
            for part, wanted in zip(batch, expected, strict=True):
                assert torch.equal(part, wanted)


def test_named_inputs_arrive_by_name():
    curator = make_curator()
    named = make_curator()
    named.examples = type(named.examples).of({"x": curator.examples.inputs.values}, curator.examples.labels)
    named.start()
    curator.start()
    for batch, expected in zip(curated_loader(named), curator, strict=True):
        assert torch.equal(batch.inputs["x"], expected.inputs)


def test_an_accumulated_step_draws_its_parts_differently():
    curator = make_curator(augment=lambda inputs, generator: torch.rand(len(inputs), 1, generator=generator))
    curator.start()
    halves = [batch.inputs for batch in curated_loader(curator, batch_size=4)]
    assert not torch.equal(halves[0], halves[1])


def test_a_curator_restored_in_mid_epoch_continues_with_the_next_batch():
    curator = make_curator(ClassBalanced(), epoch_size=40)
    curator.start()
    whole = list(CuratedSampler(curator))
    curator.end_step()
    curator.end_step()
    state = CuratedSampler(curator).state_dict()
    again = CuratedSampler(make_curator(ClassBalanced(), epoch_size=40))
    again.load_state_dict(state)
    assert list(again) == whole[16:]
    assert len(again) == 40


def test_drop_last_is_the_curators():
    curator = make_curator(epoch_size=44, drop_last=True)
    curator.start()
    assert [len(batch.labels) for batch in curated_loader(curator)] == [8] * 5


def test_a_policy_between_steps_is_refused_where_workers_fetch_ahead():
    with pytest.raises(ConfigError, match=r"every-step can change the plan after any step.*fetch batches ahead"):
        curated_loader(make_curator(EveryStep()), num_workers=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": True}, "shuffle of the loader follows from the curator"),
        ({"batch_size": 3}, "don't divide the curator's steps of 8"),
        ({"batch_size": 4, "num_replicas": 3, "rank": 0}, "don't divide the curator's steps of 8"),
        ({"num_replicas": 2, "rank": 2}, "rank is 2 of 2 processes"),
        ({"rank": 1}, "belong together"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        curated_loader(make_curator(), **options)


def test_the_sampler_works_inside_a_batch_sampler():
    curator = make_curator(Resize(), epoch_size=40)
    curator.start()
    batches = BatchSampler(CuratedSampler(curator), batch_size=8, drop_last=False)
    assert list(batches) == seen_by_curator(Resize(), epoch_size=40, epochs=1)[0]


def test_a_curator_that_was_not_started_is_no_empty_epoch():
    with pytest.raises(ConfigError, match="not started"):
        list(CuratedSampler(make_curator()))


def test_lazy_inputs_with_threads_survive_a_fork():
    inputs = LazyInputs(lambda i: torch.full((2,), float(i)), 64, workers=2)
    curator = Curator(Examples.of(inputs, [0, 1] * 32), batch_size=8)
    curator.start()
    next(iter(curator))  # the parent's threads start, as a policy's sweep would make them
    assert len(list(curated_loader(curator, num_workers=1, timeout=60))) == 8
