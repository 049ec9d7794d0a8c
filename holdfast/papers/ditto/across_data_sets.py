"""Ditto's tables and figures across data sets: Tables 3, 4 and 5, Figures 5 and 7.

Most of their federations are those of the full tables and are computed once. Table 3 takes each method at its best
setting, chosen on validation data of benign clients. Table 4 compares lambdas chosen by clients with the best one for
all; Table 5 puts Ditto on robust aggregation. Figure 5 tilts TERM further; Figure 7 solves Ditto by fine-tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

from holdfast.papers.common.phrases import listed
from holdfast.papers.ditto import claims, golden
from holdfast.papers.ditto.columns import CHANGES, TableSetting
from holdfast.papers.ditto.printed import COLUMNS, FULL, TABLE_3, TABLE_5, printed
from holdfast.papers.ditto.tables import FASHION_CPU, ROW_NAMES, SAYS, SETTINGS, STRONG, heading, seeds_of, setting_at
from holdfast.papers.engine.evidence import differences, every
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Grid, Scale, Verdict
from holdfast.papers.engine.results import Results

_PAPER: tuple[Scale, ...] = ("paper",)
_BOTH: tuple[Scale, ...] = ("cpu", "paper")

# ----------------------------------------------------------------------------------------------------------- Table 3

_STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
_SHARES = (0.3, 0.5, 0.8)
ROWS_3: dict[str, tuple[str, ...]] = {
    "plain": ("global", "local", "finetuning", "ditto-best"),
    "tuners": ("ewc", "skl"),
    **{row: (row,) for row in ("l2sgd", "per-fedavg", "mapper", "apfl")},
}
NAMES_3 = {
    **{row: ROW_NAMES[row] for row in ("global", "local", "finetuning")},
    "l2sgd": "L2SGD",
    "ewc": "EWC",
    "skl": "SKL",
    "per-fedavg": "Per-FedAvg (HF)",
    "mapper": "mapper",
    "apfl": "APFL",
    "ditto-best": "Ditto",
}

#: How accuracies are written in evidence.
_FORM = "{value:.3f} {name}"


def rivals(setting: TableSetting, column: str) -> dict[str, dict[str, Any]]:
    """Settings of the other ways to personal models; L2SGD's pull must not overshoot, so its lambdas end at 10."""
    base = setting.base(column)
    pulls = [{"name": name, "lambda_": each} for name in ("ewc", "skl") for each in _STRENGTHS]
    return {
        "l2sgd": {
            **base,
            "runs": [{"personalize": [{"name": "l2sgd", "lambda_": each}]} for each in _STRENGTHS[:-1]],
            "rows": {"l2sgd": ["l2sgd"]},
        },
        "tuners": {
            **base,
            "personalize": pulls,
            "rows": {name: [f"{name}-{each:g}" for each in _STRENGTHS] for name in ("ewc", "skl")},
        },
        "per-fedavg": {
            **base,
            "runs": [{"personalize": [{"name": "per-fedavg", "beta": each}]} for each in (0.001, 0.01, 0.1)],
            "rows": {"per-fedavg": ["per-fedavg-tuned"]},
        },
        "mapper": {**base, "personalize": [{"name": "mapper"}], "rows": {"mapper": ["mapper-tuned"]}},
        "apfl": {
            **base,
            "personalize": [{"name": "apfl", "alpha": each} for each in _SHARES],
            "rows": {"apfl": [f"apfl-{each:g}" for each in _SHARES]},
        },
    }


Places = Mapping[str, tuple[TableSetting, str]]  # the setting and the column behind each column of a table
Others = Callable[[str, str], list[tuple[str, str]]]  # cell and metric of every row but Ditto's, by place and metric

_PLACES_3: Places = {place: (SETTINGS[name], column) for place in TABLE_3 for name, column in [place.split()]}


def cells_beside(places: Places, scale: Scale) -> tuple[Cell, ...]:
    """Ditto and the other ways to personal models, without defences."""
    cells = []
    for place, (setting, column) in places.items():
        cells += setting.cells(column, (), name=place)
        cells += [setting.cell(f"{place}/{kind}", each) for kind, each in rivals(setting, column).items()]
    return tuple(cells)


def others_of(place: str, metric: str) -> list[tuple[str, str]]:
    """Cell and metric of every row of a column of Table 3 but Ditto's."""
    return [
        (f"{place}/{kind}", f"{row}/{metric}")
        for kind, rows in ROWS_3.items()
        for row in rows
        if not row.startswith("ditto-")
    ]


