"""PDE (NeurIPS 2023): Tables 2 to 6 and Figure 4, and what they claim; Table 1 is in `holdfast.papers.pde.synthetic`.

At the ``cpu`` scale the tables are run on the bundled coloured digits (protocol P3) and, for efficiency, on CMNIST-5,
about which the document prints nothing; ``paper`` is the document's own data. Full epochs are examples gone through
divided by the training set's size, which makes PDE's short epochs and GroupDRO's long ones comparable. GroupDRO has the
learning rate that does best on validation data, 0.01 on the digits; at a tenth of it it needs four times as long.

A gain is only PDE's if a control with its budget lacks it. The budget is full epochs: every printed row of the digits
has more of them than PDE's 8.2 but subsampling, whose 30 epochs are 3.0; a row of its own has it for PDE's 80 epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

from holdfast.papers.common.bounds import at_least, at_most
from holdfast.papers.common.columns import golden_cell, method_cell
from holdfast.papers.engine.evidence import above, beats, differences, every
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Printed, Scale, Verdict
from holdfast.papers.engine.results import Results

_SOURCE = "PDE, {} (NeurIPS 2023)"
_SHOWN = {"worst_group": "worst group, %", "average": "average, %", "full_epochs": "full epochs"}
_PAPER = ("waterbirds", "celeba", "civilcomments")

_FULL: tuple[Scale, ...] = ("cpu", "paper")

_LONG = {"epochs": 60}
_SLOW = {"epochs": 60, "learning_rate": 1e-3}
_AT_PDES_RATE = {"learning_rate": 1e-2}
_FAST = {"learning_rate": 1e-2, "weight_decay": 1e-2, "batch_size": 64}


def _column(scale: Scale) -> str:
    return "waterbirds" if scale == "paper" else "digits"


def _pair(worst: tuple[float, ...], average: tuple[float, ...]) -> Mapping[str, Printed]:
    return {"worst_group": Printed(*worst), "average": Printed(*average)}


def _golden_pde(name: str, **options: Any) -> Cell:
    """Three expansions of a set of about a thousand, in two steps an epoch."""
    few = {"first_expansion": 2, "every": 1, "rate_decay": 0.5, **options}
    return golden_cell(name, "digits", "pde", options={"pde": few}, training={"epochs": 5, "batch_size": 550})


#: Where PDE cuts its learning rate, as fractions of its epochs; two at one place cut it to a hundredth.
_CUTS = {"digits": [30 / 80], "waterbirds": [140 / 300, 140 / 300]}

_SAME_EPOCHS = "group-subsampled for PDE's epochs"
_SAME_RATES = "group-subsampled for PDE's epochs at PDE's rates"
_PDES_RATE = "group-dro at PDE's rate"
_TENTH = "group-dro at a tenth of the rate"


def _same_epochs(column: str) -> Cell:
    """The control of every gain that is said to come from the expansion: PDE's epochs, all of them on its warm-up set.

    An epoch is one pass over the set that is trained on, so the control has a little less than PDE's full-epoch
    equivalents, 7.9 against 8.2 on the digits and 14.0 against 16.9 on Waterbirds. On CelebA, whose middle stage trains
    on nine times as many examples, it has PDE's 10.7 full epochs instead, which are 314 of its own.
    """
    training = {"digits": {"epochs": 80}, "celeba": {"epochs": 314}}.get(column, {})
    return method_cell(column, "group-subsampled", row=_SAME_EPOCHS, training=training)


def _same_rates(column: str) -> Cell:
    """The same control with PDE's cut of the learning rate, on columns where PDE cuts it."""
    training = {"epochs": 80} if column == "digits" else {}
    cuts = {"schedule": "steps", "milestones": _CUTS[column]}
    return method_cell(column, "group-subsampled", row=_SAME_RATES, training={**training, **cuts})


# ----------------------------------------------------------------------------------------------------------- Table 2

