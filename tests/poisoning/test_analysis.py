import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.poisoning import Drop, gradient_medoids
from holdfast.poisoning.analysis import (
    cluster_sizes,
    dropped_over_time,
    effective_poisons,
    gradient_error,
    isolation,
    rank_by_target,
)


@pytest.mark.parametrize("needed", [1, 2, 5, 8, 16, 20])
def test_the_smallest_prefix_is_found(needed: int) -> None:
    ranked, trainings = torch.arange(100, 120), []

    def works(ids: torch.Tensor) -> bool:
        trainings.append(len(ids))
        return set(range(100, 100 + needed)) <= set(ids.tolist())

    effective = effective_poisons(ranked, works)
    assert effective.ids.tolist() == list(range(100, 100 + needed))
    assert effective.suffices
    assert effective.needed
    assert len(trainings) <= 12


def test_an_attack_that_never_works() -> None:
    effective = effective_poisons(torch.arange(5), lambda ids: False)
    assert not effective.suffices
    assert len(effective.ids) == 5


def test_others_may_suffice_as_well() -> None:
    effective = effective_poisons(torch.arange(10), lambda ids: len(ids) >= 3)
    assert effective.ids.tolist() == [0, 1, 2]
    assert not effective.needed


def test_the_nearest_to_the_target_come_first() -> None:
    residuals = torch.tensor([[3.0, 0], [1, 0], [0, 2]])
    assert rank_by_target(residuals, torch.tensor([0.0, 0]), torch.tensor([7, 8, 9])).tolist() == [8, 9, 7]


def drop(epoch: int, ids: list[int]) -> Drop:
    some = torch.tensor(ids)
    return Drop(epoch, some, some * 0, some * 0 + 1, some.float(), some * 0)


def test_shares_grow_round_by_round() -> None:
    kinds = {"poisons": torch.tensor([1, 2]), "clean": torch.tensor([3, 4, 5, 6]), "none": torch.empty(0)}
    shares = dropped_over_time([drop(2, [1, 3]), drop(4, [2])], kinds)
    assert shares == {"poisons": [0.5, 1.0], "clean": [0.25, 0.25], "none": [0.0, 0.0]}


def test_cluster_sizes_agree_with_the_medoids() -> None:
    points, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    medoids = gradient_medoids(points, labels, 0.2, stream=torch.Generator().manual_seed(0))
    sizes = cluster_sizes(points, labels, medoids)
    assert torch.equal(sizes[medoids.positions], medoids.sizes)
    assert int((1 / sizes.float()).sum().round()) == len(medoids.positions)


def test_isolation_by_hand() -> None:
    gradients = torch.tensor([[1.0, 0], [0, 2], [0, 1]])
    measured = isolation(gradients, torch.tensor([0.0, 3]))
    assert measured.mutual == pytest.approx(1 / 3)
    assert measured.to_target == pytest.approx(2 / 3)
    with pytest.raises(ConfigError, match="no pairs"):
        isolation(gradients[:1], gradients[0])


def test_gradient_errors_are_those_of_autograd() -> None:
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(50, 5, generator=draw), torch.randint(3, (50,), generator=draw)
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    kept = torch.arange(0, 50, 3)

    def mean(positions: torch.Tensor) -> torch.Tensor:
        model.eval()
        loss = F.cross_entropy(model(x[positions]), y[positions])
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])

    expected = float((mean(kept) - mean(torch.arange(50))).norm())
    model.train()
    error = gradient_error(model, Examples.of(x, y), kept, batch_size=7)
    assert error == pytest.approx(expected, rel=1e-4)
    assert model.training
    assert gradient_error(model, Examples.of(x, y), torch.arange(50)) == pytest.approx(0, abs=1e-7)
