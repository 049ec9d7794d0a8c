import errno
import os
import resource
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from holdfast.errors import CheckpointError
from holdfast.training.state import load_state, save_state


def nested():
    return {
        "tensors": {"a": torch.arange(6).reshape(2, 3), 7: torch.tensor(1.5)},
        "list": [1, 2.5, None, True, "x", [torch.ones(2)]],
        "tuple": (0.9, 0.999),
        "empty": {},
        "mask": torch.tensor([True, False]),
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b and type(a) is type(b)


def test_what_is_saved_is_loaded_to_the_type(tmp_path):
    save_state(nested(), tmp_path / "s")
    assert same(nested(), load_state(tmp_path / "s"))


def test_optimizer_states_survive(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    save_state({"o": optimizer.state_dict()}, tmp_path / "s")
    assert same(optimizer.state_dict(), load_state(tmp_path / "s")["o"])


def test_tied_weights_survive(tmp_path):
    tensor = torch.ones(3)
    save_state({"a": tensor, "b": tensor, "c": tensor[1:]}, tmp_path / "s")
    assert load_state(tmp_path / "s")["c"].tolist() == [1, 1]


def test_a_sum_over_what_was_loaded_has_the_bits_of_one_over_what_was_saved(tmp_path):
    """BLAS adds in another order where a vector begins elsewhere, as it does in the file behind three bytes."""
    state = {"a": torch.tensor([True] * 3), "b": torch.randn(1001, generator=torch.Generator().manual_seed(0))}
    save_state(state, tmp_path / "s")
    loaded = load_state(tmp_path / "s")["b"]
    assert loaded.data_ptr() % 64 == 0
    assert torch.equal(loaded @ loaded, state["b"] @ state["b"])


@pytest.mark.parametrize("keep", [0, 4, 50, -1])
def test_a_truncated_file_is_named(tmp_path, keep):
    save_state(nested(), tmp_path / "s")
    whole = (tmp_path / "s").read_bytes()
    (tmp_path / "s").write_bytes(whole[:keep])
    with pytest.raises(CheckpointError, match=r"s can't be read as a checkpoint: it is truncated"):
        load_state(tmp_path / "s")


def test_a_foreign_file_is_named(tmp_path):
    save_file({"weight": torch.ones(2)}, tmp_path / "s")
    with pytest.raises(CheckpointError, match="not a holdfast checkpoint"):
        load_state(tmp_path / "s")
    torch.save({"a": 1}, tmp_path / "t")
    with pytest.raises(CheckpointError, match="can't be read"):
        load_state(tmp_path / "t")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        load_state(tmp_path / "nothing")


def test_what_cannot_be_saved_is_named_before_anything_is_written(tmp_path):
    with pytest.raises(CheckpointError, match="state bad/thing is of type object"):
        save_state({"bad": {"thing": object()}}, tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_previous_checkpoint_alone(tmp_path):
    """The kernel itself refuses: a file-size limit makes the write fail half-way, as a full disk does."""
    save_state({"a": torch.zeros(10)}, tmp_path / "s")
    script = (
        "import resource, signal, sys, torch; from pathlib import Path\n"
        "from holdfast.training.state import save_state; from holdfast.errors import CheckpointError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n    save_state({'a': torch.ones(100_000)}, Path(sys.argv[1]))\n"
        "except CheckpointError as error:\n    print(error)\n"
    )
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "s"], capture_output=True, text=True, check=True)
    assert "can't be written" in done.stdout
    assert "unharmed" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert torch.equal(load_state(tmp_path / "s")["a"], torch.zeros(10))


def test_no_space_left_is_said_in_words(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    save_state({"a": 1}, tmp_path / "s")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        save_state({"a": 2}, tmp_path / "s")
    assert load_state(tmp_path / "s") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
