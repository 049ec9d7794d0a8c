"""Ditto's Figure 8: fine-tuning from a shared model that was stopped early, under model replacement by a fifth.

One federation gives every start: the shared model as it was after so many rounds is tuned on each client, and Ditto is
trained alongside. Figure 9 says that clients can't see which round to stop after; here the best is taken by test data,
in favour of fine-tuning.
"""

from __future__ import annotations

from functools import partial

from holdfast.papers.ditto import claims, golden
from holdfast.papers.ditto.columns import KIND, TableSetting
from holdfast.papers.ditto.tables import FASHION_CPU, SAYS, SETTINGS, heading
from holdfast.papers.engine.evidence import differences
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Grid, Scale, Verdict
from holdfast.papers.engine.results import Results

_COLUMN = "a3-20"
_CELL = f"{_COLUMN}/early"
#: Rounds to stop after, the last of them the end.
STOPS: dict[Scale, tuple[int, ...]] = {"cpu": (5, 20, 60, 120, 240), "paper": (50, 200, 500, 1500, 5000)}
_PLACES = ("first", "second", "third", "fourth", "last")


def _cells(scale: Scale) -> tuple[Cell, ...]:
    setting: TableSetting = FASHION_CPU if scale == "cpu" else SETTINGS["fashion-mnist"]
    epochs = setting.recipe.finetune_epochs if setting.epochs is None else setting.epochs
    tuned = [{"name": "finetuning", "epochs": epochs, "after": stop} for stop in STOPS[scale]]
    dittos = [{"name": "ditto", "lambda_": float(row.removeprefix("ditto-"))} for row in setting.ditto_rows]
    rows = {place: [f"finetuning-after-{stop}"] for place, stop in zip(_PLACES, STOPS[scale], strict=True)}
    settings = {
        **setting.base(_COLUMN),
        "personalize": [*tuned, *dittos],
        "rows": {"global": ["global"], **rows, "ditto-best": list(setting.ditto_rows)},
    }
    return (Cell(_CELL, KIND, settings),)


def _where(row: str) -> tuple[str, str]:
    return _CELL, f"{row}/pooled"


def _best_stop(results: Results) -> str:
    return max(_PLACES, key=lambda place: results.mean(*_where(place)))


def _near_joint(results: Results, margin: float) -> Verdict:
    best = _best_stop(results)
    pairs = differences(results, _where(best), _where("ditto-best"))
    return claims.exceed(pairs, -margin, what=f"fine-tuning from the {best} stop minus Ditto")


def _earlier_is_better(results: Results) -> Verdict:
    best = max(_PLACES[:-1], key=lambda place: results.mean(*_where(place)))
    pairs = differences(results, _where(best), _where("last"))
    return claims.exceed(pairs, what=f"fine-tuning from the {best} stop minus from the final model")


FIGURE_8 = Experiment(
    name="ditto/figure8",
    title="Fine-tuning from an early-stopped shared model, under model replacement by a fifth, on Fashion-MNIST",
    source="Ditto, Figure 8 (ICML 2021)",
    cells=_cells,
    grid=Grid(
        {
            "global": "global",
            **{place: f"fine-tuning from the {place} stop" for place in _PLACES},
            "ditto-best": "Ditto, joint",
        },
        {_COLUMN: heading(_COLUMN)},
        "pooled",
        "std",
        SAYS,
    ),
    golden=(golden.EARLY,),
    claims=(
        Claim("fine-tuning from a well-chosen early stop is better than from the final model", _earlier_is_better),
        Claim("from a well-chosen stop it comes close to Ditto, within 0.05", partial(_near_joint, margin=0.05)),
    ),
    notes={
        scale: f"The shared model is stopped after {', '.join(map(str, stops))} rounds."
        for scale, stops in STOPS.items()
    },
    scales=("cpu", "paper"),
    digits=3,
)

EXPERIMENTS = (FIGURE_8,)
