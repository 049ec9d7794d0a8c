"""What Ditto's tables claim, as predicates over a table's results; each takes the columns and rows it is about.

Accuracies are pooled over the test examples of benign clients, as the paper's are. Rows are compared seed by seed: all
methods have the same malicious clients and the same draws under one. Some cells have two modes: a federation is
wrecked under one seed and not under the next, and the mean is that of no federation. Where seeds are so far apart, a
comparison is decided by their agreement and not by the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from statistics import fmean

from holdfast.papers.ditto.columns import CHANGES, DEFENCES, kind_of
from holdfast.papers.engine.evidence import above, every, paired
from holdfast.papers.engine.experiment import Verdict
from holdfast.papers.engine.results import Results

#: Seeds that differ by more than this are in two modes, not noise around one.
TWO_MODES = 0.2
#: How far a difference under one seed may be off: where there are three seeds, differences vary by about 0.01 between
#: them, and another processor's rounding moves a row such as Krum's, which follows single clients, by as much.
ONE_SEED = 0.02
#: Rows that the document prints closer than this are not said to be in an order.
ORDERED = 0.05


def score(results: Results, column: str, row: str, metric: str = "pooled") -> float:
    """Mean over seeds of a row's metric in a column."""
    return results.mean(f"{column}/{kind_of(row)}", f"{row}/{metric}")


def scores_by_seed(results: Results, column: str, row: str, metric: str = "pooled") -> dict[int, float]:
    """A row's metric in a column under each seed."""
    return results.by_seed(f"{column}/{kind_of(row)}", f"{row}/{metric}")


def gaps(results: Results, column: str, row: str, other: str, metric: str = "pooled") -> list[float]:
    """A row minus another under each seed that both have."""
    return paired(*(scores_by_seed(results, column, name, metric) for name in (row, other)))


def exceed(differences: Sequence[float], margin: float = 0.0, *, what: str) -> Verdict:
    """Whether differences exceed a margin: beyond their noise, or under every seed where they have two modes."""
    if len(differences) == 1 and abs(differences[0] - margin) < ONE_SEED:
        evidence = above(differences, margin, what=what).evidence
        return Verdict(None, f"within {ONE_SEED:g}, the noise of one seed: {evidence}")
    if max(differences) - min(differences) <= TWO_MODES:
        return above(differences, margin, what=what)
    evidence = f"{what} {', '.join(f'{value:+.3f}' for value in differences)} by seed"
    evidence += f" (to exceed {margin:g})" if margin else ""
    if all(value > margin for value in differences):
        return Verdict(True, evidence)
    if all(value < margin for value in differences):
        return Verdict(False, evidence)
    return Verdict(None, f"seeds disagree: {evidence}")


def ahead(results: Results, column: str, row: str, other: str, metric: str = "pooled") -> Verdict:
    """Whether a row is above another in a column, see `exceed`."""
    return exceed(gaps(results, column, row, other, metric), what=f"{row} minus {other} in {column}")


def negated(verdict: Verdict) -> Verdict:
    """The opposite verdict by the same numbers."""
    return Verdict(None if verdict.holds is None else not verdict.holds, verdict.evidence)


def attacked(results: Results) -> list[str]:
    """The columns with an attack."""
    return [column for column in results.columns if column != "clean"]


def rows_of(results: Results, column: str) -> list[str]:
    """Rows of a column; those that tests or validation data choose among others are left out."""
    score(results, column, "global")  # or the column is not measured
    kinds = [name.partition("/")[2] for name in results.names if name.startswith(f"{column}/")]
    plain = results.cell(f"{column}/plain")
    own = [metric.removesuffix("/pooled") for metric in plain.metrics if metric.endswith("/pooled")]
    return [row for row in own if row != "ditto-best"] + [kind for kind in kinds if kind in CHANGES]


# ------------------------------------------------------------------------------------------------ over many columns


def most(verdicts: Mapping[str, Verdict], least: int, what: str) -> Verdict:
    """Whether something holds in so many columns, whatever those turn out to be that noise leaves open."""
    yes, no, unclear = (
        [
            f"{column} ({each.evidence})" if each.evidence else column
            for column, each in verdicts.items()
            if each.holds is wanted
        ]
        for wanted in (True, False, None)
    )
    evidence = f"{what} in {len(yes)} of {len(verdicts)} columns ({least} wanted)"
    evidence += f"; not in {', '.join(no)}" if no else ""
    evidence += f"; within the noise in {', '.join(unclear)}" if unclear else ""
    if len(yes) >= least:
        return Verdict(True, evidence)
    return Verdict(False if len(yes) + len(unclear) < least else None, evidence)


def majority(count: int) -> int:
    """More than half."""
    return count // 2 + 1


def _best_of(results: Results, column: str, others: Sequence[str], metric: str = "pooled") -> Verdict:
    """Whether Ditto is ahead of all others in a column, or below them in deviation; told with the nearest of them."""
    sign = 1 if metric == "pooled" else -1
    pairs = {other: [sign * gap for gap in gaps(results, column, "ditto-auto", other, metric)] for other in others}
    nearest = min(others, key=lambda other: fmean(pairs[other]))
    holds = every([exceed(pair, what="") for pair in pairs.values()]).holds
    return Verdict(holds, f"{sign * fmean(pairs[nearest]):+.3f} to {nearest}")