_TABLE_2: dict[str, tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]] = {
    "erm": (((70.0, 2.3), (97.1, 0.1)), ((45.0, 1.5), (94.8, 0.2)), ((58.2, 2.8), (92.2, 0.1))),
    "lff": (((78.0,), (91.2,)), ((77.2,), (85.1,)), ((58.8,), (92.5,))),
    "eiil": (((77.2, 1.0), (96.5, 0.2)), ((81.7, 0.8), (85.7, 0.1)), ((67.0, 2.4), (90.5, 0.2))),
    "jtt": (((86.7,), (93.3,)), ((81.1,), (88.0,)), ((69.3,), (91.1,))),
    "group-subsampled": (((86.9, 2.3), (89.2, 1.2)), ((86.1, 1.9), (91.3, 0.2)), ((64.7, 7.8), (83.7, 3.4))),
    "dfr-train": (((90.2, 0.8), (97.0, 0.3)), ((80.7, 2.4), (90.6, 0.7)), ((58.0, 1.3), (92.0, 0.1))),
    "dfr-val": (((92.9, 0.2), (94.2, 0.4)), ((88.3, 1.1), (91.3, 0.3)), ((70.1, 0.8), (87.2, 0.3))),
    "group-dro": (((86.7, 0.6), (93.2, 0.5)), ((86.3, 1.1), (92.9, 0.3)), ((69.4, 0.9), (89.6, 0.5))),
    "pde": (((90.3, 0.3), (92.4, 0.8)), ((91.0, 0.4), (92.0, 0.6)), ((71.5, 0.5), (86.3, 1.7))),
}


def _benchmark_cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "smoke":
        quick: Mapping[str, Any] = {"first_expansion": 6, "every": 2, "expansions": 2}
        return (
            method_cell("digits", "erm", training={"epochs": 2}),
            method_cell("digits", "pde", options=quick, training={"epochs": 12}),
        )
    if scale == "cpu":
        special: dict[str, dict[str, Any]] = {
            "jtt": {"options": {"lambda_up": 20}},
            "group-subsampled": {"training": {"epochs": 30}},
            "group-dro": {"training": _LONG},
        }
        return (*(method_cell("digits", row, **special.get(row, {})) for row in _TABLE_2), _same_epochs("digits"))
    cells = [method_cell(column, row) for column in _PAPER for row in _TABLE_2]
    return (*cells, method_cell("celeba", "pde", row="pde without the middle stage", preset="celeba-plain"))


def _columns(results: Results) -> tuple[str, ...]:
    return _PAPER if results.scale == "paper" else ("digits",)


def _repairs(results: Results) -> Verdict:
    """P3 asks for an ERM of at most 30, a PDE of at least 75, and 45 points between them."""
    erm, pde = ("digits/erm", "worst_group"), ("digits/pde", "worst_group")
    return every(
        [
            at_most(results.values(*erm), 30, "ERM's worst group"),
            at_least(results.values(*pde), 75, "PDE's"),
            at_least(differences(results, pde, erm), 45, "apart by"),
        ]
    )


def _ahead(results: Results) -> Verdict:
    """Printed: ahead by 0.1 (DFR on training groups), 4.7 and 2.1 points. Subsampling has as many epochs as PDE."""
    rivals = [row for row in _TABLE_2 if row not in ("pde", "dfr-val")]
    if results.scale == "cpu":
        rivals[rivals.index("group-subsampled")] = _SAME_EPOCHS
    return every([_worst_beats(results, column, "pde", rival) for column in _columns(results) for rival in rivals])


def _worst_beats(results: Results, column: str, better: str, other: str, metric: str = "worst_group") -> Verdict:
    first, second = (f"{column}/{better}", metric), (f"{column}/{other}", metric)
    return beats(results, first, second, digits=1)


def _ahead_of_group_dro(results: Results) -> Verdict:
    """Printed: ahead by 3.6, 4.7 and 2.1 points."""
    return every([_worst_beats(results, column, "pde", "group-dro") for column in _columns(results)])


def _average_of_group_dro(results: Results) -> Verdict:
    """Printed: 0.8, 0.9 and 3.3 points below it, so four are still called comparable."""
    verdicts = []
    for column in _columns(results):
        gaps = differences(results, (f"{column}/pde", "average"), (f"{column}/group-dro", "average"))
        verdicts.append(at_least(gaps, -4, f"PDE's average less GroupDRO's on {column}"))
    return every(verdicts)


