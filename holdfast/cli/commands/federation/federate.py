"""`holdfast federate`: run a federation, report how every client fares, leave a run directory behind.

It is simulated in this process, or, with ``--engine flower``, rehearsed on a SuperLink and SuperNodes of this machine.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast import report, training
from holdfast.cli.commands.federation.options import FederateOptions, as_before, parse
from holdfast.cli.common.arguments import free_place
from holdfast.cli.common.model_options import show_model
from holdfast.cli.common.runs import continued, print_config, says_how_to_continue
from holdfast.errors import UNHEALTHY, ConfigError, counted
from holdfast.files import read_mapping
from holdfast.report.html.markup import duration, loss_text

if TYPE_CHECKING:
    from torch import nn

    from holdfast.data import Clients
    from holdfast.federated import ClientReport, FederationResult
    from holdfast.federated.blueprint import Blueprint
    from holdfast.federated.preparation import PreparedFederation
    from holdfast.integrations.flower.charter import Charter
    from holdfast.integrations.flower.roster import Roster
    from holdfast.integrations.flower.settings import FlowerSettings
    from holdfast.training import Listener, Run
    from holdfast.training.health.check import Health

_COLUMNS = {
    "mean": "mean",
    "pooled": "pooled",
    "std": "std",
    "worst_tenth": "worst 10%",
    "worst": "worst",
    "loss": "loss",
}
_ENVIRONMENTS = {
    "accuracy": "at home",
    "elsewhere": "elsewhere",
    "disparity": "disparity",
    "worst": "worst",
    "average": "average",
}
_WARNINGS_SHOWN = 5


def main(arguments: list[str]) -> int:
    """Run the command."""
    options, console, run = parse(arguments), Console(), None
    if options.choices.print_config:
        print_config(options.config())
        return 0
    if options.choices.app is not None:
        return _write_app(options, console)
    if options.choices.resume is not None:
        from holdfast.federated.run_files import FREE

        before = _as_before(options.choices.resume)
        options, run = continued(
            options.choices.resume, arguments, lambda words: parse([*before, *words]), "federation", free=FREE
        )
    health = simulate(options, console, run) if options.flower is None else rehearse(options, console, run)
    return UNHEALTHY if options.choices.strict and health.verdict == "failed" else 0


def _as_before(place: Path) -> list[str]:
    """What a run goes on with that was started before some options were there."""
    return as_before(read_mapping(place / "config.yaml")) if (place / "config.yaml").exists() else []


def simulate(options: FederateOptions, console: Console, run: Run | None = None) -> Health:
    """Run a federation in this process as `options` say and show what came out.

    Args:
        options: everything that was asked for.
        console: where to show.
        run: a run to continue; by default a new one is made, once everything is known to fit together.

    Returns:
        What the checks found.
    """
    with _shown_warnings(console):
        from holdfast.federated.federation import run_federation

        clients, prepared = _fitting(options, run, console)
        run = _with_schema(run or _new_run(options), clients)
        with _under_way(options, run, console) as listeners:
            outcome = run_federation(prepared, run=run, listeners=listeners)
    return finish(outcome, clients, options, run, console)


def rehearse(options: FederateOptions, console: Console, run: Run | None = None) -> Health:
    """The same on Flower: a SuperLink and SuperNodes are started on this machine, and stopped whatever happens.

    Nodes keep personal models below ``flower/nodes`` of the run directory.
    """
    from holdfast.integrations.flower.rehearsal.deployment import Deployment, require_flower
    from holdfast.integrations.flower.rehearsal.driver import grid_of_new_run
    from holdfast.integrations.flower.rehearsal.project import CHARTER, app_files

    require_flower()
    assert options.flower is not None
    nodes = options.flower.nodes
    with _shown_warnings(console):
        if options.flower.roster is not None:
            raise ConfigError("a rehearsal writes a roster of its own; --roster is for an app, see --app")
        clients, prepared = _fitting(options, run, console)
        if nodes > len(clients):
            raise ConfigError(f"there are {nodes} nodes for {len(clients)} clients; lower --nodes")
        charter = charter_of(options, clients, prepared.network.load(prepared.network.initial))
        run = _with_schema(run or _new_run(options), clients)
        with (
            _under_way(options, run, console) as listeners,
            Deployment(run.path / "flower", ["holdfast.cli.commands.federation.apps"]) as deployment,
        ):
            for node in range(nodes):
                deployment.start_node(node, {"share": f"{node}/{nodes}"})
            roster = deployment.roster(len(clients), max(int(part.counts.max()) for part in clients.parts.values()))
            app = app_files(options.config(), **{CHARTER: charter.to_json()})
            with grid_of_new_run(deployment.address, app, deployment.bell) as grid:
                outcome = on_grid(grid, options, run, charter, listeners=listeners, roster=roster)
    return finish(outcome, clients, options, run, console)


def on_grid(
    grid: Any,
    options: FederateOptions,
    run: Run,
    charter: Charter,
    *,
    listeners: Sequence[Listener] = (),
    roster: Roster | None = None,
) -> FederationResult:
    """Run a federation on the nodes of a Flower run that there is already."""
    from holdfast.cli.commands.federation.blueprint import blueprint_of
    from holdfast.integrations.flower.server.federation import federate_on_flower
    from holdfast.integrations.flower.settings import FlowerSettings

    settings = options.flower or FlowerSettings()
    return federate_on_flower(
        grid, blueprint_of(options), settings, charter, roster=roster, run=run, listeners=listeners
    )


def charter_of(options: FederateOptions, clients: Clients, model: nn.Module) -> Charter:
    """What a federation with these options owns; a reply may have a model for each client of one node."""
    from holdfast.integrations.flower.charter import OVERHEAD, Charter, ModelIdentity

    numbers = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    vectors = 1 if options.objective.second is None else 2
    identity = ModelIdentity.of(options.choices.model, options.choices.model_args)
    return Charter.of(model, identity, clients, OVERHEAD + len(clients) * (vectors * numbers + OVERHEAD // 256))


def finish(outcome: FederationResult, clients: Clients, options: FederateOptions, run: Run, console: Console) -> Health:
    """Write the record and the page of a federation that is over, show what came out, and return what checks found."""
    from holdfast.cli.commands.federation.blueprint import model_spec
    from holdfast.cli.common.health import show_health
    from holdfast.federated.run_files import FederationSpec, save_outcome
    from holdfast.training.health.check import Health

    choices = options.choices
    spec = FederationSpec(
        choices.data,
        choices.model,
        options.settings,
        options.objective,
        options.aggregator,
        options.threat,
        options.server_optimizer,
    )
    run.save_spec(model_spec(options, clients.input_shape, clients.outputs))
    save_outcome(run, outcome, clients, spec)
    page = report.write_report(run)
    console.print(results_table(outcome.reports, options.title, self_reported=outcome.choice.name == "flower"))
    if environments := (run.results or {}).get("environments"):
        console.print(environments_table(environments))
    for label, rates in ((run.results or {}).get("backdoor") or {}).items():
        console.print(escape(backdoor_line(label, rates)), highlight=False, soft_wrap=True)
    for gain in ((run.results or {}).get("gains") or {}).values():
        console.print(escape(gain["sentence"]), highlight=False, soft_wrap=True)
    health = Health.from_json((run.results or {}).get("health") or {"findings": []})
    if health.findings:
        show_health(health, console)
    console.print(escape(outcome.expected.sentence()), highlight=False, soft_wrap=True)
    if outcome.privacy is not None:
        console.print(escape(outcome.privacy.sentence()), highlight=False, soft_wrap=True)
    console.print(escape(facts(outcome, clients)), highlight=False)
    if outcome.participation is not None:
        console.print(escape(outcome.participation["sentence"]), highlight=False, soft_wrap=True)
    console.print(f"Report: [bold]{page}[/]", highlight=False, soft_wrap=True)
    return health


def _with_schema(run: Run, clients: Clients) -> Run:
    """The run, which remembers how data of the user's own was read."""
    if clients.schema is not None:
        run.keep_schema(clients.schema.to_json())
    return run