def _among_the_first_two(results: Results, column: str) -> Verdict:
    """Ditto whose clients choose lambda against every other method."""
    others = [row for row in rows_of(results, column) if not row.startswith("ditto-")]
    before = [ahead(results, column, other, "ditto-auto").holds for other in others]
    place = f"place {1 + sum(score(results, column, other) > score(results, column, 'ditto-auto') for other in others)}"
    if sum(each is not False for each in before) <= 1:
        return Verdict(True, place)
    return Verdict(False if sum(each is True for each in before) > 1 else None, place)


def ditto_leads(results: Results) -> Verdict:
    """Ditto whose clients choose lambda is first or second in most columns."""
    verdicts = {column: _among_the_first_two(results, column) for column in results.columns}
    return most(verdicts, majority(len(verdicts)), "first or second")


def most_robust(results: Results, all_but: int | None = None) -> Verdict:
    """Ditto is ahead of the global model and every defence under most attacks, or under all but a few."""
    verdicts = {}
    for column in attacked(results):
        others = [row for row in rows_of(results, column) if row == "global" or row in DEFENCES]
        verdicts[column] = _best_of(results, column, others)
    least = majority(len(verdicts)) if all_but is None else len(verdicts) - all_but
    return most(verdicts, least, "ahead of the global model and of every defence")


def best_of_table_2(results: Results, metric: str = "pooled") -> Verdict:
    """Ditto beside global, local and fair models: the highest accuracy, or the smallest deviation over clients."""
    others = ("global", "local", "fair")
    verdicts = {column: _best_of(results, column, others, metric) for column in results.columns}
    what = "the most accurate" if metric == "pooled" else "the smallest deviation over clients"
    return most(verdicts, majority(len(verdicts)), what)


def ahead_of_defences(results: Results) -> Verdict:
    """Over the columns with an attack, against the best single defence (Ditto, Section G.6: about 6 points)."""
    columns = attacked(results)
    defences = [row for row in rows_of(results, columns[0]) if row in DEFENCES]
    means = {
        row: sum(score(results, column, row) for column in columns) / len(columns) for row in (*defences, "ditto-auto")
    }
    ours = means.pop("ditto-auto")
    best = max(means, key=lambda row: means[row])
    seeds = set.intersection(*(set(scores_by_seed(results, column, "ditto-auto")) for column in columns))
    pairs = [
        sum(
            scores_by_seed(results, column, "ditto-auto")[seed] - scores_by_seed(results, column, best)[seed]
            for column in columns
        )
        / len(columns)
        for seed in sorted(seeds)
    ]
    verdict = exceed(pairs, what=f"minus {best}, by seeds that all columns have,")
    return Verdict(
        verdict.holds, f"{ours:.3f} on average over attacks, {means[best]:.3f} for {best}; {verdict.evidence}"
    )


def in_order(results: Results, column: str) -> Verdict:
    """Whether rows stand as the document prints them, as far as it prints them apart.

    A pair of rows that is printed at least `ORDERED` apart is reversed if ours are the other way round, see `exceed`.
    The rank correlation over all rows is told beside it.
    """
    rows = [row for row in rows_of(results, column) if _printed(results, column, row) is not None]
    printed = {row: _printed(results, column, row) or 0.0 for row in rows}
    ours = {row: score(results, column, row) for row in rows}
    apart = [
        (upper, lower)
        for pair in combinations(rows, 2)
        for upper, lower in [sorted(pair, key=lambda row: -printed[row])]
        if round(printed[upper] - printed[lower], 9) >= ORDERED
    ]
    turned = {pair: ours[pair[1]] - ours[pair[0]] for pair in apart if ours[pair[1]] > ours[pair[0]]}
    surely = [pair for pair in turned if ahead(results, column, pair[1], pair[0]).holds]
    evidence = (
        f"rank correlation {_tau(ours, printed):+.2f}; {len(surely)} of {len(apart)} pairs printed {ORDERED:g} apart "
    )
    evidence += "are reversed" + (
        f" and {len(turned) - len(surely)} more within the noise" if len(turned) > len(surely) else ""
    )
    if turned:
        upper, lower = max(surely or turned, key=lambda pair: turned[pair])
        evidence += f", most of all {upper} {ours[upper]:.3f} below {lower} {ours[lower]:.3f} "
        evidence += f"(printed {printed[upper]:.3f} over {printed[lower]:.3f})"
    return Verdict(False if surely else None if turned else True, evidence)


def _printed(results: Results, column: str, row: str) -> float | None:
    entry = results.printed(f"{column}/{kind_of(row)}", f"{row}/pooled")
    return None if entry is None else entry.mean


def _tau(ours: Mapping[str, float], printed: Mapping[str, float]) -> float:
    """Kendall's tau of two orders; pairs that either has equal count for neither side."""
    signs = [
        (ours[one] - ours[other]) * (printed[one] - printed[other]) for one, other in combinations(list(printed), 2)
    ]
    counted = [sign for sign in signs if sign]
    return sum(1 if sign > 0 else -1 for sign in counted) / len(counted) if counted else 0.0


