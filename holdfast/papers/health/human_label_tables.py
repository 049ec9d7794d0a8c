"""health/human-labels: do isolated gradients find the labels that people got wrong, and does the second order?

The second order of ``holdfast audit poison`` is cleanlab's default score; on the same probabilities both must agree to
the example. Isolation looks for poisons; the table says what it is worth against mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.papers.engine.evidence import above, every, paired
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import Results

_KIND = "health-human-labels"
#: By row the column of CIFAR-10N: the majority of three people, one of them, and the wrongest of three.
_COLUMNS = {"majority": "aggre_label", "one person": "random_label1", "worst of three": "worse_label"}
_TRAINING: Mapping[str, Any] = {
    "epochs": 12,
    "batch_size": 32,
    "learning_rate": 0.05,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "threads": 1,
}
_SMALL: Mapping[str, Any] = {
    "labels": "drawn",
    "size": 300,
    "model": "softmax",
    "training": {"epochs": 3, "batch_size": 32, "learning_rate": 0.1, "threads": 1},
    "parts": 2,
    "epic": {"start": 1, "every": 1},
}


def _cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "smoke":
        return (Cell("drawn", _KIND, _SMALL),)
    settings = {
        "size": 2_000,
        "model": "pocket-cnn-batchnorm",
        "training": _TRAINING,
        "parts": 5,
        "epic": {"start": 3, "every": 1},
    }
    return tuple(Cell(row, _KIND, {**settings, "labels": column}) for row, column in _COLUMNS.items())


def _equal(results: Results) -> Verdict:
    """Whether the two orders have the same precision in every run, at both depths, and the same likely errors."""
    apart = [
        abs(own - other)
        for row in results.names
        for name in ("own", "own_all")
        for own, other in zip(
            results.values(row, name), results.values(row, name.replace("own", "cleanlab")), strict=True
        )
    ]
    disagree = sum(sum(results.values(row, "disagree")) for row in results.names)
    return Verdict(
        max(apart) == 0 and disagree == 0,
        f"{len(apart)} pairs of precisions differ by at most {max(apart):.3g}; {disagree:.0f} examples are likely "
        "errors by one of the two alone",
    )


def _better_than_isolation(results: Results) -> Verdict:
    return every(
        [
            above(
                paired(results.by_seed(row, "own"), results.by_seed(row, "isolated")),
                what=f"{row}: self-confidence less isolation",
            )
            for row in results.names
        ]
    )


HUMAN_LABELS = Experiment(
    name="health/human-labels",
    title="both orders of audit poison, and cleanlab's, on 2,000 images of CIFAR-10 under human labels",
    source="ours: CIFAR-10N (Wei et al. 2022), which no document uses",
    cells=_cells,
    golden=(Cell("wrong labels of digits", _KIND, _SMALL),),
    claims=(
        Claim("the second order is as precise as cleanlab's, and so are likely errors", _equal, ("cpu",), ours=True),
        Claim(
            "of as many suspects, self-confidence has more wrong labels than isolation",
            _better_than_isolation,
            ("cpu",),
            ours=True,
        ),
    ),
    columns={
        "noise": "wrong labels",
        "suspects": "isolated",
        "isolated": "of these wrong",
        "both": "where both speak",
        "own": "self-confidence",
        "cleanlab": "cleanlab",
        "own_all": "at all errors",
        "cleanlab_all": "cleanlab, at all errors",
        "likely": "likely errors",
        "recall": "recall of these",
    },
    digits=3,
    scales=("smoke", "cpu"),
    notes={
        "cpu": "Shares of wrong labels: of all images, of the isolated ones, of those whose label both witnesses "
        "doubt, of as many at the head of each order, and of as many as there are errors.",
    },
)

EXPERIMENTS = (HUMAN_LABELS,)
