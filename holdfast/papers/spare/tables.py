"""SPARE (Yang, Gan, Dziugaite and Mirzasoleiman, AISTATS 2024): the tables of its chapter, and what they claim.

Table 5.1 compares methods on three data sets by worst-group and average accuracy. At the ``cpu`` scale the rows that
the chapter's argument rests on are run on its CMNIST column, real MNIST and LeNet-5 at the document's setting, and
every row on the bundled coloured digits, about which the document prints nothing. ``smoke`` is a short training on
those digits; ``paper`` is all rows on all three data sets. Every run keeps the checkpoint with the best worst group on
validation data, the first on ties. Tables 5.2 and 5.4 need Waterbirds and ImageNet at the ``paper`` scale; at the
``cpu`` scale bundled digits ask the same of small networks, coloured for the one and with no shortcut for the other.
The minorities of Table 5.4 were marked by hand and are not published, so its test accuracy is what can be compared.

Two settings of CMNIST matter. The palette: the document prints five colours of which two are nearly the same red, but
its row of ERM was copied from a paper with five distinct colours, in which a classifier by colour is right for 20 % of
the test set, as printed; under the two reds it is right for up to 28 %. The columns here have the distinct palette. The
random crop: the document does not mention one, the code it builds on has it, and without it the dozen images of a
minority group are memorised and group balancing ends near 69 % instead of the printed 82.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from holdfast.papers.common.bounds import at_least, at_most, near
from holdfast.papers.common.columns import golden_cell, method_cell
from holdfast.papers.engine.evidence import beats, differences, every
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Printed, Scale, Verdict
from holdfast.papers.engine.results import Results

#: The rows of Table 5.1 but for CIM, which the document names without defining it.
_ROWS = (
    "erm",
    "class-balanced",
    "eiil",
    "pgi",
    "george",
    "lff",
    "jtt",
    "cnc",
    "spare",
    "ssa",
    "dfr-train",
    "dfr-val",
    "group-balanced",
    "group-dro",
)
_ARGUMENT = ("erm", "class-balanced", "spare", "group-balanced")
_SEE_NO_GROUPS = ("erm", "class-balanced", "eiil", "pgi", "george", "lff", "jtt", "cnc")

#: Options by row where the CPU protocol's data call for others than the method's defaults.
_DIGITS_OPTIONS = {"jtt": {"lambda_up": 20}}


def _cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "smoke":
        return tuple(method_cell("digits5", row, training={"epochs": 3}) for row in _ARGUMENT)
    if scale == "cpu":
        digits = tuple(method_cell("digits5", row, options=_DIGITS_OPTIONS.get(row)) for row in _ROWS)
        return tuple(method_cell("cmnist", row) for row in ("erm", "spare", "group-balanced")) + digits
    return tuple(method_cell(column, row) for column in ("cmnist", "waterbirds", "celeba") for row in _ROWS)


def _row(worst: Printed | None, average: Printed | None) -> Mapping[str, Printed]:
    return {name: p for name, p in {"worst_group": worst, "average": average}.items() if p is not None}


def _numbers(*given: float | None) -> Printed | None:
    return None if given[0] is None else Printed(given[0], given[1] if len(given) > 1 else None)


#: Worst group and average of CMNIST, Waterbirds and CelebA, each as (mean, spread).
_TABLE: dict[str, tuple[tuple[tuple[float, ...], tuple[float, ...]] | None, ...]] = {
    "erm": (((0.0, 0.0), (20.1, 0.2)), ((62.6, 0.3), (97.3, 1.0)), ((47.7, 2.1), (94.9, 0.3))),
    "class-balanced": (((0.0,), (23.7, 3.1)), ((62.8, 1.6), (97.1, 0.1)), ((46.1, 1.5), (95.2, 0.4))),
    "eiil": (((72.8, 6.8), (90.7, 0.9)), ((77.2, 1.0), (96.5, 0.2)), ((81.7, 0.8), (85.7, 0.1))),
    "pgi": (((73.5, 1.8), (88.5, 1.4)), ((79.5, 1.9), (95.5, 0.8)), ((85.3, 0.3), (87.3, 0.1))),
    "george": (((76.4, 2.3), (89.5, 0.3)), ((76.2, 2.0), (95.7, 0.5)), ((54.9, 1.9), (94.6, 0.2))),
    "lff": (((0.0,), (25.0, 0.5)), ((78.0,), (91.2,)), ((77.2,), (85.1,))),
    "jtt": (((74.5, 2.4), (90.2, 0.8)), ((83.8, 1.2), (89.3, 0.7)), ((81.5, 1.7), (88.1, 0.3))),
    "cnc": (((77.4, 3.0), (90.9, 0.6)), ((88.5, 0.3), (90.9, 0.1)), ((88.8, 0.9), (89.9, 0.5))),
    "spare": (((83.0, 1.7), (91.8, 0.7)), ((89.8, 0.6), (94.2, 1.6)), ((90.3, 0.3), (91.1, 0.1))),
    "ssa": (((0.0,), (47.9, 14.4)), ((89.0, 0.6), (92.2, 0.9)), ((89.8, 1.3), (92.8, 0.1))),
    "dfr-train": (None, ((90.4, 1.5), (94.1, 0.5)), ((80.1, 1.1), (89.7, 0.4))),
    "dfr-val": (((80.4, 1.1), ()), ((91.8, 2.6), (93.5, 1.4)), ((87.3, 1.0), (90.2, 0.8))),
    "group-balanced": (((82.2, 1.0), (91.7, 0.6)), ((86.3, 0.3), (93.0, 1.5)), ((85.0, 1.1), (92.7, 0.1))),
    "group-dro": (((78.5, 4.5), (90.6, 0.1)), ((89.9, 0.6), (92.0, 0.6)), ((88.9, 1.3), (93.9, 0.1))),
}

_PRINTED = {
    f"{column}/{row}": _row(_numbers(*pair[0]) if pair[0] else None, _numbers(*pair[1]) if pair[1] else None)
    for row, pairs in _TABLE.items()
    for column, pair in zip(("cmnist", "waterbirds", "celeba"), pairs, strict=True)
    if pair is not None
}


def _columns(results: Results) -> tuple[str, ...]:
    return {"smoke": ("digits5",), "cpu": ("cmnist", "digits5"), "paper": ("cmnist", "waterbirds", "celeba")}[
        results.scale
    ]


def _gains(results: Results, column: str, better: str, other: str, metric: str = "worst_group") -> list[float]:
    return differences(results, (f"{column}/{better}", metric), (f"{column}/{other}", metric))


def _beats_in(results: Results, column: str, better: str, other: str, metric: str = "worst_group") -> Verdict:
    return beats(results, (f"{column}/{better}", metric), (f"{column}/{other}", metric), digits=1)


def _ignores_minorities(results: Results) -> Verdict:
    """The printed worst group of ERM on CMNIST is 0.0."""
    column = _columns(results)[0]
    return at_most(results.values(f"{column}/erm", "worst_group"), 5, f"its worst group on {column} has")


def _follows_colour(results: Results) -> Verdict:
    """A classifier of colours is right for one class in five when test colours are random; ERM prints 20.1."""
    return near(results.values("cmnist/erm", "average"), 20, 5, "its average is")


def _class_balance_is_not_enough(results: Results) -> Verdict:
    """The printed differences between CB and ERM are 0.0, +0.2 and -1.6 points."""
    columns = [column for column in _columns(results) if (results.scale, column) != ("cpu", "cmnist")]
    gains = {column: _gains(results, column, "class-balanced", "erm") for column in columns}
    return every([at_most(gain, 10, f"its worst group gains on {column}") for column, gain in gains.items()])


def _group_balance_repairs(results: Results) -> Verdict:
    """The printed differences between GB and ERM are 82.2, 23.7 and 37.3 points."""
    verdicts = []
    for column in _columns(results):
        least = {"cmnist": 60, "digits5": 5}.get(column, 15)
        gain = _gains(results, column, "group-balanced", "erm")
        verdicts.append(at_least(gain, least, f"its worst group gains on {column}"))
    return every(verdicts)


def _as_printed(method: str) -> Callable[[Results], Verdict]:
    """Ten points: about a dozen images per minority group in training leave room for the luck of the draw."""

    def check(results: Results) -> Verdict:
        verdicts = []
        for column in _columns(results):
            printed = results.printed(f"{column}/{method}", "worst_group")
            if printed is not None:
                ours = results.values(f"{column}/{method}", "worst_group")
                verdicts.append(near(ours, printed.mean, 10, f"its worst group on {column} has"))
        return every(verdicts)

    return check


def _spare_repairs(results: Results) -> Verdict:
    """Printed 83.0 on CMNIST; 75 is what our issue asks for."""
    return at_least(results.values("cmnist/spare", "worst_group"), 75, "its worst group on cmnist has")


def _spare_needs_no_labels(results: Results) -> Verdict:
    """Printed 0.8, 3.5 and 5.3 points above group balancing: at most 5 points below it."""
    columns = _columns(results)
    gaps = {column: _gains(results, column, "spare", "group-balanced") for column in columns}
    return every([at_least(gap, -5, f"SPARE less group balancing on {column}") for column, gap in gaps.items()])


def _spare_beats_labels(results: Results) -> Verdict:
    """Printed: 83.0 against 82.2 of GB and 78.5 of GDRO on CMNIST, 90.3 against 85.0 and 88.9 on CelebA."""
    if results.scale != "paper":
        return _beats_in(results, "cmnist", "spare", "group-balanced")
    rivals = ("group-balanced", "group-dro")
    return every([_beats_in(results, column, "spare", rival) for column in ("cmnist", "celeba") for rival in rivals])


def _spare_costs_once(results: Results) -> Verdict:
    """Two extra epochs of twenty and a clustering; the document counts 1x. By passes, which every machine agrees on."""
    ratio = results.mean("cmnist/spare", "train_seconds") / results.mean("cmnist/erm", "train_seconds")
    passes = results.mean("cmnist/spare", "passes") / results.mean("cmnist/erm", "passes")
    return Verdict(passes <= 1.15, f"{passes:.2f} times the passes (at most 1.15) and {ratio:.2f} times the seconds")


def _spare_beats_rivals(column: str) -> Callable[[Results], Verdict]:
    """Printed: 5.6, 1.3 and 1.5 points above the best rival that sees no groups."""
    return lambda results: every([_beats_in(results, column, "spare", rival) for rival in _SEE_NO_GROUPS])


def _spare_beats_the_best_two(column: str) -> Callable[[Results], Verdict]:
    """Printed on CMNIST: 83.0 / 91.8 against 77.4 / 90.9 of CnC and 74.5 / 90.2 of JTT."""

    def check(results: Results) -> Verdict:
        verdicts = []
        for rival in ("cnc", "jtt"):
            averages = _beats_in(results, column, "spare", rival, "average")
            verdicts += [_beats_in(results, column, "spare", rival), _labelled("average", averages)]
        return every(verdicts)

    return check


def _labelled(what: str, verdict: Verdict) -> Verdict:
    return replace(verdict, evidence=f"{what}: {verdict.evidence}")


def _rivals_cost_more(column: str) -> Callable[[Results], Verdict]:
    """Printed: 5 to 6 times and 2 to 12 times the cost of plain training, against once."""
    return lambda results: every([_beats_in(results, column, row, "spare", "passes") for row in ("jtt", "cnc")])


def _others_find_nothing(column: str) -> Callable[[Results], Verdict]:
    """Printed: 0.0 for LfF and for SSA on CMNIST."""

    def check(results: Results) -> Verdict:
        rows = ("lff", "ssa")
        worst = {row: results.values(f"{column}/{row}", "worst_group") for row in rows}
        return every([at_most(values, 5, f"the worst group of {row} has") for row, values in worst.items()])

    return check


_FULL: tuple[Scale, ...] = ("cpu", "paper")
_PAPER: tuple[Scale, ...] = ("paper",)
_BY_COLUMN: tuple[tuple[str, tuple[Scale, ...]], ...] = (
    ("digits5", ("cpu",)),
    ("cmnist", _PAPER),
    ("waterbirds", _PAPER),
    ("celeba", _PAPER),
)

TABLE_5_1 = Experiment(
    name="spare/table5.1",
    title="Worst-group and average accuracy by method",
    source="SPARE, Table 5.1 of the dissertation (AISTATS 2024)",
    cells=_cells,
    golden=(
        golden_cell("george", "digits", "george", options={"george": {"infer_epoch": 2, "k_max": 2}}),
        golden_cell("cnc", "digits5", "cnc", options={"cnc": {"infer_epoch": 1}}, training={"learning_rate": 0.01}),
    ),
    printed=_PRINTED,
    columns={"worst_group": "worst group, %", "average": "average, %", "passes": "passes"},
    claims=(
        Claim("plain training ignores the minority groups", _ignores_minorities, ours=True),
        Claim("plain training goes by the colour", _follows_colour, scales=_FULL, ours=True),
        Claim("balancing the classes does not help the worst group", _class_balance_is_not_enough, ours=True),
        Claim("balancing the groups repairs the worst group", _group_balance_repairs, ours=True),
        Claim(
            "balancing the groups gives the printed worst group", _as_printed("group-balanced"), scales=_FULL, ours=True
        ),
        Claim("SPARE repairs the worst group without group labels", _spare_repairs, scales=_FULL, ours=True),
        Claim("SPARE gives the printed worst group", _as_printed("spare"), scales=_FULL, ours=True),
        Claim("SPARE is on par with balancing the true groups", _spare_needs_no_labels, ours=True),
        Claim("SPARE has a better worst group than methods that are given the groups", _spare_beats_labels, _FULL),
        Claim("SPARE costs about as much as plain training", _spare_costs_once, scales=_FULL, ours=True),
        Claim(
            "on digits5 SPARE is ahead of every method that sees no groups",
            _spare_beats_rivals("digits5"),
            ("cpu",),
            why="our bed: its minorities are equally large, so that PGI and GEORGE lose nothing by raising them "
            "together; the document's order is CMNIST's, whose rivals are measured at the paper scale",
        ),
        *(
            Claim(
                f"on {column} SPARE is ahead of every method that sees no groups", _spare_beats_rivals(column), _PAPER
            )
            for column in ("cmnist", "waterbirds", "celeba")
        ),
        *(
            Claim(
                f"on {column} SPARE is ahead of CnC and JTT by worst group and by average",
                _spare_beats_the_best_two(column),
                scales,
            )
            for column, scales in _BY_COLUMN
        ),
        *(
            Claim(f"on {column} JTT and CnC go through more examples than SPARE", _rivals_cost_more(column), scales)
            for column, scales in _BY_COLUMN
        ),
        Claim(
            "on digits5 minorities are too small to be found by loss (LfF) or by semi-supervision (SSA)",
            _others_find_nothing("digits5"),
            ("cpu",),
            ours=True,
            why="our bed: SSA learns the colour from 2,700 validation digits in which every colour is as frequent, "
            "and finds minorities of fifteen that CMNIST's predictor is printed to miss",
        ),
        Claim(
            "on cmnist minorities are too small to be found by loss (LfF) or by semi-supervision (SSA)",
            _others_find_nothing("cmnist"),
            _PAPER,
            ours=True,
        ),
    ),
)


# --------------------------------------------------------------------------------------------------------- Table 5.2

_NETWORKS = {
    "resnet18": (2, ((89.5, 0.8), (96.6, 0.3))),
    "resnet50": (4, ((89.1, 2.1), (95.9, 0.7))),
    "wide-resnet50": (5, ((90.8, 0.5), (95.9, 0.7))),
    "densenet121": (5, ((89.3, 1.5), (96.3, 0.6))),
    "pretrained resnet50": (2, ((89.8, 0.6), (94.2, 1.6))),
}


#: Networks that infer the groups of coloured digits for the same perceptron; the last is the perceptron itself.
_SMALL_NETWORKS = ("linear", "pocket-cnn", "mlp-batchnorm", "mlp")


def _network_cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "cpu":
        cell = method_cell("digits5", "spare", kind="spare-two-networks")
        epochs = dict(cell.settings["options"].get("spare", {})).get("infer_epoch", 2)
        return tuple(
            replace(
                cell,
                name=f"digits5/{network}",
                settings={**cell.settings, "inference": {"name": network, "epochs": epochs}},
            )
            for network in _SMALL_NETWORKS
        )
    cells = []
    for network, (epochs, _) in _NETWORKS.items():
        cell = method_cell(
            "waterbirds",
            "spare",
            row=network,
            kind="spare-two-networks",
        )
        first = {"name": network.removeprefix("pretrained "), "epochs": epochs}
        if network.startswith("pretrained"):
            first["weights"] = "imagenet"
        cells.append(replace(cell, settings={**cell.settings, "inference": first}))
    return tuple(cells)


def _any_network_separates(results: Results) -> Verdict:
    """Printed: from 0.7 below the pretrained ResNet-50 to 1.0 above it."""
    column, networks = ("waterbirds", (*_NETWORKS,)) if results.scale == "paper" else ("digits5", _SMALL_NETWORKS)
    own = networks[-1]
    return every(
        [at_least(_gains(results, column, network, own), -5, f"{network} less {own}") for network in networks[:-1]]
    )


TABLE_5_2 = Experiment(
    name="spare/table5.2",
    title="The network that infers the groups need not be the one that is trained on them",
    source="SPARE, Table 5.2 of the dissertation (AISTATS 2024)",
    cells=_network_cells,
    golden=(
        golden_cell(
            "two-networks",
            "digits",
            "spare",
            data={"name": "digits"},
            options={"spare": {"k": 1, "output": "features"}},
            training={"epoch_size": 220, "batch_size": 110, "learning_rate": 1e-3},
            more={"inference": {"name": "resnet20", "epochs": 1}},
            kind="spare-two-networks",
        ),
        golden_cell("ssa", "digits5", "ssa", options={"ssa": {"iterations": 10, "check_every": 5, "splits": 2}}),
    ),
    printed={
        f"waterbirds/{network}": _row(_numbers(*worst), _numbers(*average))
        for network, (_, (worst, average)) in _NETWORKS.items()
    },
    columns={"worst_group": "worst group, %", "average": "average, %"},
    claims=(Claim("groups inferred by any network serve", _any_network_separates, ours=True),),
    scales=("cpu", "paper"),
)


# --------------------------------------------------------------------------------------------------------- Table 5.3

#: Silhouette and power of each class.
_SEPARATIONS = {
    "cmnist": ((0.997, 0.978, 0.996, 0.991, 0.996), (1, 1, 1, 1, 1)),
    "waterbirds": ((0.886, 0.758), (2, 2)),
    "celeba": ((0.924, 0.757), (1, 2)),
}


def _separation_cells(scale: Scale) -> tuple[Cell, ...]:
    columns = tuple(_SEPARATIONS) if scale == "paper" else ("cmnist",)
    return tuple(method_cell(column, "spare", kind="spare-silhouettes") for column in columns)


def _separated(results: Results) -> tuple[str, ...]:
    return tuple(_SEPARATIONS) if results.scale == "paper" else ("cmnist",)


def _powers_as_printed(results: Results) -> Verdict:
    """A silhouette of 0.9 decides the power, so equal powers mean silhouettes on the same side of it."""
    evidence, same = [], True
    for column in _separated(results):
        printed = _SEPARATIONS[column][1]
        powers = [results.values(f"{column}/spare", f"lambda {c}") for c in range(len(printed))]
        same &= all(set(ours) == {theirs} for ours, theirs in zip(powers, printed, strict=True))
        means = [results.mean(f"{column}/spare", f"silhouette {c}") for c in range(len(powers))]
        ours = ", ".join("/".join(f"{power:g}" for power in sorted(set(each))) for each in powers)
        silhouettes = ", ".join(f"{mean:.3f}" for mean in means)
        evidence.append(f"powers {ours} on {column}, from silhouettes {silhouettes}")
    return Verdict(same, "; ".join(evidence))


def _silhouettes_as_printed(results: Results) -> Verdict:
    verdicts = []
    for column in _separated(results):
        for c, printed in enumerate(_SEPARATIONS[column][0]):
            ours = results.values(f"{column}/spare", f"silhouette {c}")
            verdicts.append(near(ours, printed, 0.05, f"silhouette of class {c} on {column}", 3))
    return every(verdicts)


TABLE_5_3 = Experiment(
    name="spare/table5.3",
    title="Silhouettes of the early clusters, and the powers that follow from them",
    source="SPARE, Table 5.3 of the dissertation (AISTATS 2024)",
    cells=_separation_cells,
    golden=(
        golden_cell(
            "silhouettes",
            "digits",
            "spare",
            options={"spare": {"infer_epoch": 2, "k_max": 3}},
            kind="spare-silhouettes",
        ),
        golden_cell(
            "merged-minorities", "digits5", "spare", more={"variant": "merged-minorities"}, kind="spare-variant"
        ),
    ),
    printed={
        f"{column}/spare": {
            **{f"silhouette {c}": Printed(value) for c, value in enumerate(silhouettes)},
            **{f"lambda {c}": Printed(value) for c, value in enumerate(powers)},
        }
        for column, (silhouettes, powers) in _SEPARATIONS.items()
    },
    columns={f"silhouette {c}": f"silhouette, class {c}" for c in range(5)},
    claims=(
        Claim("every class gets the printed power", _powers_as_printed),
        Claim("every class has the printed silhouette to 0.05", _silhouettes_as_printed, ours=True),
    ),
    scales=("cpu", "paper"),
    digits=3,
)


# --------------------------------------------------------------------------------------------------------- Table 5.4


def _restricted_cells(scale: Scale) -> tuple[Cell, ...]:
    spare = {"infer_epoch": 8, "tau": 1.0}
    rows: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("erm", {}),
        ("class-balanced", {}),
        ("eiil", {"infer_epoch": 4}),
        ("spare", spare),
    )
    if scale == "cpu":
        return tuple(
            method_cell("digits", row, data={"name": "digits"}, row=f"plain digits/{row}", training=_PLAIN)
            for row, _ in rows
        )
    return tuple(method_cell("restricted-imagenet", row, options=options) for row, options in rows)


#: A set without groups is judged by accuracy; 1,400 digits want more epochs than 9,900 coloured ones.
_PLAIN = {"select_by": "accuracy", "epochs": 30}


def _eiil_loses(results: Results) -> Verdict:
    """Printed: 93.1 against 96.0 and 95.4."""
    return every([_beats_in(results, _unlabelled(results), row, "eiil", "average") for row in ("erm", "spare")])


def _spare_hardly_loses(results: Results) -> Verdict:
    """Printed: 95.4 against 96.0; a point is the most that could be called a slight drop."""
    return at_least(_gains(results, _unlabelled(results), "spare", "erm", "average"), -1, "SPARE less plain training")


def _unlabelled(results: Results) -> str:
    return "restricted-imagenet" if results.scale == "paper" else "digits/plain digits"


TABLE_5_4 = Experiment(
    name="spare/table5.4",
    title="Restricted ImageNet, whose shortcuts nobody labelled",
    source="SPARE, Table 5.4 of the dissertation (AISTATS 2024)",
    cells=_restricted_cells,
    golden=(
        golden_cell(
            "class-balanced",
            "digits",
            "class-balanced",
            data={"name": "digits"},
            model={"name": "pocket-cnn"},
            training={
                "epoch_size": 220,
                "batch_size": 110,
                "learning_rate": 1e-3,
                "nesterov": True,
                "select_by": "accuracy",
                "augment": "flip",
            },
        ),
        golden_cell("eiil", "digits", "eiil", options={"eiil": {"infer_epoch": 1, "assignment_steps": 10}}),
    ),
    printed={
        f"restricted-imagenet/{row}": {
            "average": Printed(test),
            "insect_minority": Printed(insects),
            "frog_minority": Printed(frogs),
        }
        for row, (test, insects, frogs) in {
            "erm": (96.0, 83.3, 96.2),
            "class-balanced": (95.9, 87.5, 96.2),
            "eiil": (93.1, 76.0, 90.4),
            "spare": (95.4, 86.3, 98.1),
        }.items()
    },
    columns={"average": "test, %", "insect_minority": "insect minority, %", "frog_minority": "frog minority, %"},
    claims=(
        Claim("EIIL loses test accuracy, against plain training and against SPARE", _eiil_loses),
        Claim("SPARE loses hardly any test accuracy", _spare_hardly_loses, ours=True),
    ),
    notes={
        "paper": "That SPARE alone helps both minorities, by 3 and 2 points, can't be judged: they were marked by hand "
        "and are not published.",
        "cpu": "Digits without a planted shortcut: what methods that look for one cost where there is none.",
    },
    scales=("cpu", "paper"),
)

EXPERIMENTS = (TABLE_5_1, TABLE_5_2, TABLE_5_3, TABLE_5_4)
