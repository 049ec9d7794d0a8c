"""EPIC beyond its table: small networks from scratch, and what somebody sees of its rounds who knows the poisons.

Networks this small are hardly ever fooled from scratch, so ``epic/scratch`` looks at the probability of the adversarial
class, in powers of ten, beside that of the same victim on clean data. ``epic/figure4.3`` follows gradients from round
to round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import CellResult, Metric, Results, beside
from holdfast.papers.epic import DEFEND, ROWS, SHAPES, SMALL, TINY, beside_undefended, epic_row, trials

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


def _mean(results: Results, row: str, metric: str) -> float:
    return results.mean(f"gradient matching/{row}", metric)


def _brewed(results: Results) -> Verdict:
    """Looked at through the victim's augmentation, by at least 40 %."""
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


def _moved(results: Results) -> Verdict:
    """Against the same victim on clean data, in every trial."""
    gains = results.values("gradient matching/none", "gain")
    power = _mean(results, "none", "power")
    return Verdict(
        min(gains) > 0,
        f"its probability grows by {min(gains):.1f} to {max(gains):.1f} powers of ten, to {power:.1f} on average",
    )


def _moved_back(results: Results) -> Verdict:
    """EPIC takes at least half of what the poisons gained."""
    plain, left = _mean(results, "none", "gain"), {f"epic-{f}": _mean(results, f"epic-{f}", "gain") for f in _LATE}
    said = ", ".join(f"{row} {gain:.1f}" for row, gain in left.items())
    return Verdict(max(left.values()) <= plain / 2, f"powers of ten gained undefended {plain:.1f}; {said}")


def _clean_cost(results: Results) -> Verdict:
    """Table 4.2: 1.6 to 5.5 points at 40 epochs; here 8 at most, falling with the fraction."""
    plain = _mean(results, "none", "clean accuracy")
    costs = {f: plain - _mean(results, f"epic-{f}", "clean accuracy") for f in _LATE}
    said = ", ".join(f"{cost:.1f} at {fraction}" for fraction, cost in costs.items())
    return Verdict(max(costs.values()) <= 8, f"points lost on clean data: {said}")


SCRATCH = Experiment(
    name="epic/scratch",
    title="gradient matching on a small network that is trained from scratch",
    source="EPIC, Tables 4.1 and 4.2, on a small bed",
    cells=_scratch_cells,
    golden=(trials("scratch", _TINY_SCRATCH, {"attack": "gradient matching", "controls": True, **_ROUND}),),
    claims=(
        Claim("Brewing matches the gradients", _brewed, ("cpu",)),
        Claim("Poisons move the target towards the adversarial class", _moved, ("cpu",)),
        Claim("EPIC takes half of that away at least", _moved_back, ("cpu",)),
        Claim("On clean data EPIC costs 8 points at most", _clean_cost, ("cpu",)),
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


def _kept_are_nearer(results: Results) -> Verdict:
    """Figure 4.3c: what is kept has the gradient of all, nearer than as many at random."""
    found = {
        cell.name: (cell.metrics["kept error"].ours.mean, cell.metrics["random error"].ours.mean)
        for cell in results.cells
    }
    said = "; ".join(f"{name}: kept {kept:.3f}, random {random:.3f}" for name, (kept, random) in found.items())
    return Verdict(all(kept < random for kept, random in found.values()), said)


def _poisons_go_first(results: Results) -> Verdict:
    """Figure 4.3b."""
    found = {
        cell.name: (cell.metrics["poisons dropped"].ours.mean, cell.metrics["clean dropped"].ours.mean)
        for cell in results.cells
    }
    said = "; ".join(f"{name}: poisons {poisons:.0%}, clean {clean:.0%}" for name, (poisons, clean) in found.items())
    return Verdict(all(poisons > clean for poisons, clean in found.values()), said)


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
        Claim("Poisons are dropped sooner than others", _poisons_go_first, ("cpu",)),
        Claim("What is kept has the gradient of all, nearer than as many at random", _kept_are_nearer, ("cpu",)),
    ),
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
