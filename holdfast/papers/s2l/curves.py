"""S2L's curves and proxies (Figures 3.8 to 3.10 and 3.13) and its subsets epoch by epoch (3.12), in the world of facts.

The document asks each by the accuracy of a large target. Here all but the last are asked by what a tenth covers, which
decides how much a target can know and needs none, so several seeds can be afforded.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.papers.engine.evidence import beats, every
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import Results
from holdfast.papers.s2l import golden
from holdfast.papers.s2l.tables import world_sizes

_CURVES = "facts/curves"
#: Numbers of points at equal strides, the document's.
_POINTS = (4, 6, 8, 12)
_PHASES = ("early", "middle", "late")
#: Rare facts, of 96, by which a choice may be behind and still count as equally good.
_MARGIN = -3.0


def _curve_cells(scale: Scale) -> tuple[Cell, ...]:
    settings = {**world_sizes(scale), "k": 16, "start": "k-means++", "points": [*_POINTS], "dense": 4}
    return (Cell(_CURVES, "s2l-curves", {**settings, "part": 0.38}),)


def _rare(results: Results, one: str, other: str, margin: float = 0.0) -> Verdict:
    what = f"rare facts, {one} minus {other}"
    upper, lower = ((_CURVES, f"{row}/rare facts") for row in (one, other))
    return beats(results, upper, lower, margin, digits=1, what=what)


def _as_good(*rows: str) -> Callable[[Results], Verdict]:
    """No row is behind the usual proxy with twelve points by more than three rare facts."""
    return lambda results: every([_rare(results, row, "12 points", _MARGIN) for row in rows])


CURVES = Experiment(
    name="s2l/curves",
    title="what a tenth covers, by the points of the curves and by the proxy",
    source="S2L, Figures 3.8, 3.9, 3.10 and 3.13, in a small world",
    cells=_curve_cells,
    golden=(golden.CURVES,),
    claims=(
        Claim(
            "Twelve points cover more rare facts than four",
            lambda found: _rare(found, "12 points", "4 points"),
            ("cpu",),
        ),
        Claim("Four points cost at most three rare facts of 96", _as_good("4 points"), ("cpu",), ours=True),
        Claim(
            "Four neighbouring points, of any part of the training, cover more rare facts than four spread out",
            lambda found: every([_rare(found, f"{phase} points", "4 points") for phase in _PHASES]),
            ("cpu",),
        ),
        Claim(
            "A proxy trained on two fifths costs at most three rare facts", _as_good("on a part"), ("cpu",), ours=True
        ),
        Claim(
            "Proxies of other sizes and of another architecture cost at most three rare facts",
            _as_good("smaller", "larger", "gpt-2"),
            ("cpu",),
            ours=True,
        ),
    ),
    columns={"random/rare facts": "random"}
    | {f"{points} points/rare facts": f"{points} points" for points in _POINTS}
    | {f"{phase} points/rare facts": f"4 {phase}" for phase in _PHASES}
    | {f"{row}/rare facts": row for row in ("on a part", "smaller", "larger", "gpt-2")},
    notes={"cpu": "Rare facts, of 96. Centres of k-means are far apart, as by default; sources are not looked at."},
    seeds=(0, 1, 2, 3, 4),
    scales=("smoke", "cpu"),
    digits=1,
)

_EPOCHS = (3, 6, 9)
_SHARES = {"10%": 0.1, "50%": 0.5}


def _epoch_cells(scale: Scale) -> tuple[Cell, ...]:
    sizes = world_sizes(scale)
    own = {"examples": sizes["examples"], "steps": sizes["steps"], "epochs": [*_EPOCHS]}
    cells = [Cell("all/full", "s2l-epochs", {**own, "method": "full", "budget": sizes["examples"]})]
    cells += [
        Cell(f"{name}/{row}", "s2l-epochs", {**own, "method": row, "budget": round(share * sizes["examples"])})
        for name, share in _SHARES.items()
        for row in ("random", "s2l, far start")
    ]
    return tuple(cells)


def _by_epoch(budget: str, other: str) -> Callable[[Results], Verdict]:
    def check(results: Results) -> Verdict:
        return every(
            [
                beats(
                    results,
                    (f"{budget}/s2l, far start", f"macro {epochs}"),
                    (other, f"macro {epochs}"),
                    digits=1,
                    what=f"macro after {epochs} epochs, S2L at {budget} minus {other}",
                )
                for epochs in _EPOCHS
            ]
        )

    return check


_FEWER_STEPS = "At equal epochs a part has fewer steps, and our target knows nothing before; the document's know much."

EPOCHS = Experiment(
    name="s2l/epochs",
    title="accuracy after as many epochs on a part as on everything",
    source="S2L, Figure 3.12, in a small world",
    cells=_epoch_cells,
    golden=(golden.EPOCHS,),
    claims=(
        Claim(
            "After as many epochs a tenth by S2L is as good as everything",
            _by_epoch("10%", "all/full"),
            ("cpu",),
            why=_FEWER_STEPS,
        ),
        Claim(
            "After as many epochs half by S2L is as good as everything",
            _by_epoch("50%", "all/full"),
            ("cpu",),
            why=_FEWER_STEPS,
        ),
        Claim(
            "After as many epochs half by S2L is better than a random half",
            _by_epoch("50%", "50%/random"),
            ("cpu",),
            ours=True,
        ),
    ),
    columns={f"macro {epochs}": f"after {epochs} epochs" for epochs in _EPOCHS},
    notes={"cpu": "Accuracy over topics; every row has an epoch's steps of its own subset."},
    seeds=(0, 1, 2, 3, 4),
    scales=("smoke", "cpu"),
    digits=1,
)

EXPERIMENTS = (CURVES, EPOCHS)