# ------------------------------------------------------------------------------------------------- in given columns


def below(results: Results, row: str, other: str, columns: Sequence[str]) -> Verdict:
    """A row is below another in all these columns."""
    return every([ahead(results, column, other, row) for column in columns])


def ahead_in(results: Results, row: str, other: str, columns: Sequence[str], margin: float = 0.0) -> Verdict:
    """A row is ahead of another by a margin in all these columns; of many, the evidence has those that decide."""
    by_column = {f"{row} minus {other} in {column}": gaps(results, column, row, other) for column in columns}
    return all_exceed(by_column, margin)


def all_exceed(differences: Mapping[str, Sequence[float]], margin: float = 0.0) -> Verdict:
    """Whether all of several lists of differences exceed a margin; of many, the evidence has those that decide."""
    verdicts = {what: exceed(by_seed, margin, what=what) for what, by_seed in differences.items()}
    whole = every(list(verdicts.values()))
    if len(verdicts) <= 3:
        return whole
    deciding = [verdict.evidence for verdict in verdicts.values() if verdict.holds is whole.holds]
    if whole.holds:
        closest = min(differences, key=lambda what: fmean(differences[what]))
        deciding = [f"closest {verdicts[closest].evidence}"]
    return Verdict(whole.holds, f"{'; '.join(deciding)}; {len(verdicts)} compared")


def close(
    results: Results, row: str, other: str, columns: Sequence[str], *, margin: float, metric: str = "pooled"
) -> Verdict:
    """Two rows are within a margin in all these columns."""
    verdicts = []
    for column in columns:
        apart = gaps(results, column, row, other, metric)
        sides = (exceed(apart, -margin, what=f"{row} minus {other} in {column}"), exceed(apart, margin, what=""))
        verdicts.append(every([sides[0], Verdict(negated(sides[1]).holds, f"within {margin:g}")]))
    return every(verdicts)


def fairer(results: Results, row: str, other: str, column: str, share: float = 1.0) -> Verdict:
    """The deviation over clients of one row is below a share of another's."""
    ours, theirs = (scores_by_seed(results, column, name, "std") for name in (row, other))
    pairs = [-excess for excess in paired(ours, theirs, times=share)]
    deviations = (
        f"deviations {score(results, column, row, 'std'):.3f} of {row}, {score(results, column, other, 'std'):.3f} "
    )
    verdict = exceed(pairs, what=("" if share == 1 else f"{share:g} times ") + "the second minus the first")
    return Verdict(verdict.holds, f"{deviations}of {other} in {column}; {verdict.evidence}")


def rising(results: Results, column: str, rows: Sequence[str], metric: str = "pooled") -> Verdict:
    """Rows of a column rise in this order."""
    return every([ahead(results, column, high, low, metric=metric) for low, high in pairwise(rows)])


def stays_below(results: Results, column: str, row: str, bound: float, metric: str = "pooled") -> Verdict:
    """A row of a column stays below a bound, under every seed."""
    values = list(scores_by_seed(results, column, row, metric).values())
    return Verdict(max(values) <= bound, f"{row} has {_values(values)} in {column} (at most {bound:g})")


def reaches(results: Results, column: str, row: str, bound: float) -> Verdict:
    """A row of a column reaches a bound, under every seed."""
    values = list(scores_by_seed(results, column, row).values())
    return Verdict(min(values) >= bound, f"{row} has {_values(values)} in {column} (at least {bound:g})")


def survives(results: Results, rows: Sequence[str], column: str, margin: float) -> Verdict:
    """Rows are as good in a column as the shared model is when nobody attacks."""
    return every(
        [exceed(_apart(results, column, row), -margin, what=f"{row} minus clean global in {column}") for row in rows]
    )


def costs(results: Results, row: str, column: str, least: float) -> Verdict:
    """An attack costs a row so much."""
    clean, under = scores_by_seed(results, "clean", row), scores_by_seed(results, column, row)
    return exceed(paired(clean, under), least, what=f"{row} loses in {column}")


def _apart(results: Results, column: str, row: str) -> list[float]:
    return paired(scores_by_seed(results, column, row), scores_by_seed(results, "clean", "global"))


def _values(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values) + (" (one seed)" if len(values) == 1 else " by seed")


def near_printed(results: Results, margin: float) -> Verdict:
    """Every entry against the paper's."""
    apart = {
        (cell.name, metric): results.mean(cell.name, metric) - entry.printed.mean
        for cell in results.cells
        for metric, entry in cell.metrics.items()
        if entry.printed is not None and metric.endswith("/pooled")
    }
    near = sum(abs(gap) <= margin for gap in apart.values())
    (cell, metric), gap = max(apart.items(), key=lambda item: abs(item[1]))
    return Verdict(
        near == len(apart), f"{near} of {len(apart)} within {margin:g}; farthest {metric} of {cell}, {gap:+.3f}"
    )
