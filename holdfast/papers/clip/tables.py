"""Spurious correlations in CLIP (Yang, Nushi, Palangi and Mirzasoleiman, ICML 2023): found, fixed, and looked at.

The ``paper`` scale is the document's own setting: CLIP's RN50 and ViT-L/14@336px on Waterbirds, and RN50 on two classes
of ImageNet that a baby tells apart; it needs public weights, the data and a GPU. At the ``cpu`` scale a small model is
pre-trained on rendered shapes, where it learns a shortcut, and every row is fine-tuned from there. What claims ask of
it was set beforehand, from a trial with another renderer. Most of the gain in the worst group comes from balanced
draws, so rows without them are part of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.papers.engine.evidence import above, beats, every
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Printed, Scale, Verdict
from holdfast.papers.engine.results import Results

TUNE = "clip-tune"

#: At the trial's rate of 0.05 our towers' projections are thrown away in the first steps. From 0.001 to 0.01 the
#: validation worst group of the CLIP-style rows hardly differs (0.87 to 0.90 under seed 0); this is the middle.
TRAINING = {
    "epochs": 25,
    "batch_size": 128,
    "learning_rate": 0.003,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "threads": 1,
}
_PROBE = {**TRAINING, "epochs": 60, "learning_rate": 0.5}

#: What a row trains with; ``form`` of the terms is the authors' release unless it says otherwise.
ROWS: Mapping[str, Mapping[str, Any]] = {
    "pre-trained": {"method": "zero-shot"},
    "fine-tuned clip": {"method": "fine-tuned clip"},
    "erm": {"method": "erm"},
    "group-dro": {"method": "group-dro"},
    "lc+vc+ls": {"method": "lc+vc+ls", "form": "release"},
    "lc+vc+vs": {"method": "lc+vc+vs", "form": "release"},
}
MORE: Mapping[str, Mapping[str, Any]] = {
    "lc+vc+ls, equations": {"method": "lc+vc+ls", "form": "cs"},
    "lc+vc+vs, equations": {"method": "lc+vc+vs", "form": "cs"},
    "fine-tuned clip, natural": {"method": "fine-tuned clip, natural"},
    "lc+vc+ls, natural": {"method": "lc+vc+ls", "form": "release", "sampling": "natural"},
    "lc+vc+vs, natural": {"method": "lc+vc+vs", "form": "release", "sampling": "natural"},
}
_LINEAR: Mapping[str, Mapping[str, Any]] = {
    "linear probe": {"method": "linear probe"},
    "dfr-train": {"method": "dfr-train"},
    "dfr-val": {"method": "dfr-val"},
}
SHAPES: Mapping[Scale, Mapping[str, Any]] = {
    "cpu": {"name": "shapes"},
    "smoke": {"name": "shapes", "pairs": 256, "epochs": 1},
}
QUICK = {**TRAINING, "epochs": 1}

RN50, VIT = "open_clip:RN50:openai", "open_clip:ViT-L-14-336:openai"
_PUBLISHED = {"epochs": 300, "batch_size": 128, "learning_rate": 1e-4, "weight_decay": 1e-5, "device": "auto"}
#: The release starts the scale of cosines anew.
_FRESH_SCALE = 1 / 0.07
TEMPLATES = "openai"


def shape_cell(row: str, changes: Mapping[str, Any], scale: Scale, training: Mapping[str, Any]) -> Cell:
    """A row on the rendered shapes."""
    smoke = scale == "smoke"
    settings = {
        "world": dict(SHAPES[scale]),
        "tuning": dict(QUICK if smoke else training),
        "explained": 4 if smoke else 60,
        **changes,
    }
    return Cell(f"shapes/{row}", TUNE, settings)


def paper_cell(column: str, row: str, world: Mapping[str, Any], changes: Mapping[str, Any]) -> Cell:
    """A row of the document, in its own setting."""
    batch = 32 if world["tower"] == VIT else 128
    decay = 1.0 if row == "group-dro" else _PUBLISHED["weight_decay"]
    settings = {
        "world": {**world, "templates": TEMPLATES},
        "tuning": {**_PUBLISHED, "batch_size": batch, "weight_decay": decay},
        "scale": _FRESH_SCALE,
        "explained": None,
        **changes,
    }
    return Cell(f"{column}/{row}", TUNE, settings)


def _cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "paper":
        columns: Mapping[str, Mapping[str, Any]] = {
            "RN50": {"name": "waterbirds", "tower": RN50},
            "ViT-L-14-336": {"name": "waterbirds", "tower": VIT},
            "pacifier, RN50": {"name": "imagenet-pair", "tower": RN50},
        }
        return tuple(
            paper_cell(column, row, world, changes)
            for column, world in columns.items()
            for row, changes in ROWS.items()
            if not (column.startswith("pacifier") and row == "lc+vc+vs")
        )
    rows = {**ROWS, **MORE}
    cells = [shape_cell(row, changes, scale, TRAINING) for row, changes in rows.items()]
    return (*cells, *(shape_cell(row, changes, scale, _PROBE) for row, changes in _LINEAR.items()))


def printed(
    average: float, worst: float, aiou: float | None = None, aiou_worst: float | None = None
) -> dict[str, Printed]:
    """Numbers of a row as the document has them."""
    numbers = {"average": Printed(average), "worst_group": Printed(worst)}
    if aiou is not None:
        numbers["aiou"] = Printed(aiou)
    if aiou_worst is not None:
        numbers["aiou_worst"] = Printed(aiou_worst)
    return numbers


_PRINTED: Mapping[str, Mapping[str, Printed]] = {
    "RN50/pre-trained": printed(90.8, 44.9, 0.507, 0.479)
    | {"landbird/land": Printed(93.44), "landbird/water": Printed(44.92)}
    | {"waterbird/land": Printed(59.03), "waterbird/water": Printed(91.59)},
    "RN50/fine-tuned clip": printed(81.3, 77.1, 0.510, 0.128),
    "RN50/erm": printed(93.5, 54.4, 0.514, 0.139),
    "RN50/group-dro": printed(83.3, 73.7, 0.509, 0.274),
    "RN50/lc+vc+ls": printed(84.7, 77.5, 0.628, 0.499),
    "RN50/lc+vc+vs": printed(83.2, 77.5, 0.654, 0.587),
    "ViT-L-14-336/pre-trained": printed(88.5, 34.0, 0.579, 0.551)
    | {"landbird/land": Printed(99.29), "landbird/water": Printed(90.20)}
    | {"waterbird/land": Printed(33.96), "waterbird/water": Printed(55.61)},
    "ViT-L-14-336/fine-tuned clip": printed(97.2, 89.7, 0.687, 0.697),
    "ViT-L-14-336/erm": printed(96.8, 58.1, 0.636, 0.680),
    "ViT-L-14-336/group-dro": printed(94.1, 90.8, 0.669, 0.644),
    "ViT-L-14-336/lc+vc+ls": printed(97.1, 89.7, 0.698, 0.711),
    "ViT-L-14-336/lc+vc+vs": printed(96.9, 90.5, 0.716, 0.709),
    "pacifier, RN50/pre-trained": printed(73.7, 30.8, 0.651, 0.380),
    "pacifier, RN50/fine-tuned clip": printed(94.1, 91.7, 0.650, 0.571),
    "pacifier, RN50/erm": printed(94.9, 96.2, 0.661, 0.454),
    "pacifier, RN50/group-dro": printed(89.6, 93.1, 0.661, 0.568),
    "pacifier, RN50/lc+vc+ls": printed(94.9, 96.2, 0.720, 0.645),
}

_BALANCED = ("fine-tuned clip", "lc+vc+ls", "lc+vc+vs", "lc+vc+ls, equations", "lc+vc+vs, equations")


_VARIANTS = ("lc+vc+ls", "lc+vc+vs")
_BASELINES = ("pre-trained", "fine-tuned clip", "erm", "group-dro")


def variants(column: str) -> tuple[str, ...]:
    """The method's rows in a column; of the pair of ImageNet only the one in language is printed."""
    return _VARIANTS[:1] if column.startswith("pacifier") else _VARIANTS


