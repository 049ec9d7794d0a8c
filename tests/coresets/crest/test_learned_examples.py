import torch

from holdfast.coresets.crest.learned_examples import LossWatch

LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])


def at(*positions):
    return torch.tensor(positions)


def test_what_was_small_every_time_it_was_seen_is_dropped():
    watch = LossWatch(8)
    watch.record(at(0, 1, 2), torch.tensor([0.05, 0.05, 0.05]))
    watch.record(at(0, 1, 4), torch.tensor([0.1, 0.2, 0.01]))
    assert watch.close_window(LABELS, threshold=0.1) == 1
    assert watch.pool.tolist() == [False] + [True] * 7


def test_one_sighting_is_enough_where_that_is_said():
    watch = LossWatch(8)
    watch.record(at(0, 5), torch.tensor([0.05, 0.3]))
    assert watch.close_window(LABELS, threshold=0.1, sightings=1) == 1


def test_a_window_forgets_the_one_before_and_what_is_dropped_stays_dropped():
    watch = LossWatch(8)
    watch.record(at(0), torch.tensor([0.05]))
    assert watch.close_window(LABELS, threshold=0.1) == 0
    watch.record(at(0), torch.tensor([0.05]))
    assert watch.close_window(LABELS, threshold=0.1) == 0
    for _ in range(2):
        watch.record(at(0), torch.tensor([0.05]))
    assert watch.close_window(LABELS, threshold=0.1) == 1
    for _ in range(2):
        watch.record(at(0), torch.tensor([9.0]))
    watch.close_window(LABELS, threshold=0.1)
    assert not bool(watch.pool[0])


def test_a_class_that_would_get_too_small_keeps_what_it_had():
    watch = LossWatch(8)
    for _ in range(2):
        watch.record(at(0, 1, 4), torch.tensor([0.01, 0.01, 0.01]))
    assert watch.close_window(LABELS, threshold=0.1, fewest_of_class=3) == 1
    assert watch.pool.tolist() == [True] * 4 + [False] + [True] * 3


def test_a_pool_that_would_get_too_small_stays():
    watch = LossWatch(8)
    for _ in range(2):
        watch.record(at(0, 1, 4), torch.tensor([0.01, 0.01, 0.01]))
    assert watch.close_window(LABELS, threshold=0.1, fewest=6) == 0
    assert bool(watch.pool.all())


def test_only_examples_that_are_there_count_as_left():
    there = torch.tensor([True, True, True, False, True, False, False, False])
    for fewest, fewest_of_class, dropped in ((2, 0, 2), (3, 0, 0), (0, 2, 0), (0, 1, 2)):
        watch = LossWatch(8)
        for _ in range(2):
            watch.record(at(0, 1), torch.tensor([0.01, 0.01]))
        bounds = {"fewest": fewest, "fewest_of_class": fewest_of_class}
        assert watch.close_window(LABELS, threshold=0.1, active=there, **bounds) == dropped


def test_it_survives_a_checkpoint():
    watch, again = LossWatch(8), LossWatch(0)
    watch.record(at(0, 1), torch.tensor([0.01, 0.5]))
    again.load_state_dict(watch.state_dict())
    again.record(at(0, 1), torch.tensor([0.01, 0.01]))
    assert again.close_window(LABELS, threshold=0.1) == 1
