"""Every experiment there is, by the name that users type; a document is imported when one of its own is named.

A document has one name: that of its folder in this package, of its folders below ``results/`` and ``docs/results/``, of
its file of golden values, and of what users type before the slash.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from holdfast.errors import ConfigError, nearest
from holdfast.papers.engine.experiment import Experiment

#: The modules that declare a document's experiments, in the order of its pages.
PAPERS: Mapping[str, tuple[str, ...]] = {
    "spare": ("spare.tables", "spare.digits"),
    "pde": ("pde.synthetic", "pde.tables"),
    "ditto": (
        "ditto.theory",
        "ditto.tables",
        "ditto.across_data_sets",
        "ditto.natural",
        "ditto.surrogate",
        "ditto.early",
        "ditto.beside",
        "ditto.privacy",
    ),
    "personalization": (
        "personalization.tables",
        "personalization.mended",
        "personalization.figures_and_studies",
    ),
    "crest": ("crest.tables", "crest.circumstances", "crest.quality", "crest.equal_time"),
    "s2l": ("s2l.tables", "s2l.coverage", "s2l.curves"),
    "epic": ("epic.tables", "epic.strongest", "epic.scratch_and_watched"),
    "clip": ("clip.tables", "clip.ablation_and_detection"),
    "health": ("health.tables", "health.human_label_tables"),
}

#: What documents were called before; whoever types such a name is told today's.
FORMER_NAMES: Mapping[str, str] = {"spurious-personalization": "personalization", "multimodal": "clip"}


def experiments_of(paper: str) -> tuple[Experiment, ...]:
    """The experiments of a document.

    Raises:
        ConfigError: if there is no such document; the message offers the nearest name.
    """
    if paper not in PAPERS:
        raise ConfigError(f"there are no experiments of {paper!r}{nearest(_today(paper), PAPERS)}")
    modules = [importlib.import_module(f"holdfast.papers.{name}") for name in PAPERS[paper]]
    return tuple(experiment for module in modules for experiment in module.EXPERIMENTS)


def every_experiment() -> tuple[Experiment, ...]:
    """All of them, document by document."""
    return tuple(experiment for paper in PAPERS for experiment in experiments_of(paper))


def find(name: str) -> Experiment:
    """The experiment called `name`; only its document is imported.

    Raises:
        ConfigError: if there is none; the message offers the nearest name.
    """
    paper = name.partition("/")[0]
    known = experiments_of(paper) if paper in PAPERS else every_experiment()
    by_name = {experiment.name: experiment for experiment in known}
    if name not in by_name:
        raise ConfigError(f"there is no experiment {name!r}{nearest(_today(name), by_name)}")
    return by_name[name]


def _today(name: str) -> str:
    """The name with the document as it is called today."""
    paper, slash, experiment = name.partition("/")
    return FORMER_NAMES.get(paper, paper) + slash + experiment
