"""SPARE on the bundled coloured digits: what its chapter argues, on data of seconds (the CPU protocol S1 to S5).

S1 has two classes and two colours; S2 five classes and colours; S3 minorities of unequal size, where keeping them apart
must pay; S4 the document's palette with two reds, where some early epochs split a majority and the epoch must be chosen
well; S5 gives SPARE's clusters to PDE. The document prints nothing about these data: there is nothing to compare with,
only the claims.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.papers.columns import golden_cell, method_cell
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import Results

_UNEQUAL = {"correlation": 0.92, "minority_ratio": [8, 4, 2, 1]}
_TWO_REDS = {"correlation": 0.99, "palette": "dissertation"}
_VARIANT = "spare-variant"


def _variant(row: str) -> Cell:
    cell = method_cell("digits5", "spare", row=f"s3/{row}", data=_UNEQUAL, kind=_VARIANT)
    return replace(cell, settings={**cell.settings, "variant": row})


def _cells(scale: Scale) -> tuple[Cell, ...]:
    return (
        *(method_cell("digits", row, row=f"s1/{row}") for row in ("erm", "class-balanced", "spare", "group-balanced")),
        *(method_cell("digits5", row, row=f"s2/{row}") for row in ("erm", "class-balanced", "spare", "group-balanced")),
        *(
            method_cell("digits5", row, row=f"s3/{row}", data=_UNEQUAL)
            for row in ("erm", "class-balanced", "spare", "group-balanced")
        ),
        method_cell("digits5", "spare", row="s3/spare on logits", data=_UNEQUAL, options={"output": "logits"}),
        method_cell("digits5", "jtt", row="s3/jtt", data=_UNEQUAL, options={"infer_epoch": 2, "lambda_up": 20}),
        _variant("confidence-only"),
        _variant("merged-minorities"),
        method_cell("digits5", "erm", row="s4/erm", data=_TWO_REDS),
        method_cell("digits5", "spare", row="s4/spare", data=_TWO_REDS),
        method_cell("digits5", "spare", row="s4/spare, tuned", data=_TWO_REDS, options={"tune_until": 6}),
        method_cell("digits", "pde", row="s5/pde"),
        method_cell("digits", "pde", row="s5/pde with the groups of spare", groups="spare"),
    )


def _at(results: Results, cell: str, metric: str = "worst_group") -> float:
    return results.mean(f"{'digits' if cell[1] in '15' else 'digits5'}/{cell}", metric)


def _s1(results: Results) -> Verdict:
    erm, spare, balanced = (_at(results, f"s1/{row}") for row in ("erm", "spare", "group-balanced"))
    holds = erm <= 30 and spare >= 65 and spare >= erm + 45 and abs(spare - balanced) <= 12
    return Verdict(holds, f"worst groups: ERM {erm:.1f}, SPARE {spare:.1f}, group-balanced {balanced:.1f}")


def _s1_inference(results: Results) -> Verdict:
    precision, recall = _at(results, "s1/spare", "precision"), _at(results, "s1/spare", "recall")
    return Verdict(min(precision, recall) >= 0.95, f"precision {precision:.2f}, recall {recall:.2f} (at least 0.95)")


def _s2(results: Results) -> Verdict:
    erm, spare = _at(results, "s2/erm"), _at(results, "s2/spare")
    gain = _at(results, "s2/spare", "average") - _at(results, "s2/erm", "average")
    k = _at(results, "s2/spare", "k_median")
    holds = erm <= 3 and spare >= 20 and gain >= 25 and k >= 4
    return Verdict(holds, f"worst ERM {erm:.1f}, SPARE {spare:.1f}; average gains {gain:.1f}; median k {k:.1f}")


def _keeps_minorities_apart(results: Results) -> Verdict:
    full, alone = _at(results, "s3/spare", "k_median"), _at(results, "s3/confidence-only", "k_median")
    return Verdict(full >= 4 and alone < full, f"median number of clusters {full:.1f}, by confidence alone {alone:.1f}")


def _beats_merged(results: Results) -> Verdict:
    spare, merged = _at(results, "s3/spare"), _at(results, "s3/merged-minorities")
    return Verdict(spare >= merged, f"worst groups: SPARE {spare:.1f}, true minorities merged {merged:.1f}")


def _softmax_beats_logits(results: Results) -> Verdict:
    softmax, logits = _at(results, "s3/spare"), _at(results, "s3/spare on logits")
    return Verdict(softmax >= logits + 5, f"worst groups: softmax {softmax:.1f}, logits {logits:.1f} (5 apart)")


def _class_balance(results: Results) -> Verdict:
    gaps = [_at(results, f"{s}/class-balanced") - _at(results, f"{s}/erm") for s in ("s1", "s2", "s3")]
    below = [_at(results, f"{s}/spare") - _at(results, f"{s}/class-balanced") for s in ("s1", "s2", "s3")]
    said = ", ".join(f"{gap:+.1f}" for gap in gaps), ", ".join(f"{gap:.1f}" for gap in below)
    return Verdict(max(map(abs, gaps)) <= 25 and min(below) >= 15, f"minus ERM {said[0]}; below SPARE by {said[1]}")


def _tuned(results: Results) -> Verdict:
    """A split majority shows as a precision of a few percent."""
    precision, recall = (_at(results, "s4/spare, tuned", metric) for metric in ("precision", "recall"))
    plain = _at(results, "s4/spare", "precision")
    holds = precision >= 0.9 and recall >= 0.9
    return Verdict(holds, f"precision {precision:.2f}, recall {recall:.2f}; after epoch 2 precision {plain:.2f}")


def _pipeline(results: Results) -> Verdict:
    true, inferred = _at(results, "s5/pde"), _at(results, "s5/pde with the groups of spare")
    return Verdict(true - inferred <= 10, f"worst groups: true groups {true:.1f}, SPARE's {inferred:.1f} (within 10)")


DIGITS = Experiment(
    name="spare/digits",
    title="SPARE's argument on small coloured digits",
    source="the CPU protocol S1 to S5, made for the claims of SPARE's chapter",
    cells=_cells,
    golden=(
        golden_cell("confidence-only", "digits5", "spare", more={"variant": "confidence-only"}, kind="spare-variant"),
        golden_cell(
            "pde-with-groups-of-spare",
            "digits",
            "pde",
            groups="spare",
            options={
                "pde": {"first_expansion": 1, "every": 1},
                "spare": {"tune_until": 2, "k_max": 2, "output": "logits"},
            },
            training={"epochs": 2},
        ),
    ),
    columns={
        "worst_group": "worst group, %",
        "average": "average, %",
        "precision": "precision",
        "recall": "recall",
        "k_median": "clusters",
    },
    claims=(
        Claim("S1: SPARE repairs what plain training ignores, about as well as true groups do", _s1),
        Claim("S1: one epoch is enough to tell minorities from majorities", _s1_inference),
        Claim("S2: with five classes the minorities are found and helped", _s2),
        Claim("S3: the whole softmax keeps minorities apart, confidence alone does not", _keeps_minorities_apart),
        Claim("S3: keeping minorities apart beats merging them, even the true ones", _beats_merged),
        Claim("S3: clustering softmax outputs beats clustering logits", _softmax_beats_logits),
        Claim("class balancing stays near plain training and far below SPARE", _class_balance),
        Claim("S4: tuning by validation groups finds an epoch that splits no majority", _tuned),
        Claim("S5: SPARE's clusters serve PDE nearly as well as true groups", _pipeline),
    ),
    scales=("cpu",),
)

EXPERIMENTS = (DIGITS,)
