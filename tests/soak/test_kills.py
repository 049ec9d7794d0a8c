"""``holdfast fit`` and ``holdfast federate`` stopped at random moments and continued end as if nothing had happened.

Children are forked, so that a round costs no imports and many stops fit into a minute. A kill may hit anything: the
making of the run directory, a step, the middle of a write, the last report. SIGTERM and SIGUSR1 ask for the end: what
comes of them is a saved state and an exit code that says so. ``python -m tests.soak.test_kills --minutes 10`` stops
every chain many times, goes on where it was cut off, and appends to results/soak/kills.log.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from holdfast.cli.main import main
from holdfast.training.state import load_state
from tests.soak.journal import FAILED, Journal

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


def await_checkpoint(run: Path, child: int) -> None:
    """Wait until a command has saved something since it began, or is over."""
    began = time.time()
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if any(file.stat().st_mtime > began for file in present(run.glob("checkpoints/*.safetensors"))):
            return
        time.sleep(0.01)


def present(files: Iterator[Path]) -> Iterator[Path]:
    for file in files:
        if file.exists():
            yield file


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
        if number in ASKED:  # before training there is nothing to save, and the signal ends the process as ever
            await_checkpoint(run, child)
        time.sleep(dice.uniform(0, duration / (20 if number in ASKED else 2)))
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


def stop_many(chain: str, count: int, seed: int, signals: list[signal.Signals]) -> str:
    """Stop one chain by all these signals, five to a run, and say how it went."""
    dice, more = random.Random(seed), () if count == 1 else ("--processes", str(count))
    met: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        try:
            expected, duration = left_alone(chain, folder, more)
            while signals:
                run = folder / f"run-{len(signals)}"
                now = stopped_and_continued(
                    chain, run, folder / "says", dice, signals=signals[:5], duration=duration, more=more
                )
                assert_same_to_the_bit(run, expected)
                signals = signals[sum(now.values()) :]
                met += now
        except AssertionError as error:
            return f"{FAILED} after {dict(met)}: {str(error)[:1500]}"
    return f"equal to the bit; {dict(met)}"


def main_kills() -> int:
    """Stop every chain many times, and write down how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="by SIGKILL, over all chains and numbers of processes")
    parser.add_argument("--asks", type=int, default=20, help="by SIGTERM; by SIGUSR1 once per chain besides")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no chain after so many minutes")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    journal = Journal("kills.log", "python -m tests.soak.test_kills: results, tables, weights and checkpoints of runs "
                      "that were stopped and continued, against a run left alone")  # fmt: skip
    done, until, failed = journal.good(), time.monotonic() + 60 * chosen.minutes, 0
    settings = [(chain, count) for count in chosen.processes for chain in TYPED if count == 1 or chain != "federate"]
    for number, (chain, count) in enumerate(settings):
        kills, asks = (len(range(number, many, len(settings))) for many in (chosen.kills, chosen.asks))
        name = f"{chain} with {count} process(es), {kills} kills and {asks} asks, seed {chosen.seed}"
        if name in done or time.monotonic() > until:
            continue
        signals = [signal.SIGKILL] * kills + [signal.SIGTERM] * asks + [signal.SIGUSR1]
        random.Random(f"{chosen.seed} {number}").shuffle(signals)
        verdict = stop_many(chain, count, chosen.seed * len(settings) + number, signals)
        journal.add(name, verdict)
        failed += verdict.startswith(FAILED)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main_kills())
