"""What S2L's subsets cover (Figure 9.9), in the world of facts: choices alone, so many seeds can be afforded."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.papers.engine.evidence import LEVEL, sign_test, within_noise
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import Results
from holdfast.papers.s2l import golden
from holdfast.papers.s2l.tables import world_sizes


def _cells(scale: Scale) -> tuple[Cell, ...]:
    return (Cell("facts/chosen", "s2l-coverage", world_sizes(scale)),)


def _more(results: Results, metric: str, other: str) -> Verdict:
    """S2L against another row, seed by seed: the sign test at the 5 % level."""
    ours, theirs = (results.values("facts/chosen", f"{row}/{metric}") for row in ("s2l", other))
    wins, losses = (sum(sign * (a - b) > 0 for a, b in zip(ours, theirs, strict=True)) for sign in (1, -1))
    chance, of = sign_test(wins, losses), len(ours)
    means = f"on average {sum(ours) / of:.3g} and {sum(theirs) / of:.3g}"
    evidence = f"more in {wins}, less in {losses} of {of} seeds, p = {chance:.4f}; {means}"
    if chance >= LEVEL:
        return within_noise(evidence)
    return Verdict(wins > losses, evidence)


COVERAGE = Experiment(
    name="s2l/coverage",
    title="how many facts and topics a tenth covers",
    source="S2L, Figure 9.9, in a small world",
    cells=_cells,
    golden=(golden.COVERAGE,),
    claims=(
        Claim("S2L covers more facts than random", lambda results: _more(results, "facts", "random"), ("cpu",)),
        Claim("S2L covers more rare facts", lambda results: _more(results, "rare facts", "random"), ("cpu",)),
        Claim(
            "S2L covers more facts than equal shares of sources",
            lambda results: _more(results, "facts", "source-balanced random"),
            ("cpu",),
            ours=True,
        ),
        Claim(
            "S2L covers more rare facts than equal shares of sources",
            lambda results: _more(results, "rare facts", "source-balanced random"),
            ("cpu",),
            ours=True,
        ),
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

#: Clusters that are tried with each start: one for each topic, twice, four times, and as many as the document has.
CLUSTERS = (16, 32, 64, 100)


def _start_cells(scale: Scale) -> tuple[Cell, ...]:
    return (Cell("facts/starts", "s2l-starts", {**world_sizes(scale), "k": [*CLUSTERS]}),)


def _more_by_start(one: str, other: str, metric: str) -> Callable[[Results], Verdict]:
    """One row against another, seed by seed: the sign test at the 5 % level."""

    def judged(results: Results) -> Verdict:
        first, second = (results.values("facts/starts", f"{row}/{metric}") for row in (one, other))
        wins, losses = (sum(sign * (a - b) > 0 for a, b in zip(first, second, strict=True)) for sign in (1, -1))
        chance, of = sign_test(wins, losses), len(first)
        means = f"on average {sum(first) / of:.3g} and {sum(second) / of:.3g}"
        evidence = f"more in {wins}, less in {losses} of {of} seeds, p = {chance:.4f}; {means}"
        return within_noise(evidence) if chance >= LEVEL else Verdict(wins > losses, evidence)

    return judged


STARTS = Experiment(
    name="s2l/starts",
    title="how many facts a tenth covers, by where k-means starts and by the number of clusters",
    source="S2L, Figures 3.11 and 9.9, in a small world",
    cells=_start_cells,
    golden=(golden.STARTS,),
    claims=(
        Claim(
            "With 100 clusters centres far apart find more rare facts than centres at random",
            _more_by_start("k-means++ 100", "random 100", "rare facts"),
            ("cpu",),
            ours=True,
        ),
        Claim(
            "With the published start 100 clusters find fewer rare facts than 16",
            _more_by_start(f"random {CLUSTERS[0]}", "random 100", "rare facts"),
            ("cpu",),
            ours=True,
        ),
        Claim(
            "With centres far apart 100 clusters find more rare facts than 16",
            _more_by_start("k-means++ 100", f"k-means++ {CLUSTERS[0]}", "rare facts"),
            ("cpu",),
            ours=True,
        ),
    ),
    columns={"random/rare facts": "random subset"}
    | {f"{start} {k}/rare facts": f"{start}, {k}" for start in ("random", "k-means++") for k in CLUSTERS},
    notes={"cpu": "Rare facts, of 96. The published start is at random examples; ours is far apart (k-means++)."},
    seeds=tuple(range(10)),
    scales=("smoke", "cpu"),
    digits=1,
)

EXPERIMENTS = (COVERAGE, STARTS)
