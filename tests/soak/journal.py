"""A log to which a long soak is written piece by piece, so that one that was cut off goes on where it ended.

A line is ``commit  what: verdict`` and is written as soon as it is known. What stands there as good is not run again.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "results" / "soak"
FAILED = "FAILED"


class Journal:
    """One file of results/soak.

    Args:
        name: of the file.
        title: its first line, written when the file is made.
    """

    def __init__(self, name: str, title: str) -> None:
        self.path = FOLDER / name
        self._title = title

    def lines(self) -> list[tuple[str, str]]:
        """What was run and its verdict, in the order of writing."""
        if not self.path.exists():
            return []
        rows = (re.match(r"[0-9a-f]{7,}\S*  (.*?): (.*)", line) for line in self.path.read_text().splitlines())
        return [(row[1], row[2]) for row in rows if row is not None]

    def good(self) -> set[str]:
        """What was run last without a failure."""
        return {what for what, verdict in dict(self.lines()).items() if not verdict.startswith(FAILED)}

    def add(self, what: str, verdict: str) -> None:
        """Write down how something went."""
        if not self.path.exists():
            self.path.write_text(f"{self._title}\n\n")
        line = f"{commit()}  {what}: {' '.join(verdict.split())}"
        with self.path.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)


def commit() -> str:
    """The commit, and whether the code is another since; that logs have grown does not count."""
    git = [["git", "rev-parse", "--short", "HEAD"], ["git", "status", "--porcelain", "--", ":/", ":!/results"]]
    commit, changed = (subprocess.run(one, capture_output=True, text=True, check=True, cwd=FOLDER) for one in git)
    return commit.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")