def over(
    column: str,
    rows: Sequence[str],
    others: Sequence[str],
    metric: str,
    results: Results,
    *,
    margin: float = 0.0,
) -> Verdict:
    """Whether every row is above every other one in a metric by a margin, in pairs of a seed."""
    digits = 3 if metric.startswith("aiou") else 1
    return every(
        [
            beats(
                results,
                (f"{column}/{row}", metric),
                (f"{column}/{other}", metric),
                margin,
                digits=digits,
                what=f"{row} minus {other}, {metric}",
            )
            for row in rows
            for other in others
        ]
    )


def least(column: str, row: str, metric: str, bound: float, results: Results, *, most: bool = False) -> Verdict:
    """Whether a row is above a bound in a metric, or below it."""
    values = results.values(f"{column}/{row}", metric)
    what = f"{bound:g} minus {metric} of {row}" if most else f"{metric} of {row} minus {bound:g}"
    return above([(bound - value) if most else (value - bound) for value in values], digits=1, what=what)


def _has_the_shortcut(results: Results) -> Verdict:
    """Set beforehand: worst group at most 20 %, average at least 90 %."""
    lowest = least("shapes", "pre-trained", "worst_group", 20, results, most=True)
    return every([lowest, least("shapes", "pre-trained", "average", 90, results)])