def _first_or_second(results: Results, places: Collection[str], others: Others) -> Verdict:
    """Per-FedAvg, SKL and L2SGD are ahead in one column each of the printed table."""
    ranks = {}
    for place in places:
        ours = results.mean(f"{place}/plain", "ditto-best/pooled")
        ranks[place] = 1 + sum(results.mean(*other) > ours for other in others(place, "pooled"))
    evidence = ", ".join(f"{number} in {place}" for place, number in ranks.items())
    return Verdict(
        sum(number <= 2 for number in ranks.values()) >= 3, f"its places: {evidence} (second or first in three)"
    )


def _similar_or_superior(results: Results, places: Collection[str], others: Others) -> Verdict:
    """The largest printed gap is 0.035."""
    verdicts = []
    for place in places:
        best = max(others(place, "pooled"), key=lambda other: results.mean(*other))
        pairs = differences(results, (f"{place}/plain", "ditto-best/pooled"), best)
        row = best[1].partition("/")[0]
        verdicts.append(claims.exceed(pairs, -0.05, what=f"Ditto minus {row} in {place}"))
    return every(verdicts)


def _more_even_than_most(results: Results, places: Collection[str], others: Others) -> Verdict:
    verdicts, evidence = [], []
    for place in places:
        ours = results.mean(f"{place}/plain", "ditto-best/std")
        theirs = median(results.mean(*other) for other in others(place, "std"))
        verdicts.append(ours <= theirs)
        evidence.append(f"{ours:.3f} against {theirs:.3f} in {place}")
    return Verdict(all(verdicts), "Ditto's deviation and the others' median: " + ", ".join(evidence))


def claims_beside(places: Collection[str], others: Others) -> tuple[Claim, ...]:
    """What Table 3 shows, of these columns."""

    def of(judge: Callable[..., Verdict]) -> Callable[[Results], Verdict]:
        return partial(judge, places=places, others=others)

    return (
        Claim("Ditto is the best or second best of them in three columns", of(_first_or_second), ours=True),
        Claim("Ditto is similar to the best of them or ahead, within 0.05", of(_similar_or_superior), ours=True),
        Claim("Ditto's accuracy differs no more over clients than the median of the others'", of(_more_even_than_most)),
    )


_TABLE_3 = Experiment(
    name="ditto/table3",
    title="Ditto beside other ways to personal models",
    source="Ditto, Table 3 (ICML 2021)",
    cells=partial(cells_beside, _PLACES_3),
    printed={f"{place}/{kind}": printed(TABLE_3, place, rows) for place in TABLE_3 for kind, rows in ROWS_3.items()},
    grid=Grid(NAMES_3, {place: place.replace("-leaf", "") for place in TABLE_3}, "pooled", "std", SAYS),
    golden=(golden.RIVALS,),
    claims=claims_beside(TABLE_3, others_of),
    scales=_PAPER,
    digits=3,
)

# ----------------------------------------------------------------------------------------------------------- Table 4

_TABLE_4_DATA = ("fashion-mnist", "femnist", "celeba-leaf", "vehicle", "stackoverflow")
_TABLE_4_ROWS = ("ditto-best", "ditto-auto")


def _cells_4(scale: Scale) -> tuple[Cell, ...]:
    names = _TABLE_4_DATA if scale == "paper" else _TABLE_4_DATA[:1]
    return tuple(
        setting_at(name, scale).cell(f"{name}/{column}", setting_at(name, scale).plain(column), seeds_of(column, scale))
        for name in names
        for column in COLUMNS[name]
    )


def _as_good_as_the_best(results: Results) -> Verdict:
    """The largest printed gap is 0.043."""
    pairs = {
        f"λ by client minus the best λ in {cell}": differences(
            results, (cell, "ditto-auto/pooled"), (cell, "ditto-best/pooled")
        )
        for cell in results.names
    }
    return claims.all_exceed(pairs, -0.05)


_TABLE_4 = Experiment(
    name="ditto/table4",
    title="λ chosen by each client beside the best λ for all",
    source="Ditto, Table 4 (ICML 2021)",
    cells=_cells_4,
    printed={
        f"{name}/{column}": printed(FULL[name], column, _TABLE_4_ROWS)
        for name in _TABLE_4_DATA
        for column in COLUMNS[name]
    },
    columns={
        "ditto-best/pooled": "best λ",
        "ditto-best/std": "over clients",
        "ditto-auto/pooled": "λ by client",
        "ditto-auto/std": "over clients",
    },
    golden=(golden.PLAIN, golden.SVM),
    claims=(
        Claim(
            "clients that choose λ are at most 0.05 behind the best λ for all",
            _as_good_as_the_best,
            ours=True,
            why=STRONG,
        ),
    ),
    scales=_BOTH,
    digits=3,
)

