"""`holdfast select`: choose the part of the data that is worth fine-tuning on."""

from __future__ import annotations

from holdfast.cli.common.subcommands import run_subcommand


def s2l(arguments: list[str]) -> None:
    """Choose fine-tuning data for a language model by the loss curves of a small one."""
    from holdfast.cli.commands.select.options import parse_s2l
    from holdfast.cli.common.runs import print_config

    options = parse_s2l(arguments)
    if options.print_config:
        print_config(options.stored())
        return
    from holdfast.cli.commands.select.s2l import select_s2l

    select_s2l(options, arguments)


#: Ways to choose; the first line of each says how.
SELECTIONS = {"s2l": s2l}


def main(arguments: list[str]) -> int:
    """Run the command; alone it lists the ways to choose."""
    about = "Choose the part of the data that is worth training on; each selection leaves a page behind."
    run_subcommand(SELECTIONS, arguments, program="holdfast select", about=about)
    return 0
