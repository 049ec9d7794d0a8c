import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.models.devices import best_device, find_device
from holdfast.training import Training


@pytest.mark.parametrize("name", ["cuda:7", "banana", "", "cpu:x", "meta", "cuda:-1"])
def test_a_device_that_is_not_there_is_a_sentence(name):
    with pytest.raises(ConfigError, match=f"can't compute on the device '{name}' here .* give cpu, or auto"):
        find_device(name)


def test_the_cpu_is_there():
    assert find_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_takes_cuda_then_mps_then_the_cpu(monkeypatch, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert best_device() == find_device("auto") == torch.device(expected)


def test_the_default_is_the_cpu_because_tables_promise_their_numbers_to_the_bit():
    assert Training().device == "cpu"
