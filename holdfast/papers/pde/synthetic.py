"""PDE (Deng, Yang, Mirzasoleiman and Gu, NeurIPS 2023): its synthetic study, Table 1, and the same in the paper's form.

The patches' core feature is five times weaker than the spurious one. `TABLE_1` is the released program: 801 steps on a
balanced set, then expansions by 100, 100, 100, 50, 50, 25 and 25 examples with 101 steps each. It appended data in
stored order, which is by cell, so that all 450 examples came from one majority cell; ``pde-uniform`` draws them at
random instead, and the rows after it try other resets and sizes. "Reset" in the printed rows is a new optimizer without
momentum. Table 1's worst group is ``worst_pooled``, both minority cells together. ``smoke`` has fewer examples and
rows, under names of their own.

`PURE` is the network of the paper's equation, without bias and from a ten times larger start, and two controls in which
plain training learns the core feature. With 4,000 examples its balanced set has about 120, and whether the warm-up
learns the core feature or memorises their noise depends on the draw; with 10,000 examples it learns the feature. Every
seed has data of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any

from holdfast.papers.common.bounds import at_least, every_seed_reaches
from holdfast.papers.engine.evidence import above, beats, differences, every, half_width
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Printed, Scale, Verdict
from holdfast.papers.engine.results import Results

# --------------------------------------------------------------------------------------------------------- the cells

_STUDY = "pde-study"

_CASE_1 = {"beta_c": 0.2, "beta_s": 1.0}
_CASE_2 = {"beta_c": 1.0, "beta_s": 0.2}

#: Fields of `holdfast.theory.spurious.patch_study.Schedule`.
Schedule = Mapping[str, Any]

_PLAIN: Schedule = {"warmup_steps": 0, "expansions": [None], "draw": "uniform", "reset": "keep"}
_ERM: Schedule = {**_PLAIN, "rate": 0.1, "momentum": 0.0, "expansion_steps": 401}
_ERM_MOMENTUM: Schedule = {**_ERM, "rate": 0.03, "momentum": 0.8}
_WARMUP: Schedule = {
    **_PLAIN,
    "rate": 0.03,
    "momentum": 0.9,
    "warmup_steps": 801,
    "expansions": [],
    "expansion_steps": 0,
}
_WARMUP_ALL: Schedule = {**_WARMUP, "expansions": [None], "expansion_steps": 701}
_SIZES = [100, 100, 100, 50, 50, 25, 25]
_PDE: Schedule = {**_WARMUP, "expansions": _SIZES, "expansion_steps": 101, "draw": "ordered"}
_PDE_UNIFORM: Schedule = {**_PDE, "draw": "uniform"}

_TABLE_1: Mapping[str, Schedule] = {
    "erm": _ERM,
    "erm-momentum": _ERM_MOMENTUM,
    "warmup-all-reset": {**_WARMUP_ALL, "reset": "no_momentum"},
    "warmup-all": _WARMUP_ALL,
    "pde-reset": {**_PDE, "reset": "no_momentum"},
    "pde": _PDE,
    "pde-uniform": _PDE_UNIFORM,
    "pde-uniform-zero-buffers": {**_PDE_UNIFORM, "reset": "zero_buffers"},
    "pde-uniform-no-momentum": {**_PDE_UNIFORM, "reset": "no_momentum"},
    **{f"pde-uniform-{m}": {**_PDE_UNIFORM, "expansions": [m] * 7} for m in (10, 50, 200)},
}

#: Expansions in stored order, as printed, and at random.
_PDES = ("pde", "pde-uniform")

_PRINTED = {
    f"case1/{row}": {"worst_pooled": Printed(worst), "gap": Printed(gap)}
    for row, worst, gap in (
        ("erm", 0.00, 97.71),
        ("erm-momentum", 0.00, 97.71),
        ("warmup-all-reset", 67.69, 31.18),
        ("warmup-all", 74.24, 24.76),
        ("pde-reset", 92.51, 2.29),
        ("pde", 93.01, 0.03),
    )
}


def _cell(name: str, schedule: Schedule, data: Mapping[str, Any], model: str = "cubic") -> Cell:
    return Cell(name, _STUDY, {"data": dict(data), "model": model, "schedule": dict(schedule)})


def _golden(name: str, model: str, data: Mapping[str, float], **schedule: Any) -> Cell:
    """Ten steps on a balanced set and two expansions of three steps each."""
    short = {**_PDE_UNIFORM, "rate": 1.0, "warmup_steps": 10, "expansions": [30, None], "expansion_steps": 3}
    return _cell(f"golden/{name}", {**short, **schedule}, {**data, "n": 1_000}, model)


def _cell_name(scale: Scale, row: str) -> str:
    """The cell of a row of Table 1."""
    return f"small/{row}" if scale == "smoke" else f"case1/{row}"


def _table_1(scale: Scale) -> tuple[Cell, ...]:
    rows, n = tuple(_TABLE_1), 10_000
    if scale == "smoke":
        rows, n = ("erm", "erm-momentum", "warmup-all", "pde-uniform"), 2_000
    return tuple(_cell(_cell_name(scale, row), _TABLE_1[row], {**_CASE_1, "n": n}) for row in rows)


def _pure(scale: Scale) -> tuple[Cell, ...]:
    n = 1_000 if scale == "smoke" else 4_000
    plain, warmup = {**_ERM, "expansion_steps": 400}, {**_WARMUP, "warmup_steps": 2_000}
    long = {**_ERM, "rate": 0.03, "momentum": 0.9, "expansion_steps": 4_000}
    quick = (
        _cell("pure/erm", plain, {**_CASE_1, "n": n}, "cubic-pure"),
        _cell("pure/erm-case2", plain, {**_CASE_2, "n": n}, "cubic-pure"),
        _cell("released/erm-case2", _ERM, {**_CASE_2, "n": n}),
    )
    if scale == "smoke":
        return quick
    return (
        *quick,
        _cell("pure/warmup", warmup, {**_CASE_1, "n": n}, "cubic-pure"),
        _cell("pure/warmup-10000", warmup, {**_CASE_1, "n": 10_000}, "cubic-pure"),
        _cell("pure/erm-balanced", long, {**_CASE_1, "n": n, "alpha": 0.5}, "cubic-pure"),
        _cell("released/erm-balanced", {**long, "expansion_steps": 2_000}, {**_CASE_1, "n": n, "alpha": 0.5}),
    )


# -------------------------------------------------------------------------------------------------------- the claims


def _lowest(results: Results, cells: Iterable[str], metric: str) -> float:
    """The lowest value of any seed in any of the cells."""
    return min(value for cell in cells for value in results.values(cell, metric))


def _highest(results: Results, cells: Iterable[str], metric: str) -> float:
    """The highest value of any seed in any of the cells."""
    return max(value for cell in cells for value in results.values(cell, metric))


def _lowest_difference(results: Results, minuend: tuple[str, str], subtrahend: tuple[str, str]) -> float:
    """The lowest difference under any seed between two (cell, metric)."""
    pairs = zip(results.values(*minuend), results.values(*subtrahend), strict=True)
    return min(larger - smaller for larger, smaller in pairs)


def _highest_ratio(results: Results, cell: str, numerator: str, denominator: str) -> float:
    """The highest ratio under any seed between two metrics of a cell."""
    pairs = zip(results.values(cell, numerator), results.values(cell, denominator), strict=True)
    return max(above / below for above, below in pairs)


def _means(results: Results, rows: Iterable[str], metric: str = "worst_pooled") -> dict[str, float]:
    """Means of rows of Table 1, by row."""
    return {row: results.mean(_cell_name(results.scale, row), metric) for row in rows}


def _plain_training_predicts_the_attribute(results: Results) -> Verdict:
    cells = [_cell_name(results.scale, row) for row in ("erm", "erm-momentum")]
    worst, average = _highest(results, cells, "worst_pooled"), _lowest(results, cells, "average")
    return Verdict(
        worst <= 1 and average >= 97,
        f"the worst group has at most {worst:.1f} (at most 1), the average is at least {average:.1f} (at least 97)",
    )


def _pde_learns_the_core_feature(results: Results) -> Verdict:
    cells = [_cell_name(results.scale, row) for row in _PDES]
    worst, average = _lowest(results, cells, "worst_pooled"), _lowest(results, cells, "average")
    return Verdict(
        worst >= 82 and average >= 92,
        f"the worst group has at least {worst:.1f} (at least 82), the average is at least {average:.1f} (at least 92)",
    )


def _as_printed(results: Results) -> Verdict:
    """The table, the appendix and the program's log have 93.0, 94.3 and 92.6 for the same run."""
    worst = results.mean("case1/pde", "worst_pooled")
    return Verdict(85 <= worst <= 96, f"its worst group has {worst:.1f} (85 to 96)")


