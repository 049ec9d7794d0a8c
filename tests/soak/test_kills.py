"""``holdfast fit`` and ``holdfast federate`` stopped at random moments and continued end as if nothing had happened.

Children are forked, so that a round costs no imports and many stops fit into a minute. A kill may hit anything: the
making of the run directory, a step, the middle of a write, the last report. SIGTERM and SIGUSR1 ask for the end: what
comes of them is a saved state and an exit code that says so. ``python -m tests.soak.test_kills`` stops every chain many
times and writes results/soak/kills.log.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from holdfast.cli.main import main
from holdfast.training.state import load_state

_FIT = ["fit", "--data", "coloured-digits", "--model", "linear", "--epochs", "2", "--batch-size", "256",
        "--checkpoint-seconds", "0"]  # fmt: skip
_SPARE = ["--spare.infer-epoch", "1"]
_EPIC = ["--epic.start", "1", "--epic.every", "1"]
TYPED = {
    "spare": [*_FIT, "--method", "spare", *_SPARE],
    "jtt": [*_FIT, "--method", "jtt", "--jtt.infer-epoch", "1"],
    "group-dro": [*_FIT, "--method", "group-dro"],
    "spare's groups and pde": [*_FIT, "--method", "pde", "--groups", "spare", *_SPARE, "--pde.first-expansion", "1",
                               "--pde.every", "1"],
    "epic and crest": [*_FIT, "--method", "epic+crest", *_EPIC, "--crest.subset", "64", "--crest.batch-size", "32"],
    "spare and crest": [*_FIT, "--method", "spare+crest", *_SPARE, "--crest.subset", "64", "--crest.batch-size", "32"],
    "federate": ["federate", "--rounds", "12", "--cohort", "4", "--digits-clients.clients", "12", "--executor",
                 "serial", "--evaluate-every", "4", "--personalize", "ditto+local", "--attack", "a2",
                 "--malicious", "0.2", "--checkpoint-seconds", "0"],
}  # fmt: skip
KILLS = 3
ASKED, SAVED = (signal.SIGTERM, signal.SIGUSR1), 75
LOG = Path(__file__).parents[2] / "results" / "soak" / "kills.log"


def begin(words: list[str], says: Path) -> int:
    """The command in a process of its own, whose words go to a file."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()  # so that those whom it starts are stopped with it
        output = os.open(says, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = main(words)
    finally:
        os._exit(code)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def go_on(chain: str, run: Path, more: tuple[str, ...] = ()) -> list[str]:
    """What a user types: the beginning where there is no run yet, else its continuation."""
    typed = TYPED[chain]
    if (run / "config.yaml").exists():
        return [typed[0], "--resume", str(run), *more]
    return [*typed, "--out", str(run), *more]


def stop(child: int, number: signal.Signals) -> int:
    """Send a signal to a child and all that it started; how it ended."""
    with suppress(ProcessLookupError):
        os.killpg(child, number)
    return ended(child)


def stopped_and_continued(
    chain: str,
    run: Path,
    says: Path,
    dice: random.Random,
    *,
    signals: list[signal.Signals],
    duration: float,
    more: tuple[str, ...] = (),
) -> Counter[str]:
    """Stop a command once by each signal, and let it end.

    Returns:
        How often each signal met it.
    """
    met: Counter[str] = Counter()
    for number in signals:
        child = begin(go_on(chain, run, more), says)
        time.sleep(dice.uniform(0, duration / 2))
        code = stop(child, number)
        # Before training and after it there is nothing to save, and a signal ends the process as it always does.
        expected = {0, -number, SAVED} if number in ASKED else {0, -number}
        assert code in expected, (chain, number, code, says.read_text())
        met[f"{number.name}, {'saved' if code == SAVED else 'over already' if code == 0 else 'killed'}"] += 1
        if (run / "results.json").exists():
            return met
    assert ended(begin(go_on(chain, run, more), says)) == 0, says.read_text()
    assert not list(run.rglob(".*.part")), "half-written files are left"
    return met


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


def left_alone(chain: str, folder: Path, more: tuple[str, ...] = ()) -> tuple[Path, float]:
    """An undisturbed run of a command, and how long it took."""
    started = time.monotonic()
    assert ended(begin(go_on(chain, folder / "whole", more), folder / "says")) == 0, (folder / "says").read_text()
    return folder / "whole", time.monotonic() - started


@pytest.fixture(scope="module", params=("spare", "epic and crest", "federate"))
def whole(request, tmp_path_factory):
    """A chain, an undisturbed run of it, and how long that took."""
    return request.param, *left_alone(request.param, tmp_path_factory.mktemp("kills"))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["killed", "asked to end"])
def test_a_command_stopped_at_random_moments_ends_as_one_that_was_left_alone(whole, kind, seed, tmp_path):
    chain, expected, duration = whole
    dice, run, says = random.Random(seed), tmp_path / f"run-{seed}", tmp_path / f"says-{seed}"
    signals = [signal.SIGKILL] * KILLS if kind == "killed" else [dice.choice(ASKED) for _ in range(2)]
    stopped_and_continued(chain, run, says, dice, signals=signals, duration=duration)
    assert_same_to_the_bit(run, expected)
    shutil.rmtree(run)


def main_kills() -> None:
    """Stop every chain many times, and write down how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="by SIGKILL, over all chains and numbers of processes")
    parser.add_argument("--asks", type=int, default=20, help="by SIGTERM and SIGUSR1 in turn")
    parser.add_argument("--processes", type=int, nargs="+", default=[1])
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    dice, lines, total = random.Random(chosen.seed), [], Counter()
    settings = [(chain, count) for count in chosen.processes for chain in TYPED if count == 1 or chain != "federate"]
    with tempfile.TemporaryDirectory() as place:
        for number, (chain, count) in enumerate(settings):
            more = () if count == 1 else ("--processes", str(count))
            folder = Path(place) / str(number)
            folder.mkdir()
            expected, duration = left_alone(chain, folder, more)
            share = [len(range(number, many, len(settings))) for many in (chosen.kills, chosen.asks)]
            left = [signal.SIGKILL] * share[0] + [ASKED[turn % 2] for turn in range(share[1])]
            dice.shuffle(left)
            met: Counter[str] = Counter()
            while left:
                run = folder / f"run-{len(left)}"
                now = stopped_and_continued(
                    chain, run, folder / "says", dice, signals=left[:5], duration=duration, more=more
                )
                assert_same_to_the_bit(run, expected)
                del left[: sum(now.values())]
                met += now
            lines.append(f"{chain}, {count} process{'es' if count > 1 else ''}: equal to the bit; {dict(met)}")
            total += met
            print(lines[-1], flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    head = f"commit {commit.stdout.strip()}, seed {chosen.seed}: {total.total()} signals, {dict(total)}"
    LOG.write_text(
        "\n".join([head, "results, tables, weights and checkpoints equal those of a run left alone", "", *lines]) + "\n"
    )


if __name__ == "__main__":
    main_kills()
