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
    joined,
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


@pytest.mark.parametrize(("draws", "replicas"), [(40, 2), (40, 3), (41, 2), (2, 5)])
def test_ranks_take_turns_and_the_first_draws_fill_up(draws, replicas):
    curator = make_curator(epoch_size=draws)
    curator.start()
    whole = curator.epoch_draws().tolist()
    shares = [CuratedSampler(curator, num_replicas=replicas, rank=rank) for rank in range(replicas)]
    taken = [list(share) for share in shares]
    assert {len(share) for share in shares} == {len(part) for part in taken} == {-(-draws // replicas)}
    dealt = [position for turn in zip(*taken, strict=True) for position in turn]
    assert dealt[:draws] == whole
    filled = dealt[draws:]
    assert filled == (whole * replicas)[: len(filled)]


@pytest.mark.parametrize("draws", [5, 9, 40, 41, 42, 43])
@pytest.mark.parametrize(("replicas", "parts"), [(1, 2), (2, 1), (2, 2), (4, 1)])
def test_a_step_of_all_ranks_and_parts_is_a_batch_of_the_curator(draws, replicas, parts):
    size = 8 // replicas // parts
    (expected, *_) = seen_by_curator(Resize(), epoch_size=draws, epochs=1)
    curator = make_curator(Resize(), epoch_size=draws)
    curator.start()
    loaders = [curated_loader(curator, batch_size=size, num_replicas=replicas, rank=rank) for rank in range(replicas)]
    batches = [[batch.positions.tolist() for batch in loader] for loader in loaders]
    assert {len(loader) for loader in loaders} == {len(part) for part in batches}
    in_turn = [joined(turn) for turn in zip(*batches, strict=True)]
    steps = [joined(in_turn[start : start + parts]) for start in range(0, len(in_turn), parts)]
    fill = -draws % replicas
    expected[-1] += (expected[0] * replicas)[:fill]
    assert [sorted(step) for step in steps] == [sorted(step) for step in expected]


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


def test_a_policy_between_steps_is_refused():
    with pytest.raises(ConfigError, match=r"every-step can change the plan after any step.*fetches batches ahead"):
        curated_loader(make_curator(EveryStep()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": True}, "shuffle of the loader follows from the curator"),
        ({"batch_size": 3}, "don't divide the curator's steps of 8"),
        ({"num_replicas": 3, "rank": 0}, "don't divide the curator's steps of 8"),
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