def _all_at_once_loses_it(results: Results) -> Verdict:
    at_once = [_cell_name(results.scale, row) for row in ("warmup-all", "warmup-all-reset")]
    average, worst = _lowest(results, at_once, "average"), _highest(results, at_once, "worst_pooled")
    behind = min(
        _lowest_difference(results, (_cell_name(results.scale, pde), "worst_pooled"), (cell, "worst_pooled"))
        for pde in _PDES
        for cell in at_once
    )
    return Verdict(
        average >= 98 and worst <= 80 and behind >= 8,
        f"the average is at least {average:.1f} (at least 98), the worst group has at most {worst:.1f} (at most 80), "
        f"at least {behind:.1f} less than with PDE (at least 8)",
    )


def _warmup_learns_the_core_feature(results: Results) -> Verdict:
    cell = _cell_name(results.scale, "pde-uniform")
    share = _highest_ratio(results, cell, "warmup_spurious_probe", "warmup_core_probe")
    return Verdict(share < 0.5, f"the spurious probe is at most {share:.2f} of the core probe (below 0.5)")


def _row_beats(results: Results, better: str, other: str, metric: str = "worst_pooled") -> Verdict:
    cells = _cell_name(results.scale, better), _cell_name(results.scale, other)
    return beats(results, (cells[0], metric), (cells[1], metric), digits=1)