TABLE_2 = Experiment(
    name="pde/table2",
    title="Worst-group and average accuracy by method",
    source=_SOURCE.format("Table 2"),
    cells=_benchmark_cells,
    golden=(
        golden_cell("jtt", "digits", "jtt", options={"jtt": {"infer_epoch": 1, "lambda_up": 3}}),
        golden_cell("lff", "digits", "lff"),
    ),
    printed={
        f"{column}/{row}": _pair(*pair)
        for row, pairs in _TABLE_2.items()
        for column, pair in zip(_PAPER, pairs, strict=True)
    },
    columns=_SHOWN,
    claims=(
        Claim("PDE repairs the worst group that plain training ignores", _repairs, ("cpu",), ours=True),
        Claim(
            "PDE is ahead of every method that does not train on validation data, given its full epochs",
            _ahead,
            _FULL,
        ),
        Claim("PDE is ahead of GroupDRO in its worst group", _ahead_of_group_dro, _FULL),
        Claim("PDE's average is comparable to GroupDRO's", _average_of_group_dro, _FULL, ours=True),
    ),
    spread="population",
)


# ----------------------------------------------------------------------------------------------------------- Table 3


def _efficiency_cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "cpu":
        return (
            method_cell("cmnist", "group-dro", training={"epochs": 12}),
            method_cell("cmnist", "group-dro", row=_PDES_RATE, training={"epochs": 12, **_AT_PDES_RATE}),
            method_cell("cmnist", "pde", training={"epochs": 180}),
            method_cell("digits", "group-dro", training=_LONG),
            method_cell("digits", "group-dro", row=_TENTH, training=_SLOW),
            method_cell("digits", "pde"),
        )
    fast = method_cell("waterbirds", "group-dro", row=_PDES_RATE, training=_FAST)
    return (*(method_cell(column, row) for column in _PAPER for row in ("group-dro", "pde")), fast)


def _fewer_full_epochs(column: str) -> Callable[[Results], Verdict]:
    """Printed: 92 against 8.9, 23.7 against 0.7 and 3.3 against 2.1, each time with the better worst group."""

    def check(results: Results) -> Verdict:
        earlier = _worst_beats(results, column, "group-dro", "pde", "full_epochs")
        better = _worst_beats(results, column, "pde", "group-dro")
        return every([replace(earlier, evidence=f"full epochs: {earlier.evidence}"), better])

    return check


def _third_of_the_cost(column: str) -> Callable[[Results], Verdict]:
    """Printed ratios: 10.3 on Waterbirds, 34 on CelebA, 1.6 on CivilComments; our issue asks for 3."""

    def check(results: Results) -> Verdict:
        slow, fast = (results.by_seed(f"{column}/{row}", "full_epochs") for row in ("group-dro", "pde"))
        mean = results.mean(f"{column}/group-dro", "full_epochs") / results.mean(f"{column}/pde", "full_epochs")
        saved = [slow[seed] - 3 * fast[seed] for seed in slow if seed in fast]
        verdict = above(saved, digits=1, what="GroupDRO's less three times PDE's")
        return replace(verdict, evidence=f"{mean:.1f} times PDE's full epochs; {verdict.evidence}")

    return check


def _fast_is_worse(column: str, slow: str, fast: str) -> Callable[[Results], Verdict]:
    """Printed: 77.3 against 86.7."""
    return lambda results: _worst_beats(results, column, slow, fast)


