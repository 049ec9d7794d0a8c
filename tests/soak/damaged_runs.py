"""Hundreds of damaged run folders and checkpoints: every command on them ends well or in one of our sentences.

``python -m tests.soak.damaged_runs --cases 600 --minutes 10`` runs them, in pieces if need be, and appends to
results/soak/runs.log; a sample runs in ``make test`` and others in ``make soak`` (test_runs.py). A case is its seed:
``python -m tests.soak.damaged_runs --only 123``. A command that succeeds on changed weights must give what it gives on
the true ones, to the bit: for `predict` the predictions, for `--resume` the weights at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml

from holdfast.cli.main import main as holdfast
from holdfast.training.state import load_state, save_state
from tests.soak.journal import FAILED, Journal

BLOCK = 25  # cases to a line of the log
GOOD = ("done", "named", "refused")
SECONDS = 120  # of clock time, after which a case counts as hanging
Dice = random.Random

ODD = [None, -1, 0, 1, 2, 10**30, -(10**30), 1e400, float("nan"), 0.5, True, "", "x", "../../etc/passwd", "9" * 5_000,
       [], {}, [1], {"a": 1}, [[]], "\x00", 2**63, 1e308]  # fmt: skip

FIT = ["--data", "coloured-digits", "--model", "linear", "--method", "spare", "--epochs", "2",
       "--spare.infer-epoch", "1", "--batch-size", "512", "--checkpoint-seconds", "0"]  # fmt: skip
#: The methods that remember most, of which a checkpoint can lie in most ways.
CHOSEN = ["--data", "coloured-digits", "--model", "linear", "--method", "pde+epic+crest", "--epochs", "3",
          "--pde.first-expansion", "1", "--pde.every", "1", "--epic.start", "1", "--epic.every", "1",
          "--crest.subset", "64", "--crest.batch-size", "32", "--batch-size", "256",
          "--checkpoint-seconds", "0"]  # fmt: skip
FEDERATE = ["--rounds", "4", "--cohort", "3", "--digits-clients.clients", "6", "--executor", "serial",
            "--evaluate-every", "2", "--personalize", "ditto", "--checkpoint-seconds", "0"]  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- processes


class Ended(NamedTuple):
    """How a command ended: its exit code, or None where it hung; and what it said."""

    code: int | None
    said: str


def run_forked(words: list[str], before: Callable[[], None] = lambda: None) -> Ended:
    """A command in a fork of this process, so that it costs no imports and may do to itself what it likes."""
    with tempfile.TemporaryFile() as says:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                os.dup2(says.fileno(), 1)
                os.dup2(says.fileno(), 2)
                # pytest has put its own objects in the place of these, which write elsewhere.
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                before()
                code = holdfast(words)
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else 98
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            time.sleep(0.005)
        else:
            os.kill(child, 9)
            os.waitpid(child, 0)
            return Ended(None, "")
        says.seek(0)
        return Ended(os.waitstatus_to_exitcode(status), says.read().decode("utf-8", "replace"))


# ------------------------------------------------------------------------------------------------------- whole folders


class Originals(NamedTuple):
    """Folders that are as they should be, and what commands make of them."""

    folder: Path
    predictions: dict[str, dict[str, list[Any]]]
    weights: dict[str, bytes]


def make_originals(folder: Path) -> Originals:
    """A finished and an interrupted run of `fit`, by methods that remember little and much, and of `federate`."""
    for name, command, words in (("fit", "fit", FIT), ("chosen", "fit", CHOSEN), ("federate", "federate", FEDERATE)):
        ended = run_forked([command, *words, "--out", str(folder / name)])
        assert ended.code == 0, ended.said
        _interrupt(command, words, folder / f"{name}-stopped")
    predictions = {}
    for name, words in (("fit", []), ("federate", []), ("federate", ["--client", "all"])):
        out = folder / "p.parquet"
        ended = run_forked(["predict", str(folder / name), "--out", str(out), *words])
        assert ended.code == 0, ended.said
        predictions[" ".join([name, *words])] = pq.read_table(out).to_pydict()
        out.unlink()
    weights = {name: (folder / name / "weights.safetensors").read_bytes() for name in ("fit", "chosen", "federate")}
    return Originals(folder, predictions, weights)


def _interrupt(command: str, words: list[str], place: Path) -> None:
    """A run that a signal stopped once it had an epoch or a round behind it."""

    def when_saved() -> None:
        from holdfast.training.interruption import interruptions
        from holdfast.training.run import Run

        save, saved = Run.save_checkpoint, []

        def counted(self: Run, state: dict[str, Any], name: str = "last") -> None:
            save(self, state, name)
            done = sum(event["event"] == "epoch" for event in self.metrics())
            saved.append(done)
            if done == 1 and self.path == place:  # not that of the plain training beside it
                interruptions.note(15)

        Run.save_checkpoint = counted  # type: ignore[method-assign]

    ended = run_forked([command, *words, "--out", str(place)], when_saved)
    assert ended.code == 75, ended


#: Which commands are tried on which folder; RUN is the damaged one, WHOLE an undamaged one, OUT a place to write.
COMMANDS: dict[str, list[list[str]]] = {
    "fit": [
        ["runs", "list", "BESIDE"], ["runs", "compare", "WHOLE", "RUN"], ["report", "RUN"],
        ["predict", "RUN", "--out", "OUT.parquet"], ["export", "RUN", "--out", "OUT.safetensors"],
        ["fit", "--resume", "RUN"], ["fit", "--config", "RUN/config.yaml", "--epochs", "1", "--out", "OUT"],
        ["audit", "groups", "--run", "RUN", "--out", "OUT"],
    ],
    "fit-stopped": [
        ["runs", "list", "BESIDE"], ["report", "RUN"], ["fit", "--resume", "RUN"], ["fit", "--resume", "RUN"],
        ["predict", "RUN", "--best-so-far", "--out", "OUT.parquet"], ["runs", "compare", "WHOLE", "RUN"],
    ],
    "chosen-stopped": [
        ["fit", "--resume", "RUN"], ["fit", "--resume", "RUN"], ["fit", "--resume", "RUN"], ["report", "RUN"],
        ["predict", "RUN", "--best-so-far", "--out", "OUT.parquet"],
    ],
    "federate": [
        ["runs", "list", "BESIDE"], ["runs", "compare", "WHOLE", "RUN", "--page", "OUT.html"], ["report", "RUN"],
        ["predict", "RUN", "--out", "OUT.parquet"], ["predict", "RUN", "--client", "all", "--out", "OUT.parquet"],
        ["export", "RUN", "--out", "OUT.safetensors"], ["federate", "--resume", "RUN"],
    ],
    "federate-stopped": [
        ["runs", "list", "BESIDE"], ["report", "RUN"], ["federate", "--resume", "RUN"], ["federate", "--resume", "RUN"],
    ],
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- damage


def files_of(run: Path) -> list[Path]:
    return sorted(file for file in run.rglob("*") if file.is_file() and file.name != ".lock")


def flip(dice: Dice, run: Path) -> str:
    file = dice.choice([file for file in files_of(run) if file.stat().st_size])
    content = bytearray(file.read_bytes())
    for _ in range(dice.choice([1, 1, 1, 8])):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    file.write_bytes(content)
    return f"bits of {file.name}"


def flip_weights(dice: Dice, run: Path) -> str:
    """One bit of what a model is kept in."""
    file = dice.choice([file for file in files_of(run) if file.suffix in (".safetensors", ".rows")])
    content = bytearray(file.read_bytes())
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    file.write_bytes(content)
    return f"a bit of {file.name}"


def cut(dice: Dice, run: Path) -> str:
    file = dice.choice(files_of(run))
    size = dice.choice([0, 1, file.stat().st_size // 2, max(file.stat().st_size - 1, 0)])
    os.truncate(file, size)
    return f"{file.name} cut to {size}"


def garbage(dice: Dice, run: Path) -> str:
    file = dice.choice(files_of(run))
    nonsense = [b"\x00" * 4_096, dice.randbytes(300), b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 10**5]
    file.write_bytes(dice.choice(nonsense))
    return f"{file.name} overwritten"


def lose(dice: Dice, run: Path) -> str:
    thing = dice.choice(sorted(run.rglob("*")))
    shutil.rmtree(thing) if thing.is_dir() else thing.unlink()
    return f"{thing.name} lost"


def swap(dice: Dice, run: Path) -> str:
    """A folder where a file should be, or a file where a folder should."""
    thing = dice.choice(sorted(run.rglob("*")))
    if thing.is_dir():
        shutil.rmtree(thing)
        thing.write_bytes(b"x")
    else:
        thing.unlink()
        thing.mkdir()
    return f"{thing.name} of another kind"


def link(dice: Dice, run: Path) -> str:
    thing = dice.choice(sorted(run.rglob("*")))
    target = dice.choice(["/dev/null", "/nowhere/at/all", thing.name, "..", "/etc/passwd", "config.yaml"])
    shutil.rmtree(thing) if thing.is_dir() else thing.unlink()
    thing.symlink_to(target)
    return f"{thing.name} linked to {target}"


def mix(dice: Dice, run: Path) -> str:
    """The content of one file under the name of another."""
    one, other = dice.sample(files_of(run), 2)
    shutil.copyfile(one, other)
    return f"{other.name} is {one.name}"


def _mutated(dice: Dice, value: Any) -> Any:
    """The same plain value with one place in it replaced, left out or doubled."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(list(value))
        if dice.random() < 0.2:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: _mutated(dice, value[key])}
    if isinstance(value, (list, tuple)) and value and dice.random() < 0.8:
        place = dice.randrange(len(value))
        items = [*value[:place], _mutated(dice, value[place]), *value[place + 1 :]]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, torch.Tensor) and dice.random() < 0.8:
        return _mutated_tensor(dice, value)
    return dice.choice(ODD)