def _expanding(results: Results) -> tuple[str, ...]:
    """The rows that are PDE; the smoke scale has the second only."""
    return _PDES if results.scale != "smoke" else _PDES[1:]


def _ordered_by_worst_group(results: Results) -> Verdict:
    """Printed: 0.0, 74.2 and 93.0."""
    verdicts = [_row_beats(results, "warmup-all", "erm")]
    return every([*verdicts, *(_row_beats(results, pde, "warmup-all") for pde in _expanding(results))])


def _ordered_by_average(results: Results) -> Verdict:
    """Printed: 93.0, 97.7 and 99.0."""
    verdicts = [_row_beats(results, "warmup-all", "erm", "average")]
    return every([*verdicts, *(_row_beats(results, "erm", pde, "average") for pde in _expanding(results))])


def _average_of_plain_training(results: Results) -> Verdict:
    """Printed: 4.7 points below it, so five are still called comparable."""
    cells = _cell_name(results.scale, "pde"), _cell_name(results.scale, "erm")
    gaps = differences(results, (cells[0], "average"), (cells[1], "average"))
    return at_least(gaps, -5, "PDE's average less plain training's")


def _momentum_helps(results: Results) -> Verdict:
    """Printed: 93.0 against 92.5 with PDE, 74.2 against 67.7 where all data are added at once."""
    return every([_row_beats(results, row, f"{row}-reset") for row in ("pde", "warmup-all")])


def _no_gap(results: Results) -> Verdict:
    """Printed: 0.03, the average less the worst group."""
    gaps = results.values(_cell_name(results.scale, "pde"), "gap")
    mean, half = fmean(gaps), half_width(gaps)
    within = round(mean - half, 2) <= 0.03
    return Verdict(within, f"the gap is {mean:.2f} (± {half:.2f} by {len(gaps)} seeds, printed 0.03)")


def _expansion_raises_the_average(results: Results) -> Verdict:
    verdicts = []
    for row in _PDES:
        cell = _cell_name(results.scale, row)
        gains = differences(results, (cell, "average"), (cell, "warmup_average"))
        verdicts.append(above(gains, digits=1, what=f"gain of the average with {row}"))
    return every(verdicts)


def _small_expansions_are_better(results: Results) -> Verdict:
    rows = ("pde-uniform-10", "pde-uniform-50", "pde-uniform-200", "warmup-all")
    return every([_row_beats(results, *pair) for pair in pairwise(rows)])


