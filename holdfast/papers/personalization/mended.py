"""Tables 2 and 3 once more, with the rule that the library follows: coefficients with which nobody loses on the way.

The document's rule (Appendix D.2) is that validation accuracy must not fall during personalization. Tables 2 and 3 here
looked at its end only and at one coefficient after the other, which admits (10, 10) under every seed. The default of
``--personalize transferability`` looks at every checkpoint and tries both coefficients together. Each shared model is
personalized three times, and what is shown for a seed of the federation is the mean of these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.papers.engine.experiment import Cell, Claim, Grid, Scale
from holdfast.papers.personalization.tables import (
    GOLDEN_METHODS,
    METHODS,
    ROWS,
    TABLE2,
    TABLE3,
    golden_setting,
    small_setting,
)

_RULE = {"rule": "throughout", "joint": True}
_METHODS = {
    **{row: METHODS[row] for row in ("ft", "ditto", "ditto-squared", "uw", "jtt", "ours-1-1")},
    "ours": {"name": "transferability", "options": _RULE},
}
_ROWS = {
    **{row: ROWS[row] for row in ("global", "ft", "ditto", "ditto-squared", "uw", "jtt")},
    "ours": "ours, coefficients with which accuracy never falls",
    "ours-1-1": ROWS["ours-1-1"],
}
_REPEATS = 3


def _methods(epochs: int) -> dict[str, Any]:
    length = {"epochs": epochs, "checkpoints": epochs}
    return {row: {**method, "options": {**method.get("options", {}), **length}} for row, method in _METHODS.items()}


def _cells(scale: Scale) -> tuple[Cell, ...]:
    smoke = scale == "smoke"
    more = {"methods": _methods(1 if smoke else 5), "repeats": 1 if smoke else _REPEATS}
    return (Cell("mnist-small/all", "personalization", {**small_setting(scale), **more}),)


_GOLDEN = Cell(
    "golden/mended",
    "personalization",
    golden_setting(model="mlp", methods={row: _methods(2)[row] for row in ("ft", "ours")}, repeats=2),
)
_SOURCE = "Personalized FL with spurious features, Table {}, on MNIST, small, which is not in the document"


#: Why a claim fails here, by its first words.
_WHY = {
    "the worst environment is best": "UW, which is given counterexamples that no other row has, is 0.019 above; every "
    "other printed row is below by its mean",
    "the shared model is hardly biased": "0.031 under one seed, where 0.03 is the limit",
    "ours keeps the benefit": "with (10, 10), which the rule admits in every personalization of one seed, models "
    "hardly move, and with coefficients near 0 disparity comes back; (1, 1) does better than both",
}
_NOTE = (
    "Of nine searches the rule admits (10, 10) in three, all of one seed, weaker pairs in the others, and in one no "
    "pair at all: that is said, and the weakest is taken. On average over both environments ours is 0.039 above the "
    "shared model at the selected checkpoint and 0.040 at the end of training, where Table 2's rule, which looks at "
    "the end alone, gained 0.027 and 0.013; (1, 1) gains 0.052, and the document prints 0.062."
)


def _claims(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """Those of the table, with reasons of their own: others' are another method's."""
    whys = ((claim, [why for name, why in _WHY.items() if claim.name.startswith(name)]) for claim in claims)
    return tuple(replace(claim, scales=("cpu",), why="".join(why)) for claim, why in whys if "budget" not in claim.name)


def _grid(grid: Grid | None) -> Grid:
    assert grid is not None
    return replace(grid, rows=_ROWS, columns={"mnist-small": "MNIST, small"})


MENDED2 = replace(
    TABLE2,
    name="personalization/table2-mended",
    title="Table 2 with coefficients by which accuracy never falls, three personalizations of each shared model",
    source=_SOURCE.format(2),
    cells=_cells,
    golden=(GOLDEN_METHODS, _GOLDEN),
    printed={},
    grid=_grid(TABLE2.grid),
    claims=_claims(TABLE2.claims),
    notes={"cpu": _NOTE},
    scales=("smoke", "cpu"),
)
MENDED3 = replace(
    TABLE3,
    name="personalization/table3-mended",
    title="Table 3 with coefficients by which accuracy never falls, three personalizations of each shared model",
    source=_SOURCE.format(3),
    cells=_cells,
    golden=(GOLDEN_METHODS, _GOLDEN),
    printed={},
    grid=_grid(TABLE3.grid),
    claims=_claims(TABLE3.claims),
    notes={"cpu": _NOTE},
    scales=("smoke", "cpu"),
)

EXPERIMENTS = (MENDED2, MENDED3)
