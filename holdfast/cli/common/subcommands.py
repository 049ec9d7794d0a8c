"""Commands that have commands of their own: such as `holdfast audit groups`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tyro


def run_subcommand(
    commands: Mapping[str, Callable[[list[str]], None]], arguments: list[str], *, program: str, about: str
) -> None:
    """Run the command that the first word names; without one, list the commands.

    Args:
        commands: what to call with the words after the name; the first line of its docstring is its summary.
        arguments: the name and the words after it.
        program: what is typed before the name.
        about: a sentence above the list.
    """
    name = arguments[0] if arguments else "--help"
    if name not in commands:
        tyro.extras.subcommand_cli_from_dict(dict(commands), args=[name], prog=program, description=about)
    commands[name](arguments[1:])
