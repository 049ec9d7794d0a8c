import torch

from holdfast.spurious.last_layer.folds import folds


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_every_part_is_spread_over_the_folds_as_evenly_as_it_divides():
    parts = torch.tensor([0] * 7 + [1] * 3 + [4] * 2)[torch.randperm(12, generator=stream(1))]
    fold = folds(parts, 3, stream())
    for part, counts in ((0, [3, 2, 2]), (1, [1, 1, 1]), (4, [1, 1, 0])):
        assert torch.bincount(fold[parts == part], minlength=3).tolist() == counts


def test_who_is_in_which_fold_depends_on_the_stream_alone():
    parts = torch.zeros(50, dtype=torch.int64)
    assert torch.equal(folds(parts, 2, stream()), folds(parts, 2, stream()))
    assert not torch.equal(folds(parts, 2, stream()), folds(parts, 2, stream(1)))