def _mutated_tensor(dice: Dice, tensor: torch.Tensor) -> torch.Tensor:
    low = 1 if tensor.dtype in (torch.bool, torch.uint8) else -7
    kinds: list[Callable[[], torch.Tensor]] = [
        lambda: tensor[:0] if tensor.ndim else tensor[None],
        lambda: torch.cat([tensor, tensor]) if tensor.ndim else tensor[None],
        lambda: tensor.double() if tensor.is_floating_point() else tensor.float(),
        tensor.flatten,
        lambda: torch.full_like(tensor, low),
        lambda: torch.full_like(tensor, 100),
    ]
    return dice.choice(kinds)()


def lie(dice: Dice, run: Path) -> str:
    """A file of plain values that says something else, in the right format."""
    names = ("config.yaml", "environment.json", "results.json", "model.json", "metrics.jsonl")
    file = dice.choice([file for file in files_of(run) if file.name in names])
    if file.suffix == ".yaml":
        file.write_text(yaml.safe_dump(_mutated(dice, yaml.safe_load(file.read_text()))))
    elif file.suffix == ".jsonl":
        lines = file.read_text().splitlines()
        place = dice.randrange(len(lines))
        lines[place] = json.dumps(_mutated(dice, json.loads(lines[place])))
        file.write_text("\n".join(lines) + "\n")
    else:
        file.write_text(json.dumps(_mutated(dice, json.loads(file.read_text()))))
    return f"{file.name} lies"


