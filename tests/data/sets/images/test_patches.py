import numpy as np
import pytest
import torch

from holdfast.data import load
from holdfast.data.sets.images.patches import PatchData, draw_features, make_patches
from holdfast.errors import ConfigError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_features_are_orthonormal() -> None:
    core, spurious = draw_features(50, rng())
    assert core @ core == pytest.approx(1) and spurious @ spurious == pytest.approx(1)
    assert core @ spurious == pytest.approx(0, abs=1e-12)


def test_every_example_is_the_definition() -> None:
    features = draw_features(7, rng(1))
    sample = make_patches(200, features, rng(2), beta_c=0.3, beta_s=2.0, alpha=0.8, noise=0.5)
    assert sample.inputs.shape == (200, 3, 7) and sample.inputs.dtype == np.float32
    for x, y, a, (c, s, n) in zip(sample.inputs, sample.labels, sample.attributes, sample.places, strict=True):
        assert {c, s, n} == {0, 1, 2}
        np.testing.assert_allclose(x[c], 0.3 * y * features[0], atol=1e-6)
        np.testing.assert_allclose(x[s], 2.0 * a * features[1], atol=1e-6)


def test_noise_agreement_and_order_have_their_distributions() -> None:
    n = 20_000
    sample = make_patches(n, draw_features(10, rng(1)), rng(2), alpha=0.9, noise=0.125)
    noise = sample.inputs[np.arange(n), sample.places[:, 2]]
    assert noise.std() == pytest.approx(0.125, rel=0.01)
    assert abs(noise.mean()) < 0.002
    assert np.mean(sample.labels == sample.attributes) == pytest.approx(0.9, abs=0.01)
    assert np.mean(sample.labels == 1) == pytest.approx(0.5, abs=0.02)
    _, counts = np.unique(sample.places, axis=0, return_counts=True)
    assert len(counts) == 6 and np.abs(counts / n - 1 / 6).max() < 0.02


def test_the_data_set_maps_minus_one_and_one_to_classes() -> None:
    data = PatchData(n=300, alpha=0.8, seed=4)
    splits = data.load(root=None)  # type: ignore[arg-type]
    drawn = data.draw("test")
    assert (splits.test.labels * 2 - 1).tolist() == drawn.labels.tolist()
    assert splits.test.attributes is not None
    assert (splits.test.attributes * 2 - 1).tolist() == drawn.attributes.tolist()
    assert torch.equal(splits.test.gather(torch.arange(300))[0], torch.from_numpy(drawn.inputs))
    ids = torch.cat([splits.train.ids, splits.validation.ids, splits.test.ids])
    assert ids.tolist() == list(range(900))
    assert splits.train.group_names == ("-1/-1", "-1/+1", "+1/-1", "+1/+1")


def test_parts_share_features_and_nothing_else() -> None:
    data = PatchData(n=50)
    train, test = data.draw("train"), data.draw("test")
    assert np.array_equal(train.core, test.core) and np.array_equal(train.spurious, test.spurious)
    assert not np.array_equal(train.inputs, test.inputs)
    assert np.array_equal(train.inputs, PatchData(n=50).draw("train").inputs)


def test_the_papers_sizes_are_the_defaults() -> None:
    splits = load("patches")
    assert len(splits.train) == len(splits.test) == 10_000
    minority = splits.train.group_counts()[[1, 2]]
    assert 150 < int(minority.sum()) < 260


def test_senseless_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="alpha is 2"):
        load("patches", alpha=2)
    with pytest.raises(ConfigError, match="d is 1"):
        load("patches", d=1)
