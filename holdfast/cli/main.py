"""`holdfast COMMAND`: finds the command, runs it, and turns the library's errors into one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from rich.console import Console
from rich.table import Table

import holdfast
from holdfast.errors import HoldfastError, nearest
from holdfast.primitives.memory import keep_freed_memory

#: What each command is for, and the module whose `main(arguments)` runs it; imported only when it is called.
COMMANDS = {
    "demo": ("See the failure of plain training and its repair, on data that comes with the package.", "demo"),
    "fit": ("Train a model and report how every group fares.", "fit"),
    "federate": (
        "Simulate a federation, with attacks and personal models, and report on every client.",
        "federation.federate",
    ),
    "audit": ("Look into data and models: groups that a shortcut makes, poisons, what CLIP leans on.", "audit.audit"),
    "select": ("Choose the part of the data that is worth fine-tuning a language model on.", "select.select"),
    "data": ("List data sets, describe one, fetch its files.", "data"),
    "runs": ("List runs, compare them.", "runs"),
    "report": ("Write a run's HTML page (again).", "report"),
    "reproduce": ("Run a paper's experiment and print its numbers beside ours.", "reproduce"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command and its options; the process's own by default.

    Returns:
        The exit code: 0 done, 1 done but something failed on the way, 2 a mistake in what was asked for.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    errors = Console(stderr=True, soft_wrap=True)
    if not given or given[0] in ("-h", "--help"):
        _help()
        return 0
    if given[0] in ("-V", "--version"):
        Console().print(f"holdfast {holdfast.__version__}", highlight=False)
        return 0
    if given[0] not in COMMANDS:
        hint = nearest(given[0], COMMANDS)
        errors.print(f"[red]holdfast:[/] there is no command {given[0]!r}{hint}", highlight=False)
        return 2
    module = import_module(f"holdfast.cli.commands.{COMMANDS[given[0]][1]}")
    command: Callable[[list[str]], int] = module.main
    keep_freed_memory()
    try:
        return command(given[1:])
    except HoldfastError as error:
        errors.print("[red]holdfast:[/]", end=" ")
        errors.print(str(error), markup=False, highlight=False)
        return 2
    except KeyboardInterrupt:
        errors.print("[red]holdfast:[/] stopped", highlight=False)
        return 130


def _help() -> None:
    console = Console()
    console.print(
        "[bold]holdfast[/]: training that holds up for every group, under attack, on a fraction of the data.\n"
    )
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, (summary, _) in COMMANDS.items():
        table.add_row(f"[bold]holdfast {name}[/]", summary)
    console.print(table)
    console.print("\n[bold]holdfast COMMAND --help[/] shows a command's options. Start with [bold]holdfast demo[/].")


if __name__ == "__main__":
    sys.exit(main())