def lying_checkpoint(dice: Dice, run: Path) -> str:
    """A checkpoint that is sealed and says something else: no checksum can help."""
    file = run / "checkpoints" / "last.safetensors"
    state = _mutated(dice, load_state(file))
    try:
        save_state(state if isinstance(state, dict) else {"state": state}, file)
    except Exception:  # what can't be written can't be found in a folder either
        return "nothing"
    return "a sealed checkpoint lies"


def lying_decisions(dice: Dice, run: Path) -> str:
    """A sealed checkpoint that says something else of what policies decided and remember."""
    file = run / "checkpoints" / "last.safetensors"
    state = load_state(file)
    if "curator" not in state:
        return lying_checkpoint(dice, run)
    chain = state["curator"]["chain"]
    name = dice.choice(list(chain))
    chain[name] = _mutated(dice, chain[name])
    try:
        save_state(state, file)
    except Exception:
        return "nothing"
    return f"a sealed checkpoint lies about {name}"


def lying_header(dice: Dice, run: Path) -> str:
    """A safetensors header with other names, types, shapes, places or lengths."""
    file = dice.choice([file for file in files_of(run) if file.suffix == ".safetensors"])
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    if dice.random() < 0.2:
        length = dice.choice([2**63, 2**64 - 1, 0, 7, size + 10**6, size - 1])
        file.write_bytes(length.to_bytes(8, "little") + content[8:])
        return f"{file.name} lies about its header's length"
    name = dice.choice(list(header))
    if name == "__metadata__":
        header[name] = _mutated(dice, header[name])
    else:
        key = dice.choice(["dtype", "shape", "data_offsets"])
        wild: dict[str, Any] = {"dtype": "I64", "shape": [2**40, 2**40], "data_offsets": [0, 2**60]}
        header[name][key] = dice.choice([wild[key], dice.choice(ODD)])
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    return f"{file.name} has a lying header"


