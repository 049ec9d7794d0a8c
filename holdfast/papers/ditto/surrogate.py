"""The surrogate S(q): what Ditto's tables show, on generated clients that need no download.

It is no data set of the paper, and what is printed beside ours was measured when it was designed, with another stream
of random numbers. S(10) has feature shift, as FEMNIST has; S(5) has label skew too, as skewed FEMNIST has. The runs are
those of the specification: softmax regression, 600 rounds, three seeds, which draw the data too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from holdfast.papers.common.phrases import listed
from holdfast.papers.ditto import claims, golden
from holdfast.papers.ditto.columns import CHANGES, TableSetting, kind_of
from holdfast.papers.ditto.printed import SURROGATE, SURROGATE_COLUMNS, printed
from holdfast.papers.engine.evidence import every
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Grid, Scale, Verdict
from holdfast.papers.engine.results import Results

_DEFENCES = ("median", "krum", "multi-krum", "clipping", "k-norm", "k-loss")
_DITTO = ("ditto-0.1", "ditto-1", "ditto-2")
_ROWS = {
    "global": "global",
    "local": "local",
    "fair": "TERM, t=1",
    "term-5": "TERM, t=5",
    **{row: row for row in _DEFENCES},
    **{row: f"Ditto, λ={row.removeprefix('ditto-')}" for row in _DITTO},
}
_PRINTED_AS = {"term-1": "fair"}
_CHANGED = tuple(row for row in _ROWS if row in CHANGES)
_COLUMNS = {q: tuple(column for column in SURROGATE_COLUMNS if column.startswith(f"s{q} ")) for q in (10, 5)}
_ATTACKS = {q: columns[1:] for q, columns in _COLUMNS.items()}


def _cells(scale: Scale) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for q, columns in _COLUMNS.items():
        rounds = {"rounds": 60 if scale == "smoke" else 600, "executor": "batched", "chunk": 10}
        setting = TableSetting("surrogate", options={"q": q}, rounds=rounds, by_seed=True, epochs=0, auto=False)
        for column in columns[:1] if scale == "smoke" else columns:
            cells += setting.cells(column.split()[1], _CHANGED, name=column)
    return tuple(cells)


_TABLE = {
    column: {_PRINTED_AS.get(row, row): entry for row, entry in entries.items()}
    for column, entries in SURROGATE.items()
}


_score = functools.partial(claims.score, metric="mean")
_ahead = functools.partial(claims.ahead, metric="mean")


def _as_designed(results: Results, attack: bool) -> Verdict:
    """Another stream of random numbers draws other data: 0.03 is what the designer expects of a mean.

    Where seeds are in two modes there is no mean to compare with, and most of the seeds must be as near. Under A3 the
    last attackers decide, and who is malicious: a single seed's global model has a deviation of 0.05. That ours are
    other draws and no other algorithm is tested by a replay in NumPy (tests/federated/test_surrogate.py).
    """
    entries = {
        (column, row): (list(claims.scores_by_seed(results, column, row, "mean").values()), mean)
        for column, of in _TABLE.items()
        if column.endswith("a3-20") == attack
        for row, (mean, _) in of.items()
    }
    near = sum(_is_near(values, wanted) for values, wanted in entries.values())
    apart = {where: sum(values) / len(values) - wanted for where, (values, wanted) in entries.items()}
    column, row = max(
        (where for where in apart if not _is_near(*entries[where])),
        key=lambda where: abs(apart[where]),
        default=max(apart, key=lambda where: abs(apart[where])),
    )
    farthest = ", ".join(f"{value:.3f}" for value in entries[column, row][0])
    evidence = (
        f"{near} of {len(entries)} entries are within 0.03; the farthest is {row} in {column}, {farthest} by seed"
    )
    return Verdict(near == len(entries), f"{evidence} for {entries[column, row][1]:.3f}")


def _is_near(values: Sequence[float], wanted: float) -> bool:
    if max(values) - min(values) <= claims.TWO_MODES:
        return abs(sum(values) / len(values) - wanted) <= 0.03
    return 2 * sum(abs(value - wanted) <= 0.03 for value in values) > len(values)


def _best(results: Results, column: str, rows: Sequence[str]) -> str:
    """The row with the highest mean over seeds."""
    return max(rows, key=lambda row: _score(results, column, row))


def _best_is_ahead(results: Results, rows: Sequence[str], others: Sequence[str], columns: Sequence[str]) -> Verdict:
    """In each of the columns the best of some rows is ahead of the best of others."""
    pairs: dict[str, list[float]] = {}
    for column in columns:
        one, other = _best(results, column, rows), _best(results, column, others)
        pairs[f"{one} minus {other} in {column}"] = claims.gaps(results, column, one, other, "mean")
    return claims.all_exceed(pairs)


def _rising(results: Results, rows: tuple[str, ...], columns: tuple[str, ...]) -> Verdict:
    """In each of the columns every row is ahead of the one before it."""
    verdicts = {column: claims.rising(results, column, rows, "mean") for column in columns}
    whole = every(list(verdicts.values()))
    evidence = "; ".join(
        f"{' < '.join(f'{_score(results, column, row):.3f}' for row in rows)} in {column}" for column in columns
    )
    decided = (
        "" if whole.holds else f"{next(each.evidence for each in verdicts.values() if each.holds is whole.holds)}; "
    )
    return Verdict(whole.holds, f"{decided}{', '.join(_ROWS[row] for row in rows)}: {evidence}")


def _tilting_is_free_when_clean(results: Results) -> Verdict:
    return every(
        [claims.close(results, row, "global", ("s10 clean",), margin=0.01, metric="mean") for row in ("fair", "term-5")]
    )


def _filters_are_the_mean_when_clean(results: Results) -> Verdict:
    """Without attackers they drop nobody, so their numbers are those of the mean to the last digit."""
    plain = results.values("s10 clean/plain", "global/mean")
    same = all(results.values(f"s10 clean/{row}", f"{row}/mean") == plain for row in ("k-norm", "multi-krum"))
    return Verdict(same, f"global has {', '.join(f'{value:.4f}' for value in plain)} under the seeds")


def _filters_collapse(results: Results) -> Verdict:
    """Under every seed: the cells have two modes."""
    return every([claims.stays_below(results, "s10 a1-80", row, 0.25, "mean") for row in ("k-norm", "multi-krum")])


def _k_loss_is_one_sided(results: Results) -> Verdict:
    return every([_ahead(results, "s10 a3-20", "global", "k-loss"), _ahead(results, "s10 a1-80", "k-loss", "global")])


def _robust_rules_win_against_boosts(results: Results) -> Verdict:
    best = _best(results, "s10 a3-20", _DITTO)
    return every([_ahead(results, "s10 a3-20", row, best) for row in ("median", "clipping")])


def _robust_or_unfair(results: Results, row: str) -> Verdict:
    """Where a rule keeps what most clients send, clients with rare classes lose."""
    verdicts, ratios = {}, {}
    for column in _COLUMNS[5]:
        ours, theirs = (claims.scores_by_seed(results, column, name, "std") for name in (row, "global"))
        over = claims.exceed([ours[seed] - 1.2 * theirs[seed] for seed in ours], what=column)
        verdicts[column] = Verdict(over.holds, "")
        ratios[column] = _score(results, column, row, metric="std") / _score(results, column, "global", metric="std")
    verdict = claims.most(verdicts, 2, "a deviation over clients of 1.2 times global's")
    return Verdict(verdict.holds, f"{verdict.evidence}; {listed(ratios, '{value:.2f} times in {name}')}")


_FULL: tuple[Scale, ...] = ("cpu",)

_OTHER_DRAWS = (
    "Likely our data: another stream of random numbers draws other clients and other attackers. A plain loop on the "
    "same draws agrees with ours under model replacement; without it that was not checked."
)
_FEW_DRAWS = (
    "Our data, and how batches are drawn. For S(10) an independent NumPy program has .236 ± .057 with k-loss over 16 "
    "seeds, .149 the least of them, and .417 ± .035 with the mean; ours has .266 ± .068 over 12, .151 the least, and "
    ".468 ± .036. The more of the examples are the attackers', the lower (correlation -.71 for k-loss), so three seeds "
    "are too few. When the program's clients walk through their shuffled examples as ours do, instead of drawing each "
    "batch afresh, the mean ends .02 higher."
)
_CLAIMS = (
    Claim(
        "entries without boosted updates are what the surrogate was designed to give",
        functools.partial(_as_designed, attack=False),
        _FULL,
        why=_OTHER_DRAWS,
    ),
    Claim(
        "entries under A3 are what the surrogate was designed to give",
        functools.partial(_as_designed, attack=True),
        _FULL,
        why=_FEW_DRAWS,
    ),
    Claim(
        "feature shift: the best Ditto is ahead of global and local everywhere",
        functools.partial(_best_is_ahead, rows=_DITTO, others=("global", "local"), columns=_COLUMNS[10]),
        _FULL,
    ),
    Claim(
        "feature shift: the more TERM is tilted, the more an attack hurts",
        functools.partial(_rising, rows=("term-5", "fair", "global"), columns=_ATTACKS[10]),
        _FULL,
    ),
    Claim("feature shift: TERM costs nothing when nobody attacks", _tilting_is_free_when_clean),
    Claim("feature shift: k-norm and multi-Krum are the mean when nobody attacks", _filters_are_the_mean_when_clean),
    Claim(
        "feature shift: k-norm and multi-Krum collapse below 0.25 when 80 % poison labels",
        _filters_collapse,
        _FULL,
        why="Our data: under one of three seeds the malicious 80 % own 72 % of the training examples instead of 84 %, "
        "fewer of them are selected, and multi-Krum stands.",
    ),
    Claim("feature shift: k-loss fails under A3 and helps when 80 % poison labels", _k_loss_is_one_sided, _FULL),
    Claim("feature shift: median and clipping are ahead of Ditto under A3", _robust_rules_win_against_boosts, _FULL),
    Claim(
        "label skew: global < local < Ditto with λ=0.1",
        functools.partial(_rising, rows=("global", "local", "ditto-0.1"), columns=_COLUMNS[5]),
        _FULL,
    ),
    Claim(
        "label skew: every defence stays below local models",
        functools.partial(_best_is_ahead, rows=("local",), others=_DEFENCES, columns=_COLUMNS[5]),
        _FULL,
    ),
    *(
        Claim(f"label skew: {row} is less fair than the mean", functools.partial(_robust_or_unfair, row=row), _FULL)
        for row in ("median", "krum", "multi-krum", "k-norm")
    ),
    Claim(
        "label skew: the smaller λ, the better",
        functools.partial(_rising, rows=_DITTO[::-1], columns=_COLUMNS[5]),
        _FULL,
    ),
)

SURROGATE_EXPERIMENT = Experiment(
    name="ditto/surrogate",
    title="Ditto, fair objectives and robust aggregation on the surrogate S(q), which is no data set of the paper",
    source="Generated clients; the entries in brackets are from the design of the surrogate",
    cells=_cells,
    printed={
        f"{column}/{kind}": printed(_TABLE, column, [row for row in _ROWS if kind_of(row) == kind], "mean")
        for column in SURROGATE_COLUMNS
        for kind in ("plain", *_CHANGED)
    },
    grid=Grid(
        _ROWS,
        {column: column.replace("s", "S", 1) for column in SURROGATE_COLUMNS},
        "mean",
        "std",
        "the mean accuracy over benign clients/its standard deviation over them",
    ),
    golden=(golden.GENERATED,),
    claims=tuple(replace(claim, ours=True) for claim in _CLAIMS),
    scales=("smoke", "cpu"),
    digits=3,
)

EXPERIMENTS = (SURROGATE_EXPERIMENT,)