TABLE_3 = Experiment(
    name="pde/table3",
    title="Full epochs until the best worst group",
    source=_SOURCE.format("Table 3, with Tables 9 and 10"),
    cells=_efficiency_cells,
    golden=(
        golden_cell(
            "group-dro",
            "digits",
            "group-dro",
            options={"group-dro": {"adjustment": 1.0}},
            training={
                "learning_rate": 1e-3,
                "optimizer": "adamw",
                "decay_all": False,
                "clip_norm": 1.0,
                "schedule": "linear-steps",
            },
        ),
        golden_cell("pgi", "digits", "pgi", options={"pgi": {"infer_epoch": 1, "assignment_steps": 10}}),
    ),
    printed={
        "waterbirds/group-dro": {**_pair((86.7,), (93.2,)), "full_epochs": Printed(92, 4)},
        "waterbirds/group-dro at PDE's rate": {**_pair((77.3, 2.0), (97.1, 0.5)), "full_epochs": Printed(15, 15)},
        "waterbirds/pde": {**_pair((90.3, 0.3), (92.4, 0.8)), "full_epochs": Printed(8.9, 1.8)},
        "celeba/group-dro": {**_pair((86.3, 1.1), (92.9, 0.3)), "full_epochs": Printed(23.7, 6.8)},
        "celeba/pde": {**_pair((91.0, 0.4), (92.0, 0.6)), "full_epochs": Printed(0.7, 0.3)},
        "civilcomments/group-dro": {**_pair((69.4, 0.9), (89.6, 0.5)), "full_epochs": Printed(3.3, 2.1)},
        "civilcomments/pde": {**_pair((71.5, 0.5), (86.3, 1.7)), "full_epochs": Printed(2.1, 1.1)},
    },
    columns=_SHOWN,
    claims=(
        *(
            Claim(
                f"on {column} PDE has its best worst group after fewer full epochs than GroupDRO, and a better one",
                _fewer_full_epochs(column),
                ("paper",) if column in _PAPER else ("cpu",),
            )
            for column in ("cmnist", "digits", *_PAPER)
        ),
        Claim(
            "on digits PDE reaches its best worst group in at most a third of GroupDRO's full epochs",
            _third_of_the_cost("digits"),
            ("cpu",),
            ours=True,
            why="our bed: at the rate that suits it GroupDRO needs nine full epochs of the digits, while at a tenth of "
            "it, with a worst group within the noise, it needs 42",
        ),
        *(
            Claim(
                f"on {column} PDE reaches its best worst group in at most a third of GroupDRO's full epochs",
                _third_of_the_cost(column),
                ("paper",) if column in _PAPER else ("cpu",),
                ours=True,
            )
            for column in ("cmnist", "waterbirds", "celeba")
        ),
        *(
            Claim(
                f"on {column} GroupDRO trained as fast as PDE loses its worst group",
                _fast_is_worse(column, slow, fast),
                ("paper",) if column in _PAPER else ("cpu",),
            )
            for column, slow, fast in (
                ("cmnist", "group-dro", _PDES_RATE),
                ("digits", _TENTH, "group-dro"),
                ("waterbirds", "group-dro", _PDES_RATE),
            )
        ),
    ),
    spread="population",
    scales=("cpu", "paper"),
)


# ----------------------------------------------------------------------------------------------------------- Table 4


def _stage_cells(scale: Scale) -> tuple[Cell, ...]:
    columns = _PAPER if scale == "paper" else ("digits",)
    warm = {"waterbirds": 140, "celeba": 16, "civilcomments": 15, "digits": 30}
    cells = []
    for column in columns:
        options = {"at_least": 150} if column == "civilcomments" else {}
        training = {"epochs": warm[column]}
        cells.append(
            method_cell(column, "group-subsampled", row="after the warm-up", options=options, training=training)
        )
        cells.append(method_cell(column, "pde", row="after the expansion"))
        cells.append(_same_epochs(column))
        if column in _CUTS:
            cells.append(_same_rates(column))
    return tuple(cells)


def _expansion_helps(results: Results) -> Verdict:
    """Printed gains over the end of the warm-up: 4.3, 3.2 and 3.8 points. The control has PDE's epochs."""
    columns = _columns(results)
    return every([_worst_beats(results, column, "after the expansion", _SAME_EPOCHS) for column in columns])


def _expansion_helps_at_its_rates(results: Results) -> Verdict:
    columns = [column for column in _columns(results) if column in _CUTS]
    return every([_worst_beats(results, column, "after the expansion", _SAME_RATES) for column in columns])


def _warm_up_does_most(results: Results) -> Verdict:
    """Printed: 86.0 of 90.3, 87.8 of 91.0 and 67.7 of 71.5."""
    verdicts = []
    for column in _columns(results):
        first = results.by_seed(f"{column}/after the warm-up", "worst_group")
        last = results.by_seed(f"{column}/after the expansion", "worst_group")
        shares = [100 * first[seed] / last[seed] for seed in first if seed in last]
        verdicts.append(at_least(shares, 50, f"percent of the worst group that the warm-up has on {column}:"))
    return every(verdicts)


