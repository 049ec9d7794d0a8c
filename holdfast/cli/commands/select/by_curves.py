"""S2L on the command line: curves that a proxy records, or that are there already, and the choice by them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from holdfast.cli.commands.select.options import Select
from holdfast.cli.commands.select.proxies import ProxyPlan, bars, say_cost
from holdfast.cli.commands.select.writing import Begin, Choice
from holdfast.data.readers.instructions import Instructions
from holdfast.errors import DataError
from holdfast.finetuning import Trajectories, s2l_select
from holdfast.finetuning.proxy import record_trajectories
from holdfast.finetuning.selection.health import beside_equal_shares, findings, one_source
from holdfast.finetuning.selection.ways import weights_of
from holdfast.training.health.check import Health
from holdfast.training.ranks import Ranks
from holdfast.training.run import Run


def choose_by_curves(
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
    """Record curves where there are none, and choose by them; only the first process does."""
    plan = ProxyPlan.of(options, data, budget)
    plan.say(console)
    if options.trajectories is not None:
        trajectories = _recorded(options.trajectories, data)
        begin(trajectories.undefined)
    else:
        trajectories = _record(options, plan, data, begin, run=run, tokens_in=tokens_in, ranks=ranks, console=console)
    if not ranks.is_main:
        return None
    sources = data.sources if options.by_source else None
    chosen = s2l_select(
        trajectories.losses,
        budget,
        k=plan.clusters,
        sources=sources,
        undefined=trajectories.undefined,
        smallest=options.smallest,
        seed=options.seed,
        start=options.start,
        engine=options.engine,
    )
    unigram = trajectories.key.get("unigram")
    # Clusters within sources are of one each by construction.
    repeated = None if options.by_source else one_source(chosen.clusters.labels, data.sources)
    of_sources = (beside_equal_shares(len(data.source_names)), repeated)
    health = Health.of(
        [
            *(finding for finding in of_sources if finding is not None),
            *findings(
                chosen,
                trajectories.losses,
                sources=sources,
                undefined=trajectories.undefined,
                k=plan.clusters,
                unigram=None if unigram is None else float(unigram),
                seed=options.seed,
            ),
        ]
    )
    return Choice(
        chosen.positions,
        weights_of(chosen.positions, chosen.clusters.labels),
        health,
        clusters=chosen,
        trajectories=trajectories,
        k=plan.clusters,
    )


def _record(
    options: Select,
    plan: ProxyPlan,
    data: Instructions,
    begin: Begin,
    *,
    run: Run,
    tokens_in: Path | None,
    ranks: Ranks,
    console: Console,
) -> Trajectories:
    proxy = plan.proxy(data, ranks)
    with bars(console) as progress:
        trajectories = record_trajectories(
            data,
            proxy,
            run.path / "proxy",
            plan.settings,
            template=options.template,
            max_length=options.max_length,
            every=options.every,
            points=plan.points,
            trained=plan.trained,
            processes=ranks,
            progress=progress,
            ready=begin,
            estimated=lambda cost: say_cost(cost, console),
            by_memory=options.micro_batch is None,
            skip_bad=options.skip_bad,
            tokens_in=tokens_in,
        )
    if ranks.is_main:
        trajectories.save(run.path / "trajectories.parquet")
    return trajectories


def _recorded(path: Path, data: Instructions) -> Trajectories:
    trajectories = Trajectories.load(path)
    if trajectories.ids.tolist() != list(range(len(data))):
        raise DataError(
            f"{path} has the losses of {len(trajectories):,} examples and {data.name} has {len(data):,}; give the "
            "trajectories of this data"
        )
    if trajectories.key.get("data", data.fingerprint) != data.fingerprint:
        raise DataError(
            f"{path} has the losses of as many examples as {data.name} has, but of others; give the trajectories of "
            "this data, or leave out --trajectories to record them"
        )
    return trajectories