def _fitting(options: FederateOptions, run: Run | None, console: Console) -> tuple[Clients, PreparedFederation]:
    """The data, and the federation if everything goes together: nothing is written before that is known."""
    from holdfast.cli.commands.federation.blueprint import blueprint_of, model_spec
    from holdfast.cli.common.notes import show_notes

    choices = options.choices
    if run is None and choices.out is not None:
        training.Run.check_free(choices.out)
    blueprint = blueprint_of(options)
    clients = blueprint.load()
    if options.flower is not None:
        blueprint = _expecting_nodes(options.flower, blueprint, len(clients))
    show_notes(clients.notes, Path(choices.data).name, console)
    model, outputs = blueprint.model(clients), clients.outputs
    show_model(model_spec(options, clients.input_shape, outputs), model, clients.train.inputs[:2], console)
    return clients, blueprint.prepare(clients, model=model)


def _expecting_nodes(settings: FlowerSettings, blueprint: Blueprint, clients: int) -> Blueprint:
    """The blueprint of a rehearsal, whose nodes share the clients evenly, with malicious nodes counted in clients."""
    from holdfast.integrations.flower.nodes.ids import share_of
    from holdfast.integrations.flower.roster import even_roster, token_of
    from holdfast.integrations.flower.server.expecting import expectation_of_nodes

    shares = [len(share_of(f"{node}/{settings.nodes}", clients)) for node in range(settings.nodes)]
    roster = even_roster([token_of(str(node)) for node in range(settings.nodes)], shares, 1)
    return replace(blueprint, expectation=expectation_of_nodes(blueprint.expectation, settings, roster))