TABLE_4 = Experiment(
    name="pde/table4",
    title="After the warm-up and after the expansion",
    source=_SOURCE.format("Table 4"),
    cells=_stage_cells,
    golden=(
        golden_cell(
            "group-subsampled",
            "digits",
            "group-subsampled",
            options={"group-subsampled": {"at_least": 300}},
            training={"epochs": 4, "batch_size": 300, "schedule": "steps", "milestones": [0.5]},
        ),
        golden_cell(
            "dfr-train",
            "digits",
            "dfr-train",
            options={"dfr-train": {"fits": 2, "C": [0.1]}},
            training={"learning_rate": 0.05},
        ),
    ),
    printed={
        "waterbirds/after the warm-up": _pair((86.0,), (91.9,)),
        "waterbirds/after the expansion": _pair((90.3,), (92.4,)),
        "celeba/after the warm-up": _pair((87.8,), (92.1,)),
        "celeba/after the expansion": _pair((91.0,), (92.0,)),
        "civilcomments/after the warm-up": _pair((67.7,), (78.8,)),
        "civilcomments/after the expansion": _pair((71.5,), (86.3,)),
    },
    columns=_SHOWN,
    claims=(
        Claim("the expansion adds to the worst group beyond as many epochs without it", _expansion_helps),
        Claim(
            "the expansion adds to the worst group beyond as many epochs at its rates without it",
            _expansion_helps_at_its_rates,
        ),
        Claim("most of the learning happens in the warm-up", _warm_up_does_most),
    ),
    notes={
        "cpu": "The document compares PDE with the end of its own warm-up, which here are 80 epochs against 30. As "
        "many epochs on the balanced set, without any expansion, have at least PDE's worst group on average: what "
        "looks like the gain of the expansion is that of training longer. Both controls have PDE's epochs, which are "
        "7.9 full-epoch equivalents against its 8.2."
    },
    spread="population",
    scales=("cpu", "paper"),
)


# ----------------------------------------------------------------------------------------------------------- Table 5


def _size_cells(scale: Scale) -> tuple[Cell, ...]:
    column = _column(scale)
    sizes: tuple[int | str, ...] = (5, 10, 50) if scale == "paper" else (5, 10, 50, 200)
    cells = [method_cell(column, "pde", row=f"{size} added", options={"added": size}) for size in sizes]
    everything = {"added": "all", "rate_decay": 1.0, "expansions": 1}
    return (*cells, method_cell(column, "pde", row="all added", options=everything))


def _few_beat_fifty(results: Results) -> Verdict:
    """Printed: 89.9 and 90.3 against 88.1."""
    column = _column(results.scale)
    return every([_worst_beats(results, column, f"{few} added", "50 added") for few in (5, 10)])


def _small_is_better(results: Results) -> Verdict:
    """At the last iterate, since the choice of an early checkpoint hides what the expansion does."""
    rows = ("10 added", "50 added", "200 added", "all added")
    return every([_worst_beats(results, "digits", *pair, "worst_group_last") for pair in pairwise(rows)])


def _not_all_at_once(results: Results) -> Verdict:
    verdicts = []
    for other, margin in (("200 added", 5.0), ("all added", 10.0)):
        few, many = ("digits/10 added", "worst_group_last"), (f"digits/{other}", "worst_group_last")
        verdicts.append(beats(results, few, many, margin, digits=1))
    return every(verdicts)


TABLE_5 = Experiment(
    name="pde/table5",
    title="How many examples an expansion adds",
    source=_SOURCE.format("Table 5"),
    cells=_size_cells,
    golden=(
        _golden_pde("pde-all", added="all", expansions=1, momentum="new_optimizer"),
        golden_cell(
            "dfr-val",
            "digits",
            "dfr-val",
            options={"dfr-val": {"fits": 2, "C": [0.1]}},
            training={"learning_rate": 0.05},
        ),
    ),
    printed={
        "waterbirds/5 added": _pair((89.9, 0.5), (92.1, 0.3)),
        "waterbirds/10 added": _pair((90.3,), (92.4,)),
        "waterbirds/50 added": _pair((88.1, 0.8), (93.4, 0.4)),
    },
    columns={**_SHOWN, "worst_group_last": "worst group at the end, %"},
    claims=(
        Claim("adding 5 or 10 examples at a time beats adding 50", _few_beat_fifty),
        Claim("the fewer at a time, the better the worst group at the end", _small_is_better, ("cpu",), ours=True),
        Claim(
            "at the end a few at a time have beaten many and all at once by far", _not_all_at_once, ("cpu",), ours=True
        ),
    ),
    spread="population",
    scales=("cpu", "paper"),
)