def _core_probe_rises_with_small_expansions_only(results: Results) -> Verdict:
    rows = (*_PDES, "warmup-all")
    cells = {row: _cell_name(results.scale, row) for row in rows}
    change = {row: differences(results, (cells[row], "core_probe"), (cells[row], "warmup_core_probe")) for row in rows}
    verdicts = [above(change[row], digits=2, what=f"the core probe changes with {row} by") for row in _PDES]
    stalled = above([-each for each in change["warmup-all"]], digits=2, what="and falls with warmup-all by")
    return every([*verdicts, stalled])


def _buffer_points_along_the_core_feature(results: Results, cell: str) -> Verdict:
    ratio = 1 / _highest_ratio(results, cell, "warmup_buffer_spurious", "warmup_buffer_core")
    lowest = max(results.values(cell, "warmup_buffer_lowest"))
    return Verdict(
        ratio > 2 and lowest < 0,
        f"it holds at least {ratio:.1f} times as much of the core as of the spurious feature (above 2); its lowest "
        f"alignment with the core feature is at most {lowest:.1e} (below 0)",
    )


def _buffer_of_table_1(results: Results) -> Verdict:
    return _buffer_points_along_the_core_feature(results, _cell_name(results.scale, "pde-uniform"))


_FULL: tuple[Scale, ...] = ("cpu", "paper")

#: Said on the page, since whoever builds the data from the text gets others.
_SIGMA = (
    "The document prints the noise as sigma_p = 0.78 with variance sigma_p squared over d, which with d = 50 is 0.1103 "
    "per coordinate. The authors' notebook draws 0.125 per coordinate, whose sigma_p squared is 0.78: the square was "
    "printed as its root. Ours is the notebook's."
)

TABLE_1 = Experiment(
    name="pde/table1",
    title="Synthetic data: worst group and gap by method",
    source="PDE, Table 1 (NeurIPS 2023)",
    cells=_table_1,
    golden=(
        _golden("study", "cubic", _CASE_1, draw="ordered"),
        _golden("study-zero-buffers", "cubic", _CASE_1, reset="zero_buffers"),
    ),
    printed=_PRINTED,
    columns={
        "worst_pooled": "worst group, %",
        "gap": "gap, points",
        "worst_cell": "worst cell, %",
        "average": "average, %",
    },
    spread="population",
    notes=dict.fromkeys(_FULL, _SIGMA),
    claims=(
        Claim("plain training predicts the attribute", _plain_training_predicts_the_attribute, ours=True),
        Claim("PDE learns the core feature", _pde_learns_the_core_feature, _FULL, ours=True),
        Claim("PDE has the printed worst group", _as_printed, _FULL, ours=True),
        Claim(
            "PDE has no gap: its worst group is as good as its average",
            _no_gap,
            _FULL,
            why="the document: 0.03 is one draw, whose 229 minority examples alone leave 1.7 points of error either "
            "way; no draw of ours comes below 3.7",
        ),
        Claim("adding all data at once loses the worst group", _all_at_once_loses_it, _FULL, ours=True),
        Claim(
            "the balanced warm-up learns the core feature, not the spurious one",
            _warmup_learns_the_core_feature,
            ours=True,
        ),
        Claim("by worst group: plain training, then all at once, then PDE", _ordered_by_worst_group),
        Claim("by average: PDE, then plain training, then all at once", _ordered_by_average, _FULL),
        Claim("PDE's average is comparable to plain training's", _average_of_plain_training, _FULL, ours=True),
        Claim("losing the momentum after the warm-up costs worst-group accuracy", _momentum_helps, _FULL),
        Claim("expansion raises the average over the warm-up's", _expansion_raises_the_average, _FULL),
        Claim(
            "the smaller the expansions, the better the worst group at the end",
            _small_expansions_are_better,
            _FULL,
            ours=True,
        ),
        Claim(
            "the core probe keeps rising with small expansions and stalls with all data at once",
            _core_probe_rises_with_small_expansions_only,
            _FULL,
        ),
        Claim("after the warm-up the momentum buffer points along the core feature", _buffer_of_table_1, ours=True),
    ),
)


