"""A walk through the house: ``python benchmarks/walk.py fit|federate [TREE]`` lists the files that a run goes through.

``fit`` follows a run of EPIC and CREST on the bundled digits from the start of training on, ``federate`` one client of
a federation with Ditto. A file stands where it is first entered; files that are only imported don't count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_WORDS = {
    "fit": "fit --method epic+crest --data digits --model mlp --epochs 3 --batch-size 64 --epic.start 1",
    "federate": "federate --data surrogate --personalize ditto --rounds 2 --cohort 1 --local-steps 1 --executor serial",
}
#: The function with which the walk begins: the loop, after options, data and checks.
_BEGIN = {"fit": ("training/fitting.py", "go"), "federate": ("site.py|client_runtime.py", "train")}

_TRACER = """
import sys
root, (part, function), words = {root!r}, {begin!r}, {words!r}
order, on, depth = [], [False], [0]
def see(frame, event, argument):
    name = frame.f_code.co_filename
    if not name.startswith(root): return
    begins = frame.f_code.co_name == function and any(name.endswith(end) for end in part.split("|"))
    if event == "call":
        if begins: on[0] = True
        if on[0] and name not in order: order.append(name)
    elif event == "return" and begins: on[0] = False
from holdfast.cli.main import main
sys.setprofile(see)
try: main(words)
except SystemExit: pass
sys.setprofile(None)
for name in order: print("WALK", name[len(root) + 1:])
"""


def walk(what: str, tree: Path) -> list[str]:
    """The files, in the order in which they are entered."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*_WORDS[what].split(), "--out", str(Path(folder) / "run")]
        program = _TRACER.format(root=str(tree / "holdfast"), begin=_BEGIN[what], words=words)
        variables = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", program], cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
    files = [line.removeprefix("WALK ") for line in done.stdout.splitlines() if line.startswith("WALK ")]
    if not files:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return files


def main(words: list[str]) -> None:
    """Print the walk."""
    tree = Path(words[1]).resolve() if len(words) > 1 else Path(__file__).resolve().parents[1]
    for number, file in enumerate(walk(words[0], tree), 1):
        print(f"{number:3} {file}")


if __name__ == "__main__":
    main(sys.argv[1:])