# ------------------------------------------------------------------------------------------------ Table 6 and Figure 4

_RATES = {"1e-2": 1.0, "1e-3": 0.1, "1e-4": 0.01, "1e-5": 0.001}


def _rate_cells(scale: Scale) -> tuple[Cell, ...]:
    column = _column(scale)
    return tuple(
        method_cell(column, "pde", row=f"rate {rate}", options={"rate_decay": decay}) for rate, decay in _RATES.items()
    )


_CUT = ("1e-3", "1e-4", "1e-5")


def _cut_helps(results: Results) -> Verdict:
    """Printed: 85.4 without a cut, 89.4 to 90.3 with one."""
    return every([_worst_beats(results, _column(results.scale), f"rate {rate}", "rate 1e-2") for rate in _CUT])


def _any_cut_does(results: Results) -> Verdict:
    """Printed: 0.9 points between the best and the worst of them, so three are still called tolerant."""
    column, verdicts = _column(results.scale), []
    for first, second in combinations(_CUT, 2):
        cells = (f"{column}/rate {first}", "worst_group"), (f"{column}/rate {second}", "worst_group")
        apart = differences(results, *cells)
        sign = 1 if sum(apart) >= 0 else -1
        verdicts.append(at_most([sign * each for each in apart], 3, f"rates {first} and {second} apart by"))
    return every(verdicts)


def _slower_takes_longer(results: Results) -> Verdict:
    """Figure 5 shows it on Waterbirds; the further a run goes until its best, the more it has been expanded."""
    return _worst_beats(results, _column(results.scale), "rate 1e-5", "rate 1e-3", "full_epochs")


TABLE_6 = Experiment(
    name="pde/table6",
    title="The learning rate of the expansion",
    source=_SOURCE.format("Table 6"),
    cells=_rate_cells,
    golden=(
        _golden_pde("pde", middle_stage=True),
        golden_cell("erm", "digits", "erm", training={"augment": "crop-flip"}),
    ),
    printed={
        "waterbirds/rate 1e-2": _pair((85.4, 3.1), (92.1, 2.0)),
        "waterbirds/rate 1e-3": _pair((89.4, 0.7), (92.6, 0.3)),
        "waterbirds/rate 1e-4": _pair((90.3,), (92.4,)),
        "waterbirds/rate 1e-5": _pair((89.5, 0.2), (92.1, 0.1)),
    },
    columns=_SHOWN,
    claims=(
        Claim(
            "the expansion needs a lower learning rate",
            _cut_helps,
            why="our bed: ten expansions add 100 digits to 980, which does no harm at the full rate, and a lower one "
            "only trains less; on Waterbirds the document's expansion can go on for 160 epochs",
        ),
        Claim("how far the rate is cut matters little", _any_cut_does, ours=True),
        Claim("a smaller rate asks for more expansions until the best", _slower_takes_longer),
    ),
    spread="population",
    scales=("cpu", "paper"),
)


def _momentum_cells(scale: Scale) -> tuple[Cell, ...]:
    column = _column(scale)
    modes = ("keep", "zero_buffers", "no_momentum", "new_optimizer")
    return tuple(method_cell(column, "pde", row=mode, options={"momentum": mode}) for mode in modes)


def _momentum_matters(results: Results) -> Verdict:
    """The figure shows a steep fall; a point is the least that could be called one."""
    column = _column(results.scale)
    carried, cleared = (f"{column}/keep", "worst_group_last"), (f"{column}/zero_buffers", "worst_group_last")
    return beats(results, carried, cleared, 1.0, digits=2, what="worst group at the end, kept less cleared")


