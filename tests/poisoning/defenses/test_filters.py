import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from holdfast.errors import ConfigError
from holdfast.poisoning.defenses import activation_keeps, deep_knn_keeps, spectral_keeps


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(200) % 4
    return torch.randn(200, 6, generator=draw) + 2 * torch.nn.functional.one_hot(labels, 6), labels


@pytest.mark.parametrize("k", [1, 4, 7, 199])
def test_neighbours_are_asked_one_by_one(k: int) -> None:
    features, labels = data()
    _, neighbours = NearestNeighbors(n_neighbors=k + 1).fit(features.numpy()).kneighbors(features.numpy())
    expected = [
        int((labels[row[1:]] == labels[place]).sum()) >= k - int((labels[row[1:]] == labels[place]).sum())
        for place, row in enumerate(neighbours)
    ]
    assert deep_knn_keeps(features, labels, k).tolist() == expected


def test_those_among_strangers_go() -> None:
    features, labels = data()
    features = features + 50 * torch.nn.functional.one_hot(labels, 6)
    labels[:3] = (labels[:3] + 1) % 4
    assert (~deep_knn_keeps(features, labels, 9)).nonzero().flatten().tolist() == [0, 1, 2]
    with pytest.raises(ConfigError, match="can't be compared"):
        deep_knn_keeps(features[:1], labels[:1], 5)


def test_every_class_loses_as_many_along_its_main_direction() -> None:
    features, labels = data()
    keep = spectral_keeps(features, labels, 7)
    assert torch.bincount(labels[~keep]).tolist() == [7] * 4
    own = features[labels == 2].double()
    centred = own - own.mean(0)
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    scores = (centred @ vectors[:, -1]).square()
    assert set(scores.topk(7).indices.tolist()) == set((~keep[labels == 2]).nonzero().flatten().tolist())
    with pytest.raises(ConfigError, match="class 0 has 50"):
        spectral_keeps(features, labels, 50)


def test_the_smaller_of_two_clusters_goes() -> None:
    features, labels = data()
    features[labels == 1] *= 0.01
    odd = (labels == 1).nonzero().flatten()[:9]
    features[odd] += 30
    keep = activation_keeps(features, labels)
    assert set((~keep & (labels == 1)).nonzero().flatten().tolist()) == set(odd.tolist())
    for label in range(4):
        gone = int((~keep[labels == label]).sum())
        assert 0 < gone <= 25