_GROUPS = {"shapes": (("disc", "square"), ("sand", "sea"))}
_BIRDS = (("landbird", "waterbird"), ("land", "water"))


def _groups_differ(column: str, results: Results) -> Verdict:
    """Table 7.2: within a class the pre-trained model is better on the ground that the class usually has."""
    classes, grounds = _GROUPS.get(column, _BIRDS)
    cell = f"{column}/pre-trained"
    return every(
        [
            beats(
                results,
                (cell, f"{name}/{own}"),
                (cell, f"{name}/{other}"),
                digits=1,
                what=f"{name} on {own} minus on {other}",
            )
            for name, own, other in zip(classes, grounds, reversed(grounds), strict=True)
        ]
    )


def _balanced_over_erm(results: Results) -> Verdict:
    """Set beforehand: every balanced CLIP-style run is 20 points above ERM."""
    return over("shapes", _BALANCED, ("erm",), "worst_group", results, margin=20)


def _natural_costs(results: Results) -> Verdict:
    """Set beforehand: without balanced draws at least 20 points are lost, in the best of the three."""
    rows = ("fine-tuned clip", *_VARIANTS)
    return every([over("shapes", (row,), (f"{row}, natural",), "worst_group", results, margin=20) for row in rows])


def _explained_release(results: Results) -> Verdict:
    """Set beforehand: AIoU of lc+vc+vs is 0.02 above fine-tuned CLIP's, and above ERM's."""
    tuned = over("shapes", ("lc+vc+vs",), ("fine-tuned clip",), "aiou", results, margin=0.02)
    return every([tuned, over("shapes", ("lc+vc+vs",), ("erm",), "aiou", results)])


def _explained_equations(results: Results) -> Verdict:
    """Set beforehand: at most 0.01 below fine-tuned CLIP's."""
    return over("shapes", ("lc+vc+vs, equations",), ("fine-tuned clip",), "aiou", results, margin=-0.01)


def _average_holds(results: Results) -> Verdict:
    """Set beforehand: at least 80 %."""
    return every([least("shapes", row, "average", 80, results) for row in _BALANCED[1:]])


def best_explained(column: str, metric: str, results: Results) -> Verdict:
    """Table 7.4: both variants have a higher AIoU than every baseline, over groups and in the worst group."""
    return over(column, variants(column), _BASELINES, metric, results)


def best_worst_group(column: str, results: Results) -> Verdict:
    """Table 7.4: the language variant has the best worst group (77.5 with RN50)."""
    return over(column, ("lc+vc+ls",), _BASELINES, "worst_group", results)


def _as_good_as_erm(results: Results) -> Verdict:
    """Table 7.5: 96.2 both; here within 3 points."""
    column = "pacifier, RN50"
    return every(
        [
            over(column, ("lc+vc+ls",), ("erm",), "worst_group", results, margin=-3),
            over(column, ("erm",), ("lc+vc+ls",), "worst_group", results, margin=-3),
        ]
    )


def _transformer_explains_better(results: Results) -> Verdict:
    """Table 7.4: AIoU of the transformer is above that of the ResNet in every row."""
    rows = (*_BASELINES, *_VARIANTS)
    return every([beats(results, (f"ViT-L-14-336/{row}", "aiou"), (f"RN50/{row}", "aiou")) for row in rows])


def golden_rows(name: str, *rows: Mapping[str, Any], tuning: Mapping[str, Any] | None = None) -> Cell:
    """A golden cell of several rows in a world whose tower is made on the spot."""
    how = {**QUICK, **({} if tuning is None else tuning)}
    given = [{**row} if "planted" in row else {"tuning": how, **row} for row in rows]
    return Cell(f"golden/{name}", "clip-several", {"world": dict(_TINY), "rows": given})


_TINY = {
    "name": "shapes",
    "pairs": 128,
    "epochs": 1,
    "counts": {"train": [24, 8, 8, 24], "validation": [4, 4, 4, 4], "test": [8, 8, 8, 8]},
}

_GOLDEN = (
    golden_rows("rows", *({**row, "explained": 1} for row in ROWS.values())),
    golden_rows("more rows", *MORE.values(), *_LINEAR.values()),
)

_PAPER_COLUMNS = ("RN50", "ViT-L-14-336", "pacifier, RN50")

#: Where the maps are looked at, and why they tell so little there.
_SMALL_MAPS = (
    "unknown: a trial with another renderer showed it; our maps have six places in a row, and often one of the two "
    "classes is given the object and the other the ground."
)