@contextmanager
def _under_way(options: FederateOptions, run: Run, console: Console) -> Iterator[list[Listener]]:
    """Shows progress and logs to trackers; says how to continue when the user stops it."""
    from holdfast.cli.common.progress import RoundsProgress
    from holdfast.integrations.trackers.tracker import trackers

    listeners = trackers(options.choices.track, run)
    title = Path(options.choices.data).name
    with says_how_to_continue(run, console), RoundsProgress(title, console) as progress:
        yield [progress, *listeners]


def _write_app(options: FederateOptions, console: Console) -> int:
    from holdfast.cli.commands.federation.blueprint import blueprint_of
    from holdfast.integrations.flower.rehearsal.project import CHARTER, RUN, app_files, write_app

    folder = options.choices.app
    assert folder is not None
    blueprint = blueprint_of(options)
    clients = blueprint.load()
    charter = charter_of(options, clients, blueprint.model(clients))
    write_app(folder, app_files(options.config(), **{RUN: "", CHARTER: charter.to_json()}))
    console.print(
        f"The app is in [bold]{escape(str(folder))}[/]; on the machine of the SuperLink, start it with: flwr run "
        f"{shlex.quote(str(folder))} SUPERLINK --stream -c '{RUN}=\"/where/to/write\"'",
        highlight=False,
        soft_wrap=True,
    )
    return 0


def results_table(reports: dict[str, ClientReport], title: str, *, self_reported: bool = False) -> Table:
    """A row per model: how benign clients fare on their test data; elsewhere it is what nodes say of themselves."""
    counted_clients = int(next(iter(reports.values())).counted.sum())
    measure = next(iter(reports.values())).measure
    who = f"{counted_clients} {'clients, as their nodes report it' if self_reported else 'benign clients'}"
    table = Table(title=f"{title}\ntest {measure} of {who}", title_justify="left")
    table.add_column("model")
    for column in _COLUMNS.values():
        table.add_column(column, justify="right", no_wrap=True)
    for label, clients in reports.items():
        summary = clients.summary()
        plain = ("loss",) if measure == "accuracy" else tuple(_COLUMNS)
        cells = [loss_text(summary[key]) if key in plain else f"{100 * summary[key]:.1f}%" for key in _COLUMNS]
        table.add_row(label, *cells)
    return table


