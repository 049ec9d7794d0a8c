"""What S2L's subsets cover (Figure 9.9), in the world of facts: choices alone, so many seeds can be afforded."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.finetuning.analysis import evenness
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import Results
from holdfast.papers.s2l import world_sizes
from holdfast.papers.s2l_cells import course, world
from holdfast.papers.s2l_rows import Beginning, choose
from holdfast.papers.s2l_world import TAIL, TOPICS

_ROWS = ("full", "random", "source-balanced random", "s2l", "s2l by source")


def _cells(scale: Scale) -> tuple[Cell, ...]:
    return (Cell("facts/chosen", "s2l-coverage", world_sizes(scale)),)


def sign_test(wins: int, of: int) -> float:
    """The probability of so many wins or more if either side were as likely to win."""
    return sum(comb(of, more) for more in range(wins, of + 1)) * 0.5**of


def _more(results: Results, metric: str, other: str) -> Verdict:
    """S2L against another row, seed by seed, at the 5 % level."""
    ours, theirs = (results.values("facts/chosen", f"{row}/{metric}") for row in ("s2l", other))
    wins, of = sum(a > b for a, b in zip(ours, theirs, strict=True)), len(ours)
    means = (sum(ours) / of, sum(theirs) / of)
    said = f"in {wins} of {of} seeds, p = {sign_test(wins, of):.4f}; on average {means[0]:.3g} and {means[1]:.3g}"
    return Verdict(sign_test(wins, of) < 0.05, said)


COVERAGE = Experiment(
    name="s2l/coverage",
    title="how many facts and topics a tenth covers",
    source="S2L, Figure 9.9, in a small world",
    cells=_cells,
    claims=(
        Claim("S2L covers more facts than random", lambda results: _more(results, "facts", "random"), ("cpu",)),
        Claim("S2L covers more rare facts", lambda results: _more(results, "rare facts", "random"), ("cpu",)),
        Claim("Its topics are evener than all data's", lambda results: _more(results, "evenness", "full"), ("cpu",)),
    ),
    columns={
        "s2l/facts": "facts, S2L",
        "random/facts": "random",
        "s2l/rare facts": "rare facts, S2L",
        "random/rare facts": "random",
        "s2l/evenness": "evenness, S2L",
        "full/evenness": "all",
    },
    seeds=tuple(range(10)),
    scales=("smoke", "cpu"),
    digits=2,
)

EXPERIMENTS = (COVERAGE,)
