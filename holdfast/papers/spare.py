"""SPARE (Yang, Gan, Dziugaite and Mirzasoleiman, AISTATS 2024): the tables of its chapter, and what they claim.

Table 5.1 compares methods on three data sets by worst-group and average accuracy. At the ``cpu`` scale the rows that
the chapter's argument rests on are run on its CMNIST column, real MNIST and LeNet-5 at the document's setting, and
every row on the bundled coloured digits, about which the document prints nothing. ``smoke`` is a short training on
those digits; ``paper`` is all rows on all three data sets. Every run keeps the checkpoint with the best worst group on
validation data, the first on ties. Tables 5.2 and 5.4 have the ``paper`` scale only: they need Waterbirds and ImageNet.
The minorities of Table 5.4 were marked by hand and are not published, so its test accuracy is what can be compared.

Two settings of CMNIST matter. The palette: the document prints five colours of which two are nearly the same red, but
its row of ERM was copied from a paper with five distinct colours, in which a classifier by colour is right for 20 % of
the test set, as printed; under the two reds it is right for up to 28 %. The columns here have the distinct palette. The
random crop: the document does not mention one, the code it builds on has it, and without it the dozen images of a
minority group are memorised and group balancing ends near 69 % instead of the printed 82.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.papers.columns import golden_cell, method_cell
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


def _worst(results: Results, method: str) -> dict[str, float]:
    """Worst-group accuracy of a method, by column."""
    return {column: results.mean(f"{column}/{method}", "worst_group") for column in _columns(results)}


def _listed(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{score:.1f} on {column}" for column, score in scores.items())


def _ignores_minorities(results: Results) -> Verdict:
    """The printed worst group of ERM on CMNIST is 0.0."""
    column = _columns(results)[0]
    worst = results.mean(f"{column}/erm", "worst_group")
    return Verdict(worst <= 5, f"its worst group has {worst:.1f} on {column} (at most 5)")


def _follows_colour(results: Results) -> Verdict:
    """A classifier of colours is right for one class in five when test colours are random; ERM prints 20.1."""
    average = results.mean("cmnist/erm", "average")
    return Verdict(abs(average - 20) <= 5, f"its average is {average:.1f} (20 within 5)")


def _class_balance_is_not_enough(results: Results) -> Verdict:
    """The printed differences between CB and ERM are 0.0, +0.2 and -1.6 points."""
    gains = {
        column: results.mean(f"{column}/class-balanced", "worst_group") - results.mean(f"{column}/erm", "worst_group")
        for column in _columns(results)
        if (results.scale, column) != ("cpu", "cmnist")
    }
    return Verdict(max(gains.values()) <= 10, f"worst group gains {_listed(gains)} (at most 10)")


def _group_balance_repairs(results: Results) -> Verdict:
    """The printed differences between GB and ERM are 82.2, 23.7 and 37.3 points."""
    plain, balanced = _worst(results, "erm"), _worst(results, "group-balanced")
    gains = {column: balanced[column] - plain[column] for column in plain}
    least = {column: {"cmnist": 60, "digits5": 5}.get(column, 15) for column in plain}
    holds = all(gains[column] >= least[column] for column in plain)
    return Verdict(holds, f"worst group gains {_listed(gains)} (at least {_listed(least)})")


def _group_balance_as_printed(results: Results) -> Verdict:
    """Ten points: about a dozen images per minority group in training leave room for the luck of the draw."""
    gaps = _against_printed(results, "group-balanced")
    return Verdict(max(map(abs, gaps.values())) <= 10, f"ours minus printed is {_listed(gaps)} (within 10)")


def _spare_as_printed(results: Results) -> Verdict:
    """As for group balancing."""
    gaps = _against_printed(results, "spare")
    return Verdict(max(map(abs, gaps.values())) <= 10, f"ours minus printed is {_listed(gaps)} (within 10)")


def _against_printed(results: Results, method: str) -> dict[str, float]:
    gaps = {}
    for column, ours in _worst(results, method).items():
        printed = results.printed(f"{column}/{method}", "worst_group")
        if printed is not None:
            gaps[column] = ours - printed.mean
    return gaps


def _spare_repairs(results: Results) -> Verdict:
    """Printed 83.0 on CMNIST; 75 is what our issue asks for."""
    worst = results.mean("cmnist/spare", "worst_group")
    return Verdict(worst >= 75, f"its worst group has {worst:.1f} on cmnist (at least 75)")


def _spare_needs_no_labels(results: Results) -> Verdict:
    """Printed 83.0 against 82.2 on CMNIST, and above group balancing on the others: at most 5 points below it."""
    labelled, ours = _worst(results, "group-balanced"), _worst(results, "spare")
    gaps = {column: ours[column] - labelled[column] for column in ours}
    return Verdict(min(gaps.values()) >= -5, f"SPARE minus group balancing is {_listed(gaps)} (at least -5)")


def _spare_costs_once(results: Results) -> Verdict:
    """Two extra epochs of twenty and a clustering; the document counts 1x."""
    ratio = results.mean("cmnist/spare", "train_seconds") / results.mean("cmnist/erm", "train_seconds")
    passes = results.mean("cmnist/spare", "passes") / results.mean("cmnist/erm", "passes")
    return Verdict(ratio <= 1.15, f"{ratio:.2f} times the seconds and {passes:.2f} times the passes (at most 1.15)")


def _spare_beats_rivals(results: Results) -> Verdict:
    """Printed: 5.6, 1.3 and 1.5 points above the best rival that sees no groups."""
    lead = {}
    for column in _columns(results):
        if column == "cmnist" and results.scale == "cpu":
            continue
        rivals = (results.mean(f"{column}/{row}", "worst_group") for row in _SEE_NO_GROUPS)
        lead[column] = results.mean(f"{column}/spare", "worst_group") - max(rivals)
    return Verdict(min(lead.values()) >= 0, f"SPARE minus the best of them is {_listed(lead)} (at least 0)")


_FULL: tuple[Scale, ...] = ("cpu", "paper")

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
        Claim("plain training ignores the minority groups", _ignores_minorities),
        Claim("plain training goes by the colour", _follows_colour, scales=_FULL),
        Claim("balancing the classes does not help the worst group", _class_balance_is_not_enough),
        Claim("balancing the groups repairs the worst group", _group_balance_repairs),
        Claim("balancing the groups gives the printed worst group", _group_balance_as_printed, scales=_FULL),
        Claim("SPARE repairs the worst group without group labels", _spare_repairs, scales=_FULL),
        Claim("SPARE gives the printed worst group", _spare_as_printed, scales=_FULL),
        Claim("SPARE is on par with balancing the true groups", _spare_needs_no_labels),
        Claim("SPARE costs about as much as plain training", _spare_costs_once, scales=_FULL),
        Claim("SPARE is ahead of every method that sees no groups", _spare_beats_rivals, scales=_FULL),
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


def _network_cells(scale: Scale) -> tuple[Cell, ...]:
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
    worst = {network: results.mean(f"waterbirds/{network}", "worst_group") for network in _NETWORKS}
    spread = max(worst.values()) - min(worst.values())
    return Verdict(spread <= 5, f"worst groups {_listed(worst)}; {spread:.1f} apart (at most 5)")


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
            training={"epoch_size": 110, "batch_size": 55, "learning_rate": 1e-3},
            more={"inference": {"name": "densenet121", "epochs": 1}},
            kind="spare-two-networks",
        ),
        golden_cell("ssa", "digits5", "ssa", options={"ssa": {"iterations": 10, "check_every": 5, "splits": 2}}),
    ),
    printed={
        f"waterbirds/{network}": _row(_numbers(*worst), _numbers(*average))
        for network, (_, (worst, average)) in _NETWORKS.items()
    },
    columns={"worst_group": "worst group, %", "average": "average, %"},
    claims=(Claim("groups inferred by any network serve", _any_network_separates),),
    scales=("paper",),
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


def _powers_as_printed(results: Results) -> Verdict:
    """A silhouette of 0.9 decides the power, so equal powers mean silhouettes on the same side of it."""
    columns = tuple(_SEPARATIONS) if results.scale == "paper" else ("cmnist",)
    said, same = [], True
    for column in columns:
        powers = [results.values(f"{column}/spare", f"lambda {c}") for c in range(len(_SEPARATIONS[column][1]))]
        same &= all(set(ours) == {theirs} for ours, theirs in zip(powers, _SEPARATIONS[column][1], strict=True))
        means = [results.mean(f"{column}/spare", f"silhouette {c}") for c in range(len(powers))]
        said.append(f"silhouettes {', '.join(f'{mean:.3f}' for mean in means)} on {column}")
    return Verdict(same, "; ".join(said))


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
    claims=(Claim("every class gets the printed power", _powers_as_printed),),
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
    return tuple(method_cell("restricted-imagenet", row, options=options) for row, options in rows)


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
            model={"name": "resnet50"},
            training={
                "epoch_size": 110,
                "batch_size": 55,
                "learning_rate": 1e-4,
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
    scales=("paper",),
)

EXPERIMENTS = (TABLE_5_1, TABLE_5_2, TABLE_5_3, TABLE_5_4)