def environments_table(environments: Mapping[str, Mapping[str, float]]) -> Table:
    """A row per model: accuracy in the environment that clients train in and in the other one."""
    table = Table(title="in the environment that clients train in, and elsewhere", title_justify="left")
    table.add_column("model")
    for column in _ENVIRONMENTS.values():
        table.add_column(column, justify="right", no_wrap=True)
    for label, numbers in environments.items():
        table.add_row(label, *(f"{100 * numbers[key]:.1f}%" for key in _ENVIRONMENTS))
    return table


def backdoor_line(label: str, rates: Mapping[str, float]) -> str:
    """How often a backdoor works on a model."""
    return (
        f"Backdoor: {label} takes {100 * rates['success']:.1f}% of stamped test examples for the attackers' target, "
        f"{100 * rates['without']:.1f}% of them without the stamp."
    )


def facts(outcome: FederationResult, clients: Clients) -> str:
    """One line: what was dropped, who never took part, how it was run, what was sent."""
    never = int((outcome.joined == 0).sum())
    absent = f"{never} of {len(clients)} clients never took part" + (
        ", and their personal model is the shared one" if len(outcome.reports) > 1 else ""
    )
    parts = [
        f"{counted(outcome.dropped, 'update')} dropped",
        _divergence(outcome),
        absent if never else "every client took part",
        _how(outcome),
        f"{_bytes(outcome.bytes_up)} up, {_bytes(outcome.bytes_down)} down",
        duration(outcome.seconds),
    ]
    return "; ".join(parts) + "."


def _divergence(outcome: FederationResult) -> str:
    if outcome.diverged_at is not None:
        return f"shared model frozen in round {outcome.diverged_at + 1}"
    return "no divergence" if outcome.divergence is None else "the shared model diverged"


def _how(outcome: FederationResult) -> str:
    name, chunk = outcome.choice.name, outcome.choice.chunk
    if name == "flower":
        return f"{counted(chunk, 'Flower node')}, {counted(len(outcome.faults), 'fault')}"
    return f"executor {name}" + (f" of {chunk}" if chunk > 1 else "")


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def _new_run(options: FederateOptions) -> Run:
    """A run directory, by default one that is named after what is run."""
    choices = options.choices
    words = [Path(choices.data).name, *([] if choices.objective == "fedavg" else [choices.objective])]
    words += [] if choices.aggregate == "mean" else [choices.aggregate]
    words += [] if choices.attack is None else [f"{choices.attack}-{choices.malicious:g}"]
    words += [] if not options.personalizers else [choices.personalize]
    place = choices.out or free_place("runs", f"{'-'.join(words)}-s{options.settings.seed}")
    return training.Run.create(place, options.config(), kind="federation")


class _Warnings(logging.Handler):
    """Shows each warning once, and of a flood only the beginning; the last line of the command has the totals."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Show a warning."""
        text = record.getMessage()
        if text in self._seen:
            return
        self._seen.add(text)
        if len(self._seen) <= _WARNINGS_SHOWN:
            self._console.print(f"[yellow]warning:[/] {escape(text)}", highlight=False)
        elif len(self._seen) == _WARNINGS_SHOWN + 1:
            self._console.print("[yellow]warning:[/] more of the kind; not shown", highlight=False)


@contextmanager
def _shown_warnings(console: Console) -> Iterator[None]:
    logger, handler = logging.getLogger("holdfast.federated"), _Warnings(console)
    logger.addHandler(handler)
    propagated, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
