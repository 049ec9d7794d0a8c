"""Rows, batches and aggregation on another device; the device's own tests run in a process of their own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.federated import Rounds
from holdfast.federated.engine.network import Network
from tests.federated.toy import linear

ROOT = Path(__file__).parents[3]
CASES = "tests/federated/engine/second_device/cases.py"

there = pytest.mark.skipif(
    shutil.which("c++") is None or shutil.which("ninja") is None, reason="a second device needs a compiler and ninja"
)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)


@there
def test_a_federation_on_a_second_device_is_that_of_the_cpu_and_devices_never_mix():
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", CASES)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert int(done.stdout.rstrip().splitlines()[-1].split(" passed")[0].split()[-1]) > 80


_POOL = """
import torch
from holdfast.federated import Ditto, Rounds, federate
from tests.federated.engine.second_device import available
from tests.federated.toy import linear, toy_clients

assert available() and torch.accelerator.is_available()
settings = dict(rounds=2, cohort=5, batch_size=4, chunk=2, workers=2)
pool, auto, one = (
    federate(toy_clients(), linear(), Rounds(**settings, executor=name), personalize=[Ditto(0.5)])
    for name in ("pool", "auto", "serial")
)
torch.testing.assert_close(pool.weights, one.weights, rtol=0, atol=1e-6)
torch.testing.assert_close(auto.weights, one.weights, rtol=0, atol=1e-6)
"""


@there
def test_workers_can_be_forked_where_torch_sees_an_accelerator():
    """A backward pass in the parent would start torch's device threads, which no fork survives."""
    done = run("-c", _POOL)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "trial" not in done.stderr


def test_the_pool_and_devices_that_are_not_there_are_refused():
    with pytest.raises(ConfigError, match="forks"):
        Rounds(executor="pool", device="cuda")
    with pytest.raises(ConfigError, match="can't be used here"):
        Network(linear(), device="hpu")
