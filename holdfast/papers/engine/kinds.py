"""What cells compute, by names that stay.

The name on the left is written into results files and into keys of the cache: it never changes. The path on the right
is where the function lives today, and may move. A function takes ``settings`` and ``seed`` by name and returns finite
numbers by metric.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import ConfigError, nearest
from holdfast.papers.engine.experiment import Cell

#: What a cell's function looks like.
CellFunction = Callable[..., Mapping[str, float]]

KINDS: Mapping[str, str] = {
    "train": "holdfast.papers.common.cells:train",
    "golden-together": "holdfast.papers.common.golden_cells:together",
    "crest-difficulty": "holdfast.papers.crest.cells:difficulty_of_choices",
    "crest-train": "holdfast.papers.crest.cells:train_on_budget",
    "crest-gradients": "holdfast.papers.crest.quality_cells:gradients_of_choices",
    "crest-model": "holdfast.papers.crest.quality_cells:models_of_the_loss",
    "ditto-federations": "holdfast.papers.ditto.cells:run_federations",
    "ditto-lambda": "holdfast.papers.ditto.theory_cells:at_lambda",
    "ditto-relatedness": "holdfast.papers.ditto.theory_cells:at_relatedness",
    "health-bed": "holdfast.papers.health.cells:train_on_bed",
    "health-human-labels": "holdfast.papers.health.human_labels:find_wrong_labels",
    "epic-defend": "holdfast.papers.epic.cells:defend",
    "epic-several": "holdfast.papers.epic.cells:several",
    "epic-exchange": "holdfast.papers.epic.cells:exchange",
    "epic-watch": "holdfast.papers.epic.watch_cells:watch",
    "clip-detect": "holdfast.papers.clip.cells:detect",
    "clip-tune": "holdfast.papers.clip.cells:tune",
    "clip-several": "holdfast.papers.clip.cells:several",
    "pde-study": "holdfast.papers.pde.cells:study",
    "s2l-clusters": "holdfast.papers.s2l.cells:clusters_of_world",
    "s2l-train": "holdfast.papers.s2l.cells:train_on_subset",
    "s2l-coverage": "holdfast.papers.s2l.coverage_cells:coverage_of_subsets",
    "s2l-starts": "holdfast.papers.s2l.coverage_cells:coverage_by_start",
    "s2l-curves": "holdfast.papers.s2l.curve_cells:coverage_by_curves",
    "s2l-epochs": "holdfast.papers.s2l.curve_cells:accuracy_by_epoch",
    "s2l-small-root": "holdfast.papers.s2l.golden_cells:in_small_root",
    "s2l-fine-tune": "holdfast.papers.s2l.hub_cells:fine_tune_and_solve",
    "s2l-pick": "holdfast.papers.s2l.problem_cells:pick_problems",
    "s2l-solve": "holdfast.papers.s2l.problem_cells:solve_problems",
    "personalization": "holdfast.papers.personalization.cells:run_personalization",
    "personalization-gaussian": "holdfast.papers.personalization.cells:simulate_gaussian",
    "spare-silhouettes": "holdfast.papers.spare.cells:silhouettes_by_class",
    "spare-two-networks": "holdfast.papers.spare.cells:train_in_two_networks",
    "spare-variant": "holdfast.papers.spare.cells:train_variant",
}


def function_of(kind: str) -> CellFunction:
    """The function of a kind; a ``module:function`` is a kind of its own, for experiments outside this package.

    Raises:
        ConfigError: if there is no such kind, module or function.
    """
    if ":" not in kind and kind not in KINDS:
        raise ConfigError(f"there is no kind of cells called {kind!r}{nearest(kind, KINDS)}")
    return load(KINDS.get(kind, kind))


def load(reference: str) -> Callable[..., Any]:
    """The function behind ``module:function``.

    Raises:
        ConfigError: if there is none.
    """
    module, _, name = reference.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{reference!r} can't be imported ({error}); give it as 'module:function'") from error
    return function


def key_of(cell: Cell) -> str:
    """What a cell is measured under, whatever tables it stands in: a digest of its kind and its settings.

    Together with the version and the seed it names a measurement. Neither the code's place nor its source is part of
    it.

    Raises:
        ConfigError: if the settings aren't plain JSON values.
    """
    try:
        return digest({"kind": cell.kind, "settings": dict(cell.settings)})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the settings of cell {cell.name!r} are not plain JSON values ({error})") from error


def digest(value: Any) -> str:
    """A short digest of plain JSON values, whatever the order of their keys."""
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
