"""``holdfast fit`` and ``holdfast federate`` killed at random moments and continued end as if nothing had happened.

Children are forked, so that a round costs no imports and many kills fit into a minute. A kill may hit anything: the
making of the run directory, a step, the middle of a write, the last report.
"""

import json
import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from holdfast.cli.main import main
from holdfast.training.state import load_state

TYPED = {
    "fit": ["--data", "coloured-digits", "--model", "linear", "--method", "spare", "--epochs", "2",
            "--spare.infer-epoch", "1", "--batch-size", "256", "--checkpoint-seconds", "0"],
    "federate": ["--rounds", "12", "--cohort", "4", "--digits-clients.clients", "12", "--executor", "serial",
                 "--evaluate-every", "4", "--personalize", "ditto+local", "--attack", "a2", "--malicious", "0.2",
                 "--checkpoint-seconds", "0"],
}  # fmt: skip
KILLS = 3


def begin(words: list[str], says: Path) -> int:
    """The command in a process of its own, whose words go to a file."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        output = os.open(says, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = main(words)
    finally:
        os._exit(code)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def go_on(command: str, run: Path) -> list[str]:
    """What a user types: the beginning where there is no run yet, else its continuation."""
    return (
        [command, "--resume", str(run)]
        if (run / "config.yaml").exists()
        else [command, *TYPED[command], "--out", str(run)]
    )


def tensors(state: object) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def assert_same_to_the_bit(run: Path, whole: Path) -> None:
    one, other = (json.loads((path / "results.json").read_text()) for path in (run, whole))
    assert {**one, "seconds": 0} == {**other, "seconds": 0}
    for table in whole.glob("*.parquet"):
        assert pq.read_table(run / table.name).equals(pq.read_table(table)), table.name
    # The weights of a run have the model's own keys and no state: two equal models are two equal files.
    assert (run / "weights.safetensors").read_bytes() == (whole / "weights.safetensors").read_bytes()
    for file in whole.glob("checkpoints/*.safetensors"):
        states = [tensors(load_state(path / file.relative_to(whole))) for path in (run, whole)]
        assert len(states[0]) == len(states[1])
        assert all(torch.equal(a, b) for a, b in zip(*states, strict=True)), file.name
    for file in whole.rglob("*.rows"):
        assert (run / file.relative_to(whole)).read_bytes() == file.read_bytes(), file.name


@pytest.fixture(scope="module", params=TYPED)
def whole(request, tmp_path_factory):
    """A command, an undisturbed run of it, and how long that took."""
    folder = tmp_path_factory.mktemp(request.param)
    started = time.monotonic()
    assert ended(begin(go_on(request.param, folder / "whole"), folder / "says")) == 0, (folder / "says").read_text()
    return request.param, folder / "whole", time.monotonic() - started


@pytest.mark.soak
def test_a_command_killed_at_random_moments_ends_as_one_that_was_left_alone(whole, seed, tmp_path):
    command, expected, duration = whole
    dice, run, says = random.Random(seed), tmp_path / f"run-{seed}", tmp_path / f"says-{seed}"
    for _ in range(KILLS):
        child = begin(go_on(command, run), says)
        time.sleep(dice.uniform(0, duration / 2))
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        assert ended(child) in {0, -signal.SIGKILL}, says.read_text()
        if (run / "results.json").exists():
            break
    else:
        assert ended(begin(go_on(command, run), says)) == 0, says.read_text()
    assert_same_to_the_bit(run, expected)
    shutil.rmtree(run)