def lying_table(dice: Dice, run: Path) -> str:
    tables = [file for file in files_of(run) if file.suffix == ".parquet"]
    if not tables:
        return lie(dice, run)
    file = dice.choice(tables)
    table = pq.read_table(file)
    name = dice.choice(table.column_names)
    kind = dice.choice(["drop", "text", "huge", "negative", "empty", "null", "float"])
    if kind == "drop":
        table = table.drop_columns([name])
    elif kind == "empty":
        table = table.slice(0, 0)
    else:
        values = {"text": "x", "huge": 2**62, "negative": -3, "null": None, "float": 0.5}
        column = pa.array([values[kind]] * len(table))
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, file)
    return f"{file.name}: {name} {kind}"


def read_only(dice: Dice, run: Path) -> str:
    return "read-only"


def full_disk(dice: Dice, run: Path) -> str:
    return "full disk"


DAMAGES = (
    *(flip, cut, lying_header) * 2,
    *(flip_weights, lie, lying_checkpoint) * 3,
    *(lying_decisions,) * 2,
    *(garbage, lose, swap, link, mix, lying_table, read_only, full_disk),
)


def refusing_writes(place: Path, number: int, after: int) -> Callable[[], None]:
    """Before a command: what it opens for writing below a folder, or writes there, is refused by the system.

    We are root here, whom permissions don't stop; so the refusal is put where the system's would come from.
    """

    def patch() -> None:
        import builtins
        import io

        left = [after]
        true_open, true_os_open, true_mkdir, true_replace = io.open, os.open, os.mkdir, os.replace

        def check(path: Any) -> None:
            if isinstance(path, (str, os.PathLike)) and Path(path).absolute().is_relative_to(place):
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(number, os.strerror(number), str(path))

        def opened(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
            if set(mode) & set("wax+"):
                check(file)
            return true_open(file, mode, *rest, **more)

        def os_opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                check(path)
            return true_os_open(path, flags, *rest, **more)

        def made(path: Any, *rest: Any, **more: Any) -> None:
            check(path)
            true_mkdir(path, *rest, **more)

        def replaced(one: Any, other: Any, **more: Any) -> None:
            check(other)
            true_replace(one, other, **more)

        builtins.open = io.open = opened  # type: ignore[assignment]
        os.open, os.mkdir, os.replace = os_opened, made, replaced  # type: ignore[assignment]

    return patch


# -------------------------------------------------------------------------------------------------------------- a case


class Case(NamedTuple):
    """What came of a damaged folder: ``done``, ``refused``, or what is wrong."""

    kind: str
    what: str
    words: str
    outcome: str
    said: str


def try_case(originals: Originals, seed: int, folder: Path) -> Case:
    dice = Dice(seed)
    kind = dice.choice(list(COMMANDS))
    run, whole = folder / "runs" / kind, originals.folder / kind
    shutil.copytree(whole, run)
    damage = dice.choice(DAMAGES)
    what = damage(dice, run)
    template = dice.choice(COMMANDS[kind])
    names = {"BESIDE": str(folder / "runs"), "WHOLE": str(whole), "RUN": str(run), "OUT": str(folder / "out")}
    words = [_named(word, names) for word in template]
    before: Callable[[], None] = lambda: None  # noqa: E731
    if damage is read_only:
        before = refusing_writes(folder, 30, 0)
    elif damage is full_disk:
        before = refusing_writes(folder, 28, dice.randrange(12))
    ended = run_forked(words, before)
    left = [] if damage in (read_only, full_disk) else list(folder.rglob(".*.part"))
    outcome = _outcome(ended, left, lambda: _as_undamaged(originals, kind, template, folder, what))
    return Case(kind, what, " ".join(template), outcome, ended.said)


def _named(word: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        if word == name or word.startswith((f"{name}.", f"{name}/")):
            return value + word.removeprefix(name)
    return word


def _outcome(ended: Ended, left: list[Path], weights_hold: Callable[[], bool]) -> str:
    """In capitals what must not be."""
    if ended.code is None or "Traceback (most recent call last)" in ended.said or ended.code not in (0, 1, 2):
        return "HANGS" if ended.code is None else f"TRACEBACK ({ended.code})"
    if left:
        return f"LEFTOVER {left[0].name}"
    if ended.code:
        return "refused" if "holdfast" in ended.said else "SILENT"
    if "damaged:" in ended.said:
        return "named"
    return "done" if weights_hold() else "CHANGED WEIGHTS ACCEPTED"


def _as_undamaged(originals: Originals, kind: str, template: list[str], folder: Path, what: str) -> bool:
    """Whether a command that went well gave what it gives on the true weights."""
    if not what.startswith(("a bit of", "bits of")) or not what.endswith((".safetensors", ".rows")):
        return True
    base = kind.removesuffix("-stopped")
    if template[0] == "predict" and "--best-so-far" not in template:
        key = " ".join([base, *(["--client", "all"] if "--client" in template else [])])
        return pq.read_table(folder / "out.parquet").to_pydict() == originals.predictions[key]
    if "--resume" in template:
        return (folder / "runs" / kind / "weights.safetensors").read_bytes() == originals.weights[base]
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=600)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no block of cases after so many minutes")
    parser.add_argument("--only", type=int, help="one case, with all it said and nothing written down")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    journal = Journal(
        "runs.log", f"python -m tests.soak.damaged_runs: a line per {BLOCK} damaged run folders and checkpoints"
    )
    until, done, failures = time.monotonic() + 60 * chosen.minutes, journal.good(), 0
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "originals").mkdir()
        originals = make_originals(Path(place) / "originals")
        if chosen.only is not None:
            case = _in_folder(originals, chosen.only, Path(place))
            print(*case, sep="\n")
            return int(case.outcome not in GOOD)
        for first in range(chosen.first, chosen.first + chosen.cases, BLOCK):
            block = range(first, min(first + BLOCK, chosen.first + chosen.cases))
            name = f"seeds {block[0]} to {block[-1]}"
            if name in done or time.monotonic() > until:
                continue
            cases = {seed: _in_folder(originals, seed, Path(place)) for seed in block}
            bad = {seed: case for seed, case in cases.items() if case.outcome not in GOOD}
            failures += len(bad)
            for seed, case in bad.items():
                print(f"seed {seed}: {case.outcome}: {case.what}\n{case.said[-1500:]}", flush=True)
            outcomes = Counter(case.outcome for case in cases.values())
            kinds = len({(case.kind, case.words) for case in cases.values()})
            wrong = [f"seed {seed} {case.words} on {case.kind}, {case.what}" for seed, case in bad.items()]
            verdict = f"{dict(sorted(outcomes.items()))}, {kinds} commands"
            journal.add(name, "; ".join([f"{FAILED} {verdict}", *wrong]) if bad else verdict)
    return int(failures > 0)


def _in_folder(originals: Originals, seed: int, place: Path) -> Case:
    folder = place / f"case-{seed}"
    folder.mkdir()
    try:
        return try_case(originals, seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
