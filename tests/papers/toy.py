"""Cells of pure Python for the tests; each leaves a file behind, so that executions can be counted."""

import os
import time
from pathlib import Path

from holdfast.errors import DataError
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Printed, Verdict
from holdfast.papers.engine.store import Store
from holdfast.papers.engine.witness import tell


def add(settings, seed):
    mark(settings, seed)
    return {"score": settings["base"] + seed, "cost": 2.0}


def timed(settings, seed):
    return {"score": float(seed), "seconds": float(time.monotonic_ns())}


def slow(settings, seed):
    """Takes forever for most seeds, until there is a file named go beside the marks."""
    mark(settings, seed)
    for _ in range(6000):
        if seed in settings["quick"] or Path(settings["marks"]).with_name("go").exists():
            return {"score": float(seed)}
        time.sleep(0.1)
    raise AssertionError("nobody stopped this cell")


def broken(settings, seed):
    mark(settings, seed)
    raise DataError("the data set isn't there; fetch it")


def buggy(settings, seed):
    return {"score": {}["nothing"]}


def suicidal(settings, seed):
    os.kill(os.getpid(), 9)


def told(settings, seed):
    """Tells what stands in a file, so that a test can change what the same settings give."""
    value = float(Path(settings["file"]).read_text())
    tell("loss", value)
    return {"score": value}


def undefined(settings, seed):
    return {"score": float("nan")}


def environment(settings, seed):
    import torch

    return {"threads": torch.get_num_threads(), "root": len(os.environ["HOLDFAST_DATA"]), "pid": os.getpid()}


def mark(settings, seed):
    """Leave a file that says which process ran what."""
    folder = Path(settings["marks"])
    (folder / f"{settings['base']}-{seed}-{os.getpid()}-{time.monotonic_ns()}").touch()


def reference(function):
    return f"{function.__module__}:{function.__name__}"


def drawn(results):
    return f"<svg>{results.mean('toy/b', 'score')}</svg>"


def measured(experiment, outcomes, scale="cpu", seeds=(0, 1)):
    """Results of outcomes, judged, without a folder."""
    store = Store(Path("/nowhere"), [experiment], scale)
    return store.put(experiment, seeds, outcomes)


def toy_experiment(marks, functions=(add, add), **changes):
    """Two cells, ``toy/a`` and ``toy/b``, of which the second scores ten more."""

    def cells(scale):
        return tuple(
            Cell(f"toy/{name}", reference(function), {"marks": str(marks), "base": 10 * place, "quick": [0]})
            for place, (name, function) in enumerate(zip("abcdef", functions, strict=False))
        )

    declared = {
        "name": "toys/table1",
        "title": "Toys",
        "source": "A book of toys, Table 1",
        "cells": cells,
        "printed": {"toy/a": {"score": Printed(1.5, 0.5)}},
        "columns": {"score": "score"},
        "claims": (
            Claim("b beats a", b_beats_a),
            Claim("a beats b", a_beats_b),
            Claim("a is large", a_beats_b, scales=("paper",)),
        ),
        "smoke_seeds": (0, 1),
    }
    return Experiment(**{**declared, **changes})


def b_beats_a(results):
    gap = results.mean("toy/b", "score") - results.mean("toy/a", "score")
    return Verdict(gap > 0, f"by {gap:.1f}")


def a_beats_b(results):
    ours, theirs = (results.by_seed(cell, "score") for cell in ("toy/a", "toy/b"))
    wins = [ours[seed] > theirs[seed] for seed in ours if seed in theirs]
    return Verdict(all(wins), f"in {sum(wins)} of {len(wins)} seeds")
