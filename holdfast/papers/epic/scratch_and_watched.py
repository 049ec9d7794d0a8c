"""EPIC beyond its table: small networks from scratch, and what somebody sees of its rounds who knows the poisons.

Networks this small are hardly ever fooled from scratch, so ``epic/scratch`` looks at the probability of the adversarial
class, in powers of ten, beside that of the same victim on clean data. ``epic/figure4.3`` follows gradients from round
to round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from holdfast.papers.engine.evidence import above, beats, every
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import CellResult, Metric, Results, beside
from holdfast.papers.epic.tables import DEFEND, ROWS, SHAPES, SMALL, TINY, beside_undefended, epic_row, trials

_LEAST = 1e-30  # a probability that float32 may round to 0
_WATCH = "epic-watch"
_SCRATCH = {"name": "shapes-scratch", "examples": 2000, "poisons": 60}
_SMALL_SCRATCH = {"name": "shapes-scratch", "examples": 300, "poisons": 6, "epochs": 6, "steps": 10}

_TINY_SCRATCH = {"name": "shapes-scratch", "examples": 100, "poisons": 4, "tests": 60, "epochs": 3, "steps": 3}
_TINY_SCRATCH |= {"rate": 0.001}
_ROUND: Mapping[str, Any] = {"defence": "epic", "options": {"fraction": 0.3, "start": 1, "every": 1}}

#: From scratch: the warm-ups of 40 epochs, for 24.
_LATE = {0.1: 6, 0.2: 12, 0.3: 18}


def _scratch_epic(fraction: float, scale: Scale) -> dict[str, Any]:
    start, every = (_LATE[fraction], 2) if scale == "cpu" else (2, 1)
    return {"defence": "epic", "options": {"fraction": fraction, "start": start, "every": every}}


def _scratch_cells(scale: Scale) -> tuple[Cell, ...]:
    ground = _SCRATCH if scale == "cpu" else _SMALL_SCRATCH
    settings = {"bed": ground, "attack": "gradient matching", "controls": True}
    rows = {"none": ROWS["none"], **{f"epic-{fraction}": _scratch_epic(fraction, scale) for fraction in _LATE}}
    return tuple(Cell(f"gradient matching/{row}", DEFEND, {**settings, **own}) for row, own in rows.items())


def _brewed(results: Results) -> Verdict:
    """Looked at through the victim's augmentation, by at least 40 % in every trial."""
    least = min(results.values("gradient matching/none", "brewed"))
    return Verdict(least >= 0.4, f"the objective falls by {least:.0%} at least")


def with_powers(cells: tuple[CellResult, ...]) -> tuple[CellResult, ...]:
    """Adds powers of ten: the probability's, the clean victim's, and how many of them the poisons gained.

    Probabilities of well trained networks differ by factors, so their means are those of the largest alone.
    """

    def compare(own: Mapping[str, Metric], _: Mapping[str, Metric]) -> dict[str, list[float]]:
        power, clean = (
            [math.log10(max(value, _LEAST)) for value in own[name].ours.values]
            for name in ("confidence", "clean confidence")
        )
        return {"power": power, "clean power": clean, "gain": [a - b for a, b in zip(power, clean, strict=True)]}

    return beside(beside_undefended(cells), "none", compare)


def _gains(results: Results, row: str) -> dict[int, float]:
    """How many powers of ten the poisons gained, by seed."""
    return results.by_seed(f"gradient matching/{row}", "gain")


def _moved(results: Results) -> Verdict:
    """Against the same victim on clean data."""
    return above(list(_gains(results, "none").values()), digits=1, what="powers of ten gained")


def _moved_back(share: float, results: Results) -> Verdict:
    """Whether EPIC takes more than a share of what the poisons gained, in each of its rows."""
    plain = _gains(results, "none")
    return every(
        [
            above(
                [(1 - share) * plain[seed] - left for seed, left in _gains(results, f"epic-{fraction}").items()],
                digits=1,
                what=f"{f'{1 - share:g} times ' if share else ''}undefended minus epic-{fraction}, powers of ten",
            )
            for fraction in _LATE
        ]
    )


def _clean_cost(results: Results) -> Verdict:
    """Table 4.2: 1.6 to 5.5 points at 40 epochs; here 8 at most."""
    metric, plain = "clean accuracy", "gradient matching/none"
    return every(
        [beats(results, (f"gradient matching/epic-{f}", metric), (plain, metric), -8, digits=1) for f in _LATE]
    )