FIGURE_4 = Experiment(
    name="pde/figure4",
    title="What becomes of the momentum at the first expansion",
    source=_SOURCE.format("Figure 4"),
    cells=_momentum_cells,
    golden=(
        _golden_pde("pde-zero-buffers", momentum="zero_buffers", draw="group_even"),
        _golden_pde("pde-no-momentum", momentum="no_momentum", at_least=400, added="equal"),
    ),
    columns={**_SHOWN, "worst_group_last": "worst group at the end, %"},
    claims=(
        Claim(
            "clearing the momentum costs worst-group accuracy",
            _momentum_matters,
            ours=True,
            why="our bed: a buffer with momentum 0.9 is forgotten after some twenty steps, less than one epoch of 31, "
            "at a tenth of the rate; whether Waterbirds differs is not measured",
        ),
    ),
    spread="population",
    scales=("cpu", "paper"),
)

# ---------------------------------------------------------------------------------------------------------- Table 11

_AUGMENTED = ("group-dro", "pde")
#: Turned digits are other digits, so they are shifted where the document flips birds.
_AUGMENT = {"digits": "crop", "waterbirds": "flip"}


def _augmentation_cells(scale: Scale) -> tuple[Cell, ...]:
    column = _column(scale)
    cells = []
    for method in _AUGMENTED:
        own: Mapping[str, Any] = _LONG if column == "digits" and method == "group-dro" else {}
        for row, augment in (("without", "none"), ("with", _AUGMENT[column])):
            training = {**own, "augment": augment} if augment != "none" or column != "digits" else own
            cells.append(method_cell(column, method, row=f"{method} {row}", training=training))
        options = {"augment_warmup_only": True}
        if method == "pde":
            training = {"augment": _AUGMENT[column]}
            cells.append(method_cell(column, method, row="pde in the warm-up", options=options, training=training))
    return tuple(cells)


def _pde_gains(results: Results) -> Verdict:
    """Printed: 88.9 without and 90.3 with."""
    column = _column(results.scale)
    return _worst_beats(results, column, "pde with", "pde without")


def _group_dro_does_not(results: Results) -> Verdict:
    """Printed: 86.7 without and 85.7 with; a gain of more than half a point would contradict it."""
    column = _column(results.scale)
    pairs = differences(
        results, (f"{column}/group-dro with", "worst_group"), (f"{column}/group-dro without", "worst_group")
    )
    return at_most(pairs, 0.5, "with augmentation less without, GroupDRO's worst group:")


def _ahead_either_way(results: Results) -> Verdict:
    """Printed: 88.9 against 86.7 without, 90.3 against 85.7 with."""
    column = _column(results.scale)
    return every([_worst_beats(results, column, f"pde {how}", f"group-dro {how}") for how in ("without", "with")])


_SHIFTED = (
    "Likely our bed, not tested by a longer run: shifting is much for images of ten pixels, PDE's model underfits them "
    "(average 54.5) in its 8 full epochs, most of them on 980 digits, while GroupDRO takes 49 until its best."
)

TABLE_11 = Experiment(
    name="pde/table11",
    title="With and without augmentation",
    source=_SOURCE.format("Table 11"),
    cells=_augmentation_cells,
    golden=TABLE_6.golden,
    printed={
        "waterbirds/group-dro without": _pair((86.7,), (93.2,)),
        "waterbirds/group-dro with": _pair((85.7,), (96.6,)),
        "waterbirds/pde without": _pair((88.9,), (89.5,)),
        "waterbirds/pde with": _pair((90.3,), (92.4,)),
    },
    columns=_SHOWN,
    claims=(
        Claim("augmentation helps PDE's worst group", _pde_gains, why=_SHIFTED),
        Claim("augmentation does not help GroupDRO's worst group", _group_dro_does_not),
        Claim("PDE is ahead of GroupDRO with and without augmentation", _ahead_either_way, why=_SHIFTED),
    ),
    notes={
        "cpu": "The document flips birds; turned digits would be other digits, so these are shifted by a random crop. "
        "The last row shifts them in the warm-up only, as the authors' framework can."
    },
    spread="population",
    scales=("cpu", "paper"),
)

EXPERIMENTS = (TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_6, FIGURE_4, TABLE_11)