# ----------------------------------------------------------------------------------------------------------- Table 5

_ROBUST = {"femnist": "clipping", "celeba-leaf": "multi-krum"}
_A3_AND_A2 = tuple(f"femnist {column}" for column in COLUMNS["femnist"] if column[:2] in ("a2", "a3"))
_ALL_NINE = tuple(f"celeba-leaf {column}" for column in COLUMNS["celeba-leaf"][1:])


def on_rule(setting: TableSetting, column: str, rule: str, *, row: str) -> dict[str, Any]:
    """Settings of Ditto on top of a robust rule, its best lambda in a row of this name."""
    plain = setting.plain(column)
    return {
        **setting.base(column),
        **CHANGES[rule],
        "personalize": [method for method in plain["personalize"] if method["name"] == "ditto"],
        "rows": {row: plain["rows"]["ditto-best"]},
    }


def _cells_5(scale: Scale) -> tuple[Cell, ...]:
    cells = []
    for name, rule in _ROBUST.items():
        setting = SETTINGS[name]
        for column in COLUMNS[name][1:]:
            cells += setting.cells(column, (rule,), name=f"{name} {column}")
            robust = on_rule(setting, column, rule, row="robust-ditto")
            cells.append(setting.cell(f"{name} {column}/robust-ditto", robust))
    return tuple(cells)


def _robust_base_helps(results: Results, columns: tuple[str, ...]) -> Verdict:
    robust, plain = "robust-ditto/pooled", "ditto-best/pooled"
    return claims.all_exceed(
        {
            f"with it minus without in {column}": differences(
                results, (f"{column}/robust-ditto", robust), (f"{column}/plain", plain)
            )
            for column in columns
        }
    )


_TABLE_5 = Experiment(
    name="ditto/table5",
    title="Ditto on top of robust aggregation",
    source="Ditto, Table 5 (ICML 2021)",
    cells=_cells_5,
    printed={
        f"{name} {column}/{kind}": printed(TABLE_5[name], column, rows)
        for name, rule in _ROBUST.items()
        for column in COLUMNS[name][1:]
        for kind, rows in {"plain": ("global", "ditto-best"), rule: (rule,), "robust-ditto": ("robust-ditto",)}.items()
    },
    grid=Grid(
        {row: ROW_NAMES[row] for row in ("global", "clipping", "multi-krum", "ditto-best")}
        | {"robust-ditto": "Ditto on the robust rule"},
        {
            f"{name} {column}": f"{name.removesuffix('-leaf')} {heading(column)}"
            for name in _ROBUST
            for column in COLUMNS[name][1:]
        },
        "pooled",
        "std",
        SAYS,
    ),
    golden=(golden.ROBUST_DITTO,),
    claims=(
        Claim("on FEMNIST clipping helps Ditto under A2 and A3", partial(_robust_base_helps, columns=_A3_AND_A2)),
        Claim("on CelebA multi-Krum helps Ditto under all attacks", partial(_robust_base_helps, columns=_ALL_NINE)),
    ),
    scales=_PAPER,
    digits=3,
)

# ----------------------------------------------------------------------------------------------------------- Figure 5

_TILTS = ("fair", "term-2", "term-5")
_CORRUPTION = ("clean", "a1-20", "a1-50", "a1-80")


def _cells_f5(scale: Scale) -> tuple[Cell, ...]:
    setting = setting_at("fashion-mnist", scale)
    return tuple(cell for column in _CORRUPTION for cell in setting.cells(column, _TILTS, most_seeds=1))


def _falls_with_tilt(results: Results) -> Verdict:
    rows = (*reversed(_TILTS), "global")
    verdicts = [claims.rising(results, column, rows) for column in _CORRUPTION[1:]]
    scores = "; ".join(
        f"{listed({row: claims.score(results, column, row) for row in rows}, _FORM)} in {column}"
        for column in _CORRUPTION[1:]
    )
    return _with_numbers(every(verdicts), verdicts, scores)