_FROM_SCRATCH = (
    "our bed: from scratch a network this small is never fooled, and what poisons gain in a probability of one in "
    "millions is not what EPIC is for."
)

SCRATCH = Experiment(
    name="epic/scratch",
    title="gradient matching on a small network that is trained from scratch",
    source="EPIC, Tables 4.1 and 4.2, on a small bed",
    cells=_scratch_cells,
    golden=(trials("scratch", _TINY_SCRATCH, {"attack": "gradient matching", "controls": True, **_ROUND}),),
    claims=(
        Claim("Brewing lowers the objective by 40 % in every trial", _brewed, ("cpu",), ours=True),
        Claim("Poisons move the target towards the adversarial class", _moved, ("cpu",)),
        Claim("EPIC takes some of that away", partial(_moved_back, 0.0), ("cpu",), why=_FROM_SCRATCH),
        Claim(
            "EPIC takes half of that away at least",
            partial(_moved_back, 0.5),
            ("cpu",),
            ours=True,
            why=_FROM_SCRATCH,
        ),
        Claim("On clean data EPIC costs 8 points at most", _clean_cost, ("cpu",), ours=True),
    ),
    columns={
        "success": "success %",
        "power": "log10 probability",
        "clean power": "without poisons",
        "accuracy": "accuracy",
        "clean accuracy": "on clean data",
        "dropped": "dropped",
        "poisons dropped": "poisons dropped",
        "time": "time",
    },
    seeds=tuple(range(6)),
    scales=("smoke", "cpu"),
    digits=2,
    derive=with_powers,
)


def _watched_cells(scale: Scale) -> tuple[Cell, ...]:
    grounds = (SHAPES, _SCRATCH) if scale == "cpu" else (SMALL, _SMALL_SCRATCH)
    rows: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = []
    for fraction in (0.1, 0.3):
        rows.append(("transfer", grounds[0], epic_row(fraction)["options"]))
        early = {"start": 4, "every": 2} if scale == "cpu" else {"start": 2, "every": 1}
        rows.append(("scratch", grounds[1], {"fraction": fraction, **early}))
    return tuple(
        Cell(f"{column}/epic-{options['fraction']}", _WATCH, {"bed": ground, "options": options})
        for column, ground, options in rows
    )


def _above_in_every_cell(better: str, other: str, results: Results) -> Verdict:
    """Whether one metric is above another of the same cell, in every cell."""
    return every(
        [
            beats(results, (name, better), (name, other), what=f"{name}: {better} minus {other}")
            for name in results.names
        ]
    )


FIGURE_4_3 = Experiment(
    name="epic/figure4.3",
    title="what EPIC drops and keeps, seen by somebody who knows the poisons",
    source="EPIC, Figure 4.3, on small beds",
    cells=_watched_cells,
    golden=(
        Cell("golden/watched", _WATCH, {"bed": TINY, "options": _ROUND["options"]}),
        Cell("golden/watched from scratch", _WATCH, {"bed": _TINY_SCRATCH, "options": _ROUND["options"]}),
    ),
    claims=(
        Claim(
            "Poisons come nearer to the target's gradient",
            partial(_above_in_every_cell, "to target, last", "to target, first"),
            ("cpu",),
        ),
        Claim(
            "Poisons move apart from one another",
            partial(_above_in_every_cell, "mutual, first", "mutual, last"),
            ("cpu",),
        ),
        Claim(
            "Poisons are dropped sooner than others",
            partial(_above_in_every_cell, "poisons dropped", "clean dropped"),
            ("cpu",),
        ),
        Claim(
            "What is kept has the gradient of all, nearer than as many at random",
            partial(_above_in_every_cell, "random error", "kept error"),
            ("cpu",),
            why="the scale: well fitted examples have next to no gradient, so what stands alone carries most of what "
            "is left of it; whether that turns at the document's size is unknown.",
        ),
    ),
    notes={
        "cpu": "Cosines are of all poisons that are still there: which of them work differs from seed to seed, and "
        "EPIC has dropped some of those by the last round. The document draws the ones that work."
    },
    columns={
        "kept error": "error of the kept",
        "random error": "of as many",
        "poisons dropped": "poisons dropped",
        "clean dropped": "others dropped",
        "mutual, first": "mutual cosine, first",
        "mutual, last": "last",
        "to target, first": "to the target, first",
        "to target, last": "last round",
    },
    seeds=tuple(range(3)),
    scales=("smoke", "cpu"),
    digits=3,
)


EXPERIMENTS = (SCRATCH, FIGURE_4_3)
