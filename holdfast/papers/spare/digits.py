"""SPARE on the bundled coloured digits: what its chapter argues, on data of seconds (the CPU protocol S1 to S5).

S1 has two classes and two colours; S2 five classes and colours; S3 minorities of unequal size, where keeping them apart
must pay; S4 the document's palette with two reds, where some early epochs split a majority and the epoch must be chosen
well; S5 gives SPARE's clusters to PDE. The document prints nothing about these data: there is nothing to compare with,
only the claims.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.papers.common.bounds import at_least, at_most, every_seed_reaches, near
from holdfast.papers.common.columns import golden_cell, method_cell
from holdfast.papers.engine.evidence import beats, differences, every
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


def _where(cell: str, metric: str = "worst_group") -> tuple[str, str]:
    return f"{'digits' if cell[1] in '15' else 'digits5'}/{cell}", metric


def _at(results: Results, cell: str, metric: str = "worst_group") -> tuple[float, ...]:
    return results.values(*_where(cell, metric))


def _gain(results: Results, better: str, other: str, metric: str = "worst_group") -> list[float]:
    return differences(results, _where(better, metric), _where(other, metric))


def _s1(results: Results) -> Verdict:
    return every(
        [
            at_most(_at(results, "s1/erm"), 30, "ERM's worst group"),
            at_least(_at(results, "s1/spare"), 65, "SPARE's"),
            at_least(_gain(results, "s1/spare", "s1/erm"), 45, "apart by"),
            near(_gain(results, "s1/spare", "s1/group-balanced"), 0, 12, "SPARE less group balancing"),
        ]
    )


def _s1_inference(results: Results) -> Verdict:
    metrics = ("precision", "recall")
    return every([every_seed_reaches(_at(results, "s1/spare", metric), 0.95, metric) for metric in metrics])


def _s2(results: Results) -> Verdict:
    return every(
        [
            at_most(_at(results, "s2/erm"), 3, "ERM's worst group"),
            at_least(_at(results, "s2/spare"), 20, "SPARE's"),
            at_least(_gain(results, "s2/spare", "s2/erm", "average"), 25, "the average gains"),
            every_seed_reaches(_at(results, "s2/spare", "k_median"), 4, "median number of clusters", 0),
        ]
    )


def _keeps_minorities_apart(results: Results) -> Verdict:
    fewer = _gain(results, "s3/spare", "s3/confidence-only", "k_median")
    return every(
        [
            every_seed_reaches(_at(results, "s3/spare", "k_median"), 4, "median number of clusters", 0),
            every_seed_reaches(fewer, 1, "more than by confidence alone by", 0),
        ]
    )


def _beats_merged(results: Results) -> Verdict:
    return beats(results, _where("s3/spare"), _where("s3/merged-minorities"), digits=1)


def _softmax_beats_logits(results: Results) -> Verdict:
    return beats(results, _where("s3/spare"), _where("s3/spare on logits"), 5.0, digits=1)


def _class_balance(results: Results) -> Verdict:
    verdicts = []
    for part in ("s1", "s2", "s3"):
        gap = _gain(results, f"{part}/class-balanced", f"{part}/erm")
        verdicts.append(near(gap, 0, 25, f"{part}: class balancing less ERM"))
        verdicts.append(at_least(_gain(results, f"{part}/spare", f"{part}/class-balanced"), 15, "below SPARE by"))
    return every(verdicts)


def _tuned(results: Results) -> Verdict:
    """A split majority shows as a precision of a few percent; by seed, since an epoch splits one or does not."""
    metrics = ("precision", "recall")
    tuned = [every_seed_reaches(_at(results, "s4/spare, tuned", metric), 0.9, metric) for metric in metrics]
    plain = ", ".join(f"{value:.2f}" for value in _at(results, "s4/spare", "precision"))
    verdict = every(tuned)
    return replace(verdict, evidence=f"{verdict.evidence}; after epoch 2 precision {plain}")


def _pipeline(results: Results) -> Verdict:
    gap = _gain(results, "s5/pde with the groups of spare", "s5/pde")
    return at_least(gap, -10, "worst group with SPARE's groups less with true ones")


DIGITS = Experiment(
    name="spare/digits",
    title="SPARE's argument on small coloured digits",
    source="the CPU protocol S1 to S5, made for the claims of SPARE's chapter",
    cells=_cells,
    golden=(
        golden_cell("confidence-only", "digits", "spare", more={"variant": "confidence-only"}, kind="spare-variant"),
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
        Claim("S1: SPARE repairs what plain training ignores, about as well as true groups do", _s1, ours=True),
        Claim("S1: one epoch is enough to tell minorities from majorities", _s1_inference, ours=True),
        Claim("S2: with five classes the minorities are found and helped", _s2, ours=True),
        Claim(
            "S3: the whole softmax keeps minorities apart, confidence alone does not",
            _keeps_minorities_apart,
            ours=True,
        ),
        Claim("S3: keeping minorities apart beats merging them, even the true ones", _beats_merged, ours=True),
        Claim("S3: clustering softmax outputs beats clustering logits", _softmax_beats_logits, ours=True),
        Claim("class balancing stays near plain training and far below SPARE", _class_balance, ours=True),
        Claim(
            "S4: tuning by validation groups finds an epoch that splits no majority",
            _tuned,
            ours=True,
            why="a real failure of the tuning: under the first seed the clusters of the training set are right from "
            "epoch 4 on, but the groups of the validation set prefer epoch 2; why they do is unknown",
        ),
        Claim("S5: SPARE's clusters serve PDE nearly as well as true groups", _pipeline, ours=True),
    ),
    scales=("cpu",),
)

EXPERIMENTS = (DIGITS,)