def _plain_training_learns_the_spurious_feature(results: Results) -> Verdict:
    cell = "pure/erm"
    probes = zip(results.values(cell, "core_probe"), results.values(cell, "start_core_probe"), strict=True)
    moved = max(abs(after - before) for after, before in probes)
    spurious, worst = _lowest(results, [cell], "spurious_probe"), _highest(results, [cell], "worst_pooled")
    return Verdict(
        moved < 0.01 and spurious > 1 and worst == 0,
        f"the core probe moves by at most {moved:.4f} (below 0.01), the spurious probe reaches at least {spurious:.2f} "
        f"(above 1), the worst group has at most {worst:.1f} (0)",
    )


def _pure_warmup_learns_the_core_feature(results: Results) -> Verdict:
    """By seed: a warm-up either learns the feature or memorises the noise of its few examples."""
    cell = "pure/warmup"
    spurious = [-value for value in results.values(cell, "spurious_probe")]
    return every(
        [
            every_seed_reaches(results.values(cell, "core_probe"), 8, "core probe"),
            every_seed_reaches(spurious, -1, "minus the spurious probe"),
            every_seed_reaches(results.values(cell, "average"), 92, "average", 1),
            every_seed_reaches(results.values(cell, "worst_pooled"), 88, "worst group", 1),
        ]
    )


def _with_more_data_it_does(results: Results) -> Verdict:
    cell = "pure/warmup-10000"
    share = _highest_ratio(results, cell, "spurious_probe", "core_probe")
    average, worst = _lowest(results, [cell], "average"), _lowest(results, [cell], "worst_pooled")
    return Verdict(
        share < 0.5 and average >= 92 and worst >= 88,
        f"the spurious probe is at most {share:.2f} of the core probe (below 0.5), average at least {average:.1f} (at "
        f"least 92), worst group at least {worst:.1f} (at least 88)",
    )


def _buffer_of(cell: str) -> Callable[[Results], Verdict]:
    return lambda results: _buffer_points_along_the_core_feature(results, cell)


def _strong_core_feature_wins(results: Results) -> Verdict:
    worst = _lowest(results, ("pure/erm-case2", "released/erm-case2"), "worst_cell")
    return Verdict(worst >= 99, f"no cell has less than {worst:.1f} (at least 99)")


def _balance_is_enough(results: Results) -> Verdict:
    worst = _lowest(results, ("pure/erm-balanced", "released/erm-balanced"), "worst_cell")
    return Verdict(worst > 80, f"no cell has less than {worst:.1f} (above 80)")


_TOO_FEW = (
    "our bed: of 4,000 examples about 120 are balanced, and under two seeds of three the warm-up memorises their "
    "noise; with the document's 10,000 it learns the feature"
)

PURE = Experiment(
    name="pde/synthetic-pure",
    title="Synthetic data in the paper's form of the network, and two controls",
    source="PDE, eq. 2.3 and Figures 3, 6 and 7 (NeurIPS 2023)",
    cells=_pure,
    golden=(_golden("study-pure", "cubic-pure", _CASE_2, rate=0.1, reset="no_momentum"),),
    columns={
        "worst_pooled": "worst group, %",
        "average": "average, %",
        "core_probe": "core probe",
        "spurious_probe": "spurious probe",
    },
    spread="population",
    digits=2,
    claims=(
        Claim(
            "plain training learns the spurious feature alone", _plain_training_learns_the_spurious_feature, ours=True
        ),
        Claim(
            "the balanced warm-up learns the core feature",
            _pure_warmup_learns_the_core_feature,
            _FULL,
            ours=True,
            why=_TOO_FEW,
        ),
        Claim(
            "the balanced warm-up from 10,000 examples learns the core feature",
            _with_more_data_it_does,
            _FULL,
            ours=True,
        ),
        Claim(
            "after the warm-up the momentum buffer points along the core feature",
            _buffer_of("pure/warmup"),
            _FULL,
            ours=True,
            why=_TOO_FEW,
        ),
        Claim(
            "after the warm-up from 10,000 examples the momentum buffer points along the core feature",
            _buffer_of("pure/warmup-10000"),
            _FULL,
            ours=True,
        ),
        Claim(
            "where the core feature is the stronger one, plain training is right for all",
            _strong_core_feature_wins,
            ours=True,
        ),
        Claim(
            "where the attribute says nothing, plain training learns the core feature",
            _balance_is_enough,
            _FULL,
            ours=True,
        ),
    ),
)

EXPERIMENTS = (TABLE_1, PURE)
