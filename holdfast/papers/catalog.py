"""Every experiment there is, by the name that users type."""

from __future__ import annotations

from holdfast.errors import ConfigError, nearest
from holdfast.papers import (
    crest,
    crest_more,
    crest_quality,
    ditto,
    ditto_more,
    ditto_surrogate,
    ditto_theory,
    epic,
    epic_more,
    multimodal,
    multimodal_more,
    pde,
    pde_synthetic,
    s2l,
    s2l_coverage,
    shortcuts,
    shortcuts_more,
    spare,
    spare_digits,
)
from holdfast.papers.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for paper in (
        spare,
        spare_digits,
        pde_synthetic,
        pde,
        ditto_theory,
        ditto,
        ditto_more,
        ditto_surrogate,
        shortcuts,
        shortcuts_more,
        crest,
        crest_more,
        crest_quality,
        s2l,
        s2l_coverage,
        epic,
        epic_more,
        multimodal,
        multimodal_more,
    )
    for experiment in paper.EXPERIMENTS
}


def find(name: str) -> Experiment:
    """The experiment called `name`.

    Raises:
        ConfigError: if there is none; the message offers the nearest name.
    """
    if name not in EXPERIMENTS:
        raise ConfigError(f"there is no experiment {name!r}{nearest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