def _global_falls(results: Results) -> Verdict:
    scores = {column: claims.scores_by_seed(results, column, "global") for column in _CORRUPTION}
    verdicts = [
        claims.exceed([scores[less][0] - scores[more][0]], what=f"from {less} to {more} it loses")
        for less, more in pairwise(_CORRUPTION)
    ]
    return _with_numbers(every(verdicts), verdicts, listed({column: of[0] for column, of in scores.items()}, _FORM))


def _falls_with_corruption(results: Results) -> Verdict:
    losses = {
        row: claims.score(results, "clean", row) - claims.score(results, "a1-80", row) for row in ("global", *_TILTS)
    }
    verdicts = [
        claims.exceed([losses[row] - losses["global"]], what=f"{row} loses more than global by") for row in _TILTS
    ]
    return _with_numbers(every(verdicts), verdicts, f"from nobody to 80 % malicious they lose {listed(losses, _FORM)}")


def _with_numbers(whole: Verdict, verdicts: Sequence[Verdict], numbers: str) -> Verdict:
    """The verdict with all numbers in a line, after those that kept it from holding; this figure has one seed."""
    deciding = [] if whole.holds else [each.evidence for each in verdicts if each.holds is whole.holds]
    return Verdict(whole.holds, "; ".join([*deciding, f"{numbers} (one seed)"]))


_FIGURE_5 = Experiment(
    name="ditto/figure5",
    title="The fairer the objective, the less robust: TERM under label poisoning, on Fashion-MNIST",
    source="Ditto, Figure 5 (ICML 2021)",
    cells=_cells_f5,
    grid=Grid(
        {row: ROW_NAMES[row] for row in ("global", *_TILTS)},
        {column: heading(column) for column in _CORRUPTION},
        "pooled",
        "std",
        SAYS,
    ),
    golden=(golden.TILTED,),
    claims=(
        Claim("the more clients poison their labels, the worse the global model", _global_falls),
        Claim("under attack a larger tilt is worse, and all are worse than the global model", _falls_with_tilt),
        Claim("TERM falls faster with corruption than the global model", _falls_with_corruption),
    ),
    seeds=(0,),
    scales=_BOTH,
    digits=3,
)

# ----------------------------------------------------------------------------------------------------------- Figure 7

_EPOCHS: dict[Scale, tuple[int, ...]] = {"cpu": (1, 3, 5), "paper": (1, 5, 10, 25, 50)}


def _cells_f7(scale: Scale) -> tuple[Cell, ...]:
    """The fine-tuning solver has each of Ditto's lambdas and several budgets, and is given its best on test data."""
    setting = FASHION_CPU if scale == "cpu" else SETTINGS["fashion-mnist"]
    lambdas = [float(row.removeprefix("ditto-")) for row in setting.ditto_rows]
    solver = {
        **setting.base("a3-20"),
        "runs": [
            {"personalize": [{"name": "finetuning", "epochs": epochs, "lambda_": each} for each in lambdas]}
            for epochs in _EPOCHS[scale]
        ],
        "rows": {"solver": [f"finetuning-{each:g}" for each in lambdas]},
        "by": "test",
    }
    return (*setting.cells("a3-20", ()), setting.cell("a3-20/solver", solver))


_SOLVER = ("a3-20/solver", "solver/pooled")


def _tuning_helps(results: Results) -> Verdict:
    pairs = differences(results, _SOLVER, ("a3-20/plain", "global/pooled"))
    return claims.exceed(pairs, what="by fine-tuning minus global")


def _joint_is_better(results: Results) -> Verdict:
    pairs = differences(results, ("a3-20/plain", "ditto-best/pooled"), _SOLVER)
    return claims.exceed(pairs, what="joint minus by fine-tuning")


_FIGURE_7 = Experiment(
    name="ditto/figure7",
    title="Two solvers of Ditto under model replacement by a fifth, on Fashion-MNIST",
    source="Ditto, Figure 7 (ICML 2021)",
    cells=_cells_f7,
    grid=Grid(
        {"global": "global", "solver": "Ditto by fine-tuning", "ditto-best": "Ditto, joint"},
        {"a3-20": heading("a3-20")},
        "pooled",
        "std",
        SAYS,
    ),
    golden=(golden.SOLVERS,),
    claims=(
        Claim("Ditto by fine-tuning is ahead of the global model", _tuning_helps),
        Claim("Ditto trained jointly is ahead of Ditto by fine-tuning", _joint_is_better),
    ),
    scales=_BOTH,
    digits=3,
)

EXPERIMENTS = (_TABLE_3, _TABLE_4, _TABLE_5, _FIGURE_5, _FIGURE_7)
