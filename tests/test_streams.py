import numpy as np
import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.streams import data_stream, derive_seed, numpy_stream, torch_stream


def test_a_stream_depends_on_seed_and_purpose_only():
    assert torch.equal(
        torch.rand(5, generator=torch_stream(1, "a", 2)), torch.rand(5, generator=torch_stream(1, "a", 2))
    )
    assert numpy_stream(1, "a").random() == numpy_stream(1, "a").random()


def test_different_purposes_give_different_seeds():
    seeds = [derive_seed(s, *p) for s in (0, 1) for p in [("a", 1), ("a1",), ("a", "1"), ("a", 2), ("b", 1), ()]]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_derivation_never_changes():
    """Published runs name their draws by these numbers."""
    assert derive_seed(0, "draws", 0, 0) == 2334137124985245683


def test_the_global_generators_are_left_alone():
    before = torch.get_rng_state()
    torch_stream(3, "x")
    numpy_stream(3, "x")
    assert torch.equal(before, torch.get_rng_state())


def test_a_stream_of_a_data_set_depends_on_seed_and_purpose_alone() -> None:
    np.random.seed(1)  # noqa: NPY002 - to show that the global generator is left alone
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    draws = {(s, p): data_stream(s, p).integers(2**60) for s in (0, 1) for p in ("train", "test")}
    assert len(set(draws.values())) == 4
    assert data_stream(1, "test").integers(2**60) == draws[1, "test"]
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ConfigError, match="the seed -1 is negative"):
        data_stream(-1, "train")


def test_data_sets_are_drawn_as_they_always_were() -> None:
    """Published data sets hang on these numbers."""
    assert data_stream(0, "colours train").integers(2**60) == 375356083344415110
