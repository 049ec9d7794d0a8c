"""Golden cells of CREST: a dozen steps on the bundled digits, with every method and part in its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.papers.engine.experiment import Cell

#: 17 steps of mini-batches of 32 on 1,100 digits.
_SHORT: dict[str, Any] = {
    "data": {"name": "digits"},
    "model": "mlp",
    "full_epochs": 5,
    "budget": 0.1,
    "batch_size": 32,
    "learning_rate": 0.05,
    "weight_decay": 1e-4,
    "augment": False,
}
_TINY_NET = {**_SHORT, "model": "pocket-cnn", "augment": True}
_BATCH_NORM = {**_SHORT, "model": "pocket-cnn-batchnorm", "augment": True}


def _together(name: str, **cells: Mapping[str, Any]) -> Cell:
    """Trainings under a budget, one after the other."""
    named = {row: {"kind": "crest-train", "settings": dict(settings)} for row, settings in cells.items()}
    return Cell(f"golden/{name}", "golden-together", {"cells": named})


def _crest(**options: Any) -> dict[str, Any]:
    return {"method": "crest", "options": {"subset": 96, **options}}


ROWS = _together(
    "rows",
    cut={**_TINY_NET, "method": "erm", "cut": True},
    craig={**_SHORT, "method": "craig", "options": {"start": 1}},
    gradmatch={**_SHORT, "method": "gradmatch", "options": {"start": 1}},
    glister={**_SHORT, "method": "glister", "options": {"start": 1, "step": 0.05 / 32}},
    crest={**_TINY_NET, **_crest(interval=2)},
)
#: Few and small steps: so deep a network with batch norm makes much of rounding.
_DEEP = {**_SHORT, "model": "resnet20", "budget": 0.02, "learning_rate": 1e-3, "augment": True}
RESNET = _together("resnet", random={**_DEEP, "method": "erm"}, crest={**_DEEP, **_crest(coresets=2, modelled=1)})
PARTS = _together(
    "parts",
    first_order={**_SHORT, **_crest(order=1, interval=2)},
    no_smoothing={**_SHORT, **_crest(smooth=False, tolerance=0.01)},
    reshuffled={**_SHORT, **_crest(reshuffle=True, draws=2, modelled=1)},
    every_batch={**_SHORT, **_crest(every_batch=True)},
)
CIRCUMSTANCES = _together(
    "circumstances",
    weighted={**_BATCH_NORM, **_crest(statistics="weighted", interval=4)},
    frozen={**_BATCH_NORM, **_crest(statistics="frozen", warmup=1, interval=4)},
    cached_view={**_TINY_NET, "copies": 2, **_crest(cached_view=True, by_class=False)},
)
HALVES = _together(
    "halves",
    halves={
        **_SHORT,
        "pool": 2,
        "method": "erm",
        "draws_per_step": 64,
        "then": "crest",
        "then_options": {"every_batch": True},
    },
    stratified={**_SHORT, "method": "crest", "options": {"subset": 32, "every_batch": True, "drop_learned": False}},
)
DROPPING = Cell(
    "golden/dropping",
    "crest-train",
    {**_SHORT, "learning_rate": 0.2, **_crest(window=1, sightings=1, learned_loss=1.5, every_batch=True)},
)
DIFFICULTY = Cell(
    "golden/difficulty",
    "crest-difficulty",
    {**_SHORT, "full_epochs": 2, "methods": {"random": None, "crest": {"subset": 96, "window": 1, "sightings": 1}}},
)
GRADIENTS = Cell("golden/gradients", "crest-gradients", {**_SHORT, "points": [4, 8], "subset": 64, "draws": 5})
MODEL = Cell(
    "golden/model",
    "crest-model",
    {**_TINY_NET, "subset": 96, "coresets": 2, "start": 3, "regions": 2, "after": [1, 4]},
)
#: What is free, CREST by default and with second uses, on beds that are made of others.
LAZY = _together(
    "lazy",
    stratified={**_SHORT, "method": "stratified", "imbalance": 10},
    lazy={**_TINY_NET, **_crest(algorithm="lazy", subset=64), "redundant": {"distinct": 0.2, "sources": 20}},
    change={**_SHORT, **_crest(algorithm="lazy", subset=64, ahead=2, uses=3)},
    curvature={**_SHORT, **_crest(algorithm="lazy", subset=64, ahead=2, uses=3, validity="curvature")},
    last_layer={**_BATCH_NORM, **_crest(algorithm="lazy", subset=64, proxy="last_layer", until_rate=0)},
)
