import torch

from holdfast.primitives.streams import derive_seed, numpy_stream, torch_stream


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
