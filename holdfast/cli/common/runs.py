"""What commands that leave a run directory share: printing its configuration, making it, going on with it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast import training
from holdfast.cli.common.arguments import free_place, refuse_changes
from holdfast.errors import ConfigError, Interrupted

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.training.run import RunKind

#: The command that continues a run, by the kind that the run says it is.
COMMANDS = {
    "fit": "holdfast fit",
    "clip": "holdfast fit",
    "federation": "holdfast federate",
    "selection": "holdfast select",
}


class RunOptions(Protocol):
    """Everything that a command was asked for."""

    def config(self) -> dict[str, Any]:
        """What determines the run, as a configuration file holds it."""


Options = TypeVar("Options", bound=RunOptions)


def print_config(config: Mapping[str, Any]) -> None:
    """Print a configuration as a file that ``--config`` reads."""
    import yaml
    from rich.console import Console

    Console().print(yaml.safe_dump(dict(config), sort_keys=False), end="", highlight=False, soft_wrap=True)


def run_place(data: str, method: str, seed: int) -> Path:
    """A free run directory named after what is run."""
    return free_place("runs", f"{Path(data).name}-{method}-s{seed}")


def continued(
    path: Path,
    arguments: list[str],
    parse: Callable[[list[str]], Options],
    kind: RunKind,
    *,
    free: Collection[str] = (),
) -> tuple[Options, training.Run]:
    """The run to go on with, and its options.

    Args:
        path: its directory.
        arguments: the command line; options that it repeats must be those that the run was started with.
        parse: makes options of a command line.
        kind: what the command runs.
        free: options that may differ, because they change no result.

    Raises:
        ConfigError: if the run is finished, is going on elsewhere or is of another kind, or an option differs.
    """
    run = training.Run.open(path)
    if run.status == "finished":
        raise ConfigError(f"the run at {run.path} is finished; `holdfast report {run.path}` shows it")
    if run.status == "running":
        raise ConfigError(f"another process is writing to the run at {run.path}; wait or stop it")
    if run.kind != kind:
        command = COMMANDS[run.kind]
        raise ConfigError(f"the run at {run.path} is one of `{command}`; continue it with `{command} --resume`")
    config = ["--config", str(run.path / "config.yaml")]
    stored, options = parse(config).config(), parse([*arguments, *config])
    refuse_changes(stored, {name: value for name, value in options.config().items() if name not in free})
    return options, run


@contextmanager
def says_how_to_continue(run: training.Run, console: Console) -> Iterator[None]:
    """Print the command that continues a run when the user stops it, or a signal asks it to save and end."""
    from holdfast.training.interruption import interruptible

    try:
        with interruptible():
            yield
    except (KeyboardInterrupt, Interrupted):
        print_how_to_continue(run, console)
        raise


def print_how_to_continue(run: training.Run, console: Console) -> None:
    """Print the command that continues a run."""
    from rich.markup import escape

    command = escape(f"{COMMANDS[run.kind]} --resume {shlex.quote(str(run.path))}")
    console.print(f"stopped; continue with: [bold]{command}[/]", highlight=False, soft_wrap=True)


def refuse_selection(run: training.Run) -> None:
    """Refuse a selection of data where a trained model is needed.

    Raises:
        ConfigError: if the directory is a selection's.
    """
    if run.kind == "selection":
        raise ConfigError(
            f"{run.path} is a selection of data and has no model to score; its page is {run.path / 'report.html'}"
        )
