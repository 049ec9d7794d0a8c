"""Golden cells of S2L: a world of a hundred examples, problems of a line, models of a few thousand weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.papers.engine.experiment import Cell

_WORLD = {"examples": 64, "steps": 6, "budget": 16}


def _rows(*methods: str, **more: Any) -> dict[str, Any]:
    return {row: {"kind": "s2l-train", "settings": {**_WORLD, "method": row, **more}} for row in methods}


def _in_small_root(name: str, kind: str, cells: Mapping[str, Mapping[str, Any]]) -> Cell:
    named = {row: {"kind": kind, "settings": dict(settings)} for row, settings in cells.items()}
    return Cell(f"golden/{name}", "s2l-small-root", {"cells": named})


FACTS = Cell(
    "golden/facts",
    "golden-together",
    {
        "cells": {
            **_rows("s2l", "last loss", k=4),
            **_rows("least confidence", "middle perplexity, early", "learnability", "facility locations", "curriculum"),
        }
    },
)
CLUSTERS = Cell("golden/clusters", "s2l-clusters", {"examples": 64, "steps": 6, "k": [4, 8], "draws": 2})
STARTS = Cell("golden/starts", "s2l-starts", {**_WORLD, "k": [4, 8]})
CURVES = Cell(
    "golden/curves",
    "s2l-curves",
    {**_WORLD, "steps": 12, "k": 4, "start": "k-means++", "points": [4, 12], "dense": 4, "part": 0.5},
)
EPOCHS = Cell("golden/epochs", "s2l-epochs", {**_WORLD, "method": "s2l, far start", "epochs": [1, 3]})
COVERAGE = Cell("golden/coverage", "s2l-coverage", _WORLD)

_PROBLEMS: dict[str, Any] = {
    "proxy": {"layers": 1, "width": 16},
    "target": {"layers": 2, "width": 24},
    "proxy_rate": 3e-3,
    "target_rate": 2e-3,
    "share": 0.01,
    "tested": 2,
    "epochs": 2,
    "batch_size": 12,
    "max_length": 64,
    "same": "steps",
    "clusters": 2,
    "reference": "end",
    "answers": False,
    "budget": 0.5,
}
_LORA = {**_PROBLEMS, "target": {**_PROBLEMS["target"], "lora": True}, "same": "epochs", "reference": "early"}

PROBLEMS = _in_small_root(
    "problems",
    "s2l-solve",
    {
        "s2l by source": {**_PROBLEMS, "method": "s2l by source", "answers": True, "max_length": 48},
        "middle perplexity": {**_PROBLEMS, "method": "middle perplexity"},
    },
)
WORDS = replace(
    _in_small_root(
        "words",
        "s2l-solve",
        {
            row: {**_PROBLEMS, "mixture": "real", "share": 0.6, "points": 2, "proxy_epochs": 3, "method": row}
            for row in ("longest", "s2l by source, far start")
        },
    ),
    version=2,
)
LORA = _in_small_root(
    "lora",
    "s2l-solve",
    {row: {**_LORA, "method": row} for row in ("source-balanced random", "facility locations, early")},
)
PICKED = _in_small_root("picked", "s2l-pick", {"s2l by source": {**_LORA, "method": "s2l by source"}})
HUB = _in_small_root(
    "hub",
    "s2l-fine-tune",
    {
        row: {
            "data": "ROOT/train.jsonl",
            "proxy": "ROOT/proxy",
            "target": "ROOT/target",
            "method": row,
            "budget": 12,
            "k": 4,
            "epochs": 1,
            "batch_size": 8,
            "learning_rate": 1e-2,
            "max_length": 48,
            "every": 2,
            "tests": ["gsm8k-test", "svamp"],
            "tested": 1,
            "programs": True,
        }
        for row in ("s2l by source", "learnability, early")
    },
)