def explanation_claims(column: str, scales: tuple[Scale, ...], why: str = "") -> tuple[Claim, ...]:
    """Table 7.4's message on explanations, over groups and in the worst group."""
    return (
        Claim(
            f"{column}: the method has the best explanations", partial(best_explained, column, "aiou"), scales, why=why
        ),
        Claim(
            f"{column}: the method has the best explanations in the worst group",
            partial(best_explained, column, "aiou_worst"),
            scales,
            why=why,
        ),
    )


def _erm_helps(column: str, results: Results) -> Verdict:
    return over(column, ("erm",), ("pre-trained",), "worst_group", results)


def _above_erm(column: str, results: Results) -> Verdict:
    return over(column, variants(column), ("erm",), "worst_group", results)


def _method_over_erm(column: str, results: Results) -> Verdict:
    """The headline: 23 points for RN50, 32 for ViT; here at least 15."""
    return over(column, _VARIANTS, ("erm",), "worst_group", results, margin=15)


def column_claims(column: str) -> tuple[Claim, ...]:
    """The sentences of Tables 7.2 and 7.4, for a column."""
    scales: tuple[Scale, ...] = ("cpu",) if column == "shapes" else ("paper",)
    claims = [
        Claim(f"{column}: accuracy differs between the groups of a class", partial(_groups_differ, column), scales),
        Claim(f"{column}: ERM is above zero-shot in the worst group", partial(_erm_helps, column), scales),
        Claim(f"{column}: the method is above ERM in the worst group", partial(_above_erm, column), scales),
    ]
    if column != "ViT-L-14-336":  # second best there, as the document says
        claims.append(
            Claim(f"{column}: the method has the best worst group", partial(best_worst_group, column), scales)
        )
    return (*claims, *explanation_claims(column, scales, _SMALL_MAPS if column == "shapes" else ""))


TABLE_7_4 = Experiment(
    name="clip/table7.4",
    title="worst group and explanations of a fine-tuned vision-language model",
    source="Spurious correlations in CLIP, Tables 7.2, 7.4 and 7.5",
    cells=_cells,
    golden=_GOLDEN,
    printed=_PRINTED,
    claims=(
        Claim(
            "The pre-trained model has the shortcut: worst group at most 20 %, average at least 90 %",
            _has_the_shortcut,
            ("cpu",),
            ours=True,
        ),
        Claim(
            "ERM improves the worst group by 20 points",
            lambda results: over("shapes", ("erm",), ("pre-trained",), "worst_group", results, margin=20),
            ("cpu",),
            ours=True,
        ),
        Claim(
            "Every balanced CLIP-style run is 20 points above ERM in the worst group",
            _balanced_over_erm,
            ("cpu",),
            ours=True,
        ),
        Claim(
            "Natural instead of balanced draws cost 20 points in the worst group", _natural_costs, ("cpu",), ours=True
        ),
        Claim(
            "The spurious image term improves AIoU over fine-tuned CLIP by 0.02",
            _explained_release,
            ("cpu",),
            ours=True,
            why=_SMALL_MAPS,
        ),
        Claim(
            "In the form of the equations AIoU is not below fine-tuned CLIP's",
            _explained_equations,
            ("cpu",),
            ours=True,
            why=_SMALL_MAPS,
        ),
        Claim("The method's average accuracy is at least 80 %", _average_holds, ("cpu",), ours=True),
        *(claim for column in ("shapes", *_PAPER_COLUMNS[:2]) for claim in column_claims(column)),
        *(
            Claim(
                f"{column}: the method is 15 points above ERM in the worst group",
                partial(_method_over_erm, column),
                ("paper",),
                ours=True,
            )
            for column in _PAPER_COLUMNS[:2]
        ),
        *explanation_claims("pacifier, RN50", ("paper",)),
        Claim(
            "pacifier, RN50: ERM does as well in the worst group, within 3 points",
            _as_good_as_erm,
            ("paper",),
            ours=True,
        ),
        Claim(
            "AIoU of the transformer is above that of the ResNet in every row", _transformer_explains_better, ("paper",)
        ),
    ),
    notes={
        "cpu": "On rendered shapes what repairs the worst group is drawing groups alike: plain CLIP loss and group DRO "
        "on balanced draws are as good as the method within the noise, and explanations are no better with the terms "
        "than without. AIoU of the worst group is highest with group DRO here. What the document finds in Table 7.4 "
        "beyond balanced draws is not seen at this scale."
    },
    columns={"average": "average", "worst_group": "worst group", "aiou": "AIoU", "aiou_worst": "AIoU, worst group"},
    digits=3,
)

EXPERIMENTS = (TABLE_7_4,)
