"""What S2L is compared with, on the command line: choices by chance, by length, or by a trained reference model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from holdfast.cli.commands.select.options import Select
from holdfast.cli.commands.select.proxies import ProxyPlan, bars, say_cost
from holdfast.cli.commands.select.writing import Begin, Choice
from holdfast.data.readers.instructions import Instructions
from holdfast.finetuning import hidden_states, response_scores
from holdfast.finetuning.proxy import train_reference
from holdfast.finetuning.selection.names import WITHOUT_MODEL
from holdfast.finetuning.selection.ways import Seen, choose_by, weights_of
from holdfast.training.health.check import Health
from holdfast.training.ranks import Ranks
from holdfast.training.run import Run


def choose_by_scores(
    options: Select,
    data: Instructions,
    budget: int,
    begin: Begin,
    *,
    run: Run,
    tokens_in: Path | None,
    ranks: Ranks,
    console: Console,
) -> Choice | None:
    """Look at the examples as the method needs, and choose; only the first process does."""
    if options.method in WITHOUT_MODEL:
        usable = np.ones(len(data), np.bool_)
        begin(~usable)
        lengths = _letters(data) if options.method == "longest" else None
        seen = Seen(data.sources, usable, lengths=lengths)
    else:
        seen = _reference(options, data, budget, begin, run=run, tokens_in=tokens_in, ranks=ranks, console=console)
    if not ranks.is_main:
        return None
    positions = choose_by(options.method, seen, budget, by_source=options.by_source, seed=options.seed)
    balanced = options.method == "source-balanced"
    weights = weights_of(positions, data.sources) if balanced else np.ones(len(positions))
    return Choice(positions, weights, Health(), undefined=int((~seen.usable).sum()))


def _letters(data: Instructions) -> NDArray[np.int64]:
    """How many letters of each conversation are learned."""
    return np.array([sum(len(chat.turns[place][1]) for place in chat.learned) for chat in data.chats], np.int64)


def _reference(
    options: Select,
    data: Instructions,
    budget: int,
    begin: Begin,
    *,
    run: Run,
    tokens_in: Path | None,
    ranks: Ranks,
    console: Console,
) -> Seen:
    plan = ProxyPlan.of(options, data, budget)
    plan.say(console)
    proxy = plan.proxy(data, ranks)
    with bars(console) as progress:
        tokens, before = train_reference(
            data,
            proxy,
            run.path / "proxy",
            plan.settings,
            template=options.template,
            max_length=options.max_length,
            trained=plan.trained,
            scored_before=options.method == "learnability",
            processes=ranks,
            progress=progress,
            ready=begin,
            estimated=lambda cost: say_cost(cost, console),
            by_memory=options.micro_batch is None,
            skip_bad=options.skip_bad,
            tokens_in=tokens_in,
        )
    usable = ~tokens.undefined
    if options.method == "facility-location":
        states = hidden_states(proxy.model, tokens, processes=ranks, precision=options.precision)
        return Seen(data.sources, usable, states=states)
    scores = response_scores(proxy.model, tokens, processes=ranks, precision=options.precision)
    return Seen(data.sources, usable, before=before, after=scores.loss, confidence=scores.confidence)
