"""What Ditto's tables claim, as predicates over a table's results; each takes the columns and rows it is about.

Accuracies are pooled over the test examples of benign devices, as the paper's are.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from holdfast.papers.ditto_columns import CHANGES, kind_of
from holdfast.papers.engine.experiment import Verdict
from holdfast.papers.engine.results import Results


def score(results: Results, column: str, row: str, metric: str = "pooled") -> float:
    """Mean over seeds of a row's metric in a column."""
    return results.mean(f"{column}/{kind_of(row)}", f"{row}/{metric}")


def _rows(results: Results, column: str) -> list[str]:
    """Rows of a column but those of Ditto."""
    kinds = [name.partition("/")[2] for name in results.names if name.startswith(f"{column}/")]
    own = [kind for kind in kinds if kind in CHANGES]
    plain = next(cell for cell in results.cells if cell.name == f"{column}/plain")
    return own + [row for row in ("global", "local", "finetuning") if f"{row}/pooled" in plain.metrics]


def columns_of(results: Results) -> list[str]:
    """The columns of a table, in their order."""
    return list(dict.fromkeys(name.partition("/")[0] for name in results.names))


def listed(numbers: Mapping[str, float]) -> str:
    """Numbers by name, in a phrase."""
    return ", ".join(f"{value:.3f} {name}" for name, value in numbers.items())


def ditto_leads(results: Results) -> Verdict:
    """Ditto whose devices choose lambda against every other method."""
    places = {}
    for column in columns_of(results):
        ours = score(results, column, "ditto-auto")
        places[column] = 1 + sum(score(results, column, row) > ours for row in _rows(results, column))
    good = sum(place <= 2 for place in places.values())
    said = ", ".join(f"{place} in {column}" for column, place in places.items())
    return Verdict(2 * good > len(places), f"its places: {said}; first or second in {good} of {len(places)}")


def ahead_of_defences(results: Results) -> Verdict:
    """Over the columns with an attack, against the best single defence (Ditto, Section 4.2: about 6 points)."""
    attacked = [column for column in columns_of(results) if column != "clean"]
    defences = [row for row in _rows(results, attacked[0]) if row in CHANGES and row != "fair"]
    means = {
        row: sum(score(results, column, row) for column in attacked) / len(attacked)
        for row in (*defences, "ditto-auto")
    }
    ours = means.pop("ditto-auto")
    best = max(means, key=lambda row: means[row])
    return Verdict(ours > means[best], f"{ours:.3f} on average over attacks, {means[best]:.3f} for {best}")


def below(results: Results, row: str, other: str, columns: tuple[str, ...]) -> Verdict:
    """A row is below another in all these columns."""
    gaps = {f"in {column}": score(results, column, row) - score(results, column, other) for column in columns}
    return Verdict(max(gaps.values()) < 0, f"{row} minus {other}: {listed(gaps)}")


def at_least(results: Results, row: str, other: str, columns: tuple[str, ...], margin: float = 0.0) -> Verdict:
    """A row is ahead of another by a margin in all these columns."""
    gaps = {f"in {column}": score(results, column, row) - score(results, column, other) for column in columns}
    return Verdict(min(gaps.values()) >= margin, f"{row} minus {other}: {listed(gaps)} (at least {margin:g})")


def close(results: Results, row: str, other: str, columns: tuple[str, ...], margin: float) -> Verdict:
    """Two rows are within a margin in all these columns."""
    gaps = {f"in {column}": score(results, column, row) - score(results, column, other) for column in columns}
    return Verdict(max(map(abs, gaps.values())) <= margin, f"{row} minus {other}: {listed(gaps)} (within {margin:g})")


def ordered(results: Results, column: str, rows: tuple[str, ...]) -> Verdict:
    """Rows of a column rise in this order."""
    scores = [score(results, column, row) for row in rows]
    holds = all(low < high for low, high in pairwise(scores))
    return Verdict(holds, " < ".join(f"{value:.3f} {row}" for row, value in zip(rows, scores, strict=True)))


def at_most(results: Results, column: str, row: str, bound: float) -> Verdict:
    """A row of a column stays below a bound."""
    found = score(results, column, row)
    return Verdict(found <= bound, f"{row} has {found:.3f} in {column} (at most {bound:g})")


def reaches(results: Results, column: str, row: str, bound: float) -> Verdict:
    """A row of a column reaches a bound."""
    found = score(results, column, row)
    return Verdict(found >= bound, f"{row} has {found:.3f} in {column} (at least {bound:g})")


def survives(results: Results, rows: tuple[str, ...], column: str, margin: float) -> Verdict:
    """Rows are as good in a column as the shared model is when nobody attacks."""
    clean = score(results, "clean", "global")
    gaps = {row: score(results, column, row) - clean for row in rows}
    return Verdict(min(gaps.values()) >= -margin, f"minus global without an attack: {listed(gaps)} (within {margin:g})")


def costs(results: Results, row: str, column: str, least: float) -> Verdict:
    """An attack costs a row so much."""
    loss = score(results, "clean", row) - score(results, column, row)
    return Verdict(loss >= least, f"{row} loses {loss:.3f} in {column} (at least {least:g})")


def fairer(results: Results, row: str, other: str, column: str, share: float) -> Verdict:
    """The spread over devices of one row is at most a share of another's."""
    ours, theirs = (score(results, column, name, "std") for name in (row, other))
    return Verdict(
        ours <= share * theirs, f"deviation over devices {ours:.3f} and {theirs:.3f} (at most {share:g} of it)"
    )


def as_printed(results: Results, margin: float) -> Verdict:
    """Every entry against the paper's."""
    gaps = {
        (cell.name, metric): found.ours.mean - found.printed.mean
        for cell in results.cells
        for metric, found in cell.metrics.items()
        if found.printed is not None and metric.endswith("/pooled") and results.printed(cell.name, metric) is not None
    }
    near = sum(abs(gap) <= margin for gap in gaps.values())
    (cell, metric), gap = max(gaps.items(), key=lambda item: abs(item[1]))
    return Verdict(
        near == len(gaps), f"{near} of {len(gaps)} within {margin:g}; farthest {metric} of {cell}, {gap:+.3f}"
    )
