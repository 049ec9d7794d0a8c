"""What `fit` compares a method with: a finished plain run, one that is trained beside, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from holdfast.cli.common.options import FitOptions
    from holdfast.data import Splits
    from holdfast.training import GroupReport, Run
    from holdfast.training.method import Method
    from holdfast.training.ranks import Ranks

#: What ``--reference`` may say besides the folder of a run.
BESIDE, NOTHING = "beside", "none"


def named_reference(said: str | None) -> GroupReport | None:
    """The report of the run that ``--reference`` names, where it names one; asked before any work.

    Raises:
        ConfigError: if it is no finished run.
    """
    from holdfast.cli.common.health import reference_report

    return None if said in (None, BESIDE, NOTHING) else reference_report(Path(said))


def is_trained_beside(said: str | None, method: Method) -> bool:
    """Whether plain training is done for comparison: where it was asked for, or the method guesses at groups.

    Raises:
        ConfigError: if plain training is to be compared with itself.
    """
    from holdfast.training.policy import Uniform

    policy = method.policy
    if said == BESIDE and type(policy) is Uniform:
        raise ConfigError("erm is plain training itself; leave --reference beside out")
    return policy.guesses_groups if said is None else said == BESIDE


def trained_beside(
    options: FitOptions,
    model: nn.Module,
    splits: Splits,
    run: Run | None,
    *,
    ranks: Ranks,
    console: Console,
) -> GroupReport | None:
    """How plain training fares, with the start, data and settings of the run; None in processes that write nothing.

    Args:
        options: of the run.
        model: with the weights that the method will start from.
        splits: the data.
        run: in whose folder the plain run lies; None in processes that write nothing.
        ranks: the processes that train together.
        console: where to show.
    """
    from holdfast import report
    from holdfast.cli.common.health import reference_report
    from holdfast.cli.common.progress import TrainingProgress
    from holdfast.training.yardstick import plain_run, train_plain

    beside = None if run is None else plain_run(run.path, lambda: _config(options))
    if not ranks.flag(beside is not None and beside.status == "finished"):
        console.print(
            "First plain training, which the result is compared with (--reference none leaves it out).",
            highlight=False,
            soft_wrap=True,
        )
        with TrainingProgress("plain training", console) as progress:
            train_plain(model, splits, options.training, run=beside, listeners=[progress])
        if beside is not None:
            report.write_report(beside, splits)
    return None if beside is None else reference_report(beside.path)


def _config(options: FitOptions) -> Mapping[str, Any]:
    return options.plain().config()
