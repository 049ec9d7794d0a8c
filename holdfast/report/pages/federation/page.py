"""The page of a federation: how every client fares, with the shared model and with its own.

It begins with the worst tenth of clients, whose colour is the accent, and ends with how to repeat the run. Malicious
clients are in the table and in no number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, counted
from holdfast.report.html.health import health_banner
from holdfast.report.html.markup import DASH, Html, duration, loss_text, number, percent, tag
from holdfast.report.html.page import findings, headline, hero, large_number, note, section, write_page
from holdfast.report.html.tables import facts_table, sortable, sortable_row
from holdfast.report.pages.federation.charts import Point, curves, distribution, lambda_bars, scatter
from holdfast.report.pages.federation.environments import adaptation, environments
from holdfast.report.pages.federation.measure import Measure
from holdfast.report.pages.federation.record import SHARED, ClientRows, FederationRecord
from holdfast.report.pages.run_parts import repeat_section, unfinished_banner
from holdfast.training.run import Run

#: Clients in the table, and faults in theirs; the files have all of them.
_ROWS, _FAULTS_SHOWN = 400, 200

_COLUMNS = {
    "mean": "Mean",
    "pooled": "Pooled",
    "std": "Std",
    "mean_minus_std": "Mean \N{MINUS SIGN} std",
    "worst_tenth": "Worst 10%",
    "worst": "Worst",
    "loss": "Loss",
}


def write_federation_report(run: Run) -> Path:
    """Write ``report.html`` into the directory of a federation, finished or not, and say where it is."""
    record = FederationRecord.of(run)
    data = Path(str(record.config["data"])).name
    parts = [
        _headline(run, record, data),
        _models(record),
        environments(record),
        adaptation(record),
        _clients(record),
        _over_rounds(record),
        _attack(record),
        _privacy(record),
        _participation(record),
        _faults(record),
        _lambdas(record),
        _client_table(record),
        _run_section(run, record),
    ]
    title = f"{data}, {record.headline}: {record.path.resolve().name}"
    return write_page(run.path / "report.html", title, *parts)


def write_comparison(records: Sequence[FederationRecord], path: Path) -> Path:
    """Write a page with several federations in one plane of robustness and fairness."""
    shown = [record for record in records if record.models]
    measure = shown[0].measure if shown else Measure()
    if any(record.measure != measure for record in shown):
        kinds = ", ".join(dict.fromkeys(record.measure.name for record in shown))
        raise ConfigError(f"these federations are scored by {kinds}, which can't be compared; give runs of one task")
    points = [
        Point(f"{_run(record)}: {label}", summary["mean"], summary["std"], place)
        for place, record in enumerate(shown)
        for label, summary in record.models.items()
    ]
    lead = note("Benign clients only. A run that is not finished is shown as of its last evaluation.")
    head = tag("header", tag("h1", f"{counted(len(records), 'federation')} side by side"), lead)
    content = [head]
    if points:
        caption = f"Each dot is a model of a run. {'Down' if measure.falls else 'Up'} is better, left is fairer."
        plane = scatter(points, "", caption, measure, letter=0.75)
        content.append(section("Robustness against fairness", plane, id_="scatter"))
        rows = [(f"{_run(record)}: {label}", summary) for record in shown for label, summary in record.models.items()]
        content.append(section("Every model", _summary_table(rows, measure), id_="models"))
    return write_page(path, "Federations side by side", *content)


def _run(record: FederationRecord) -> str:
    return record.path.resolve().name


# ------------------------------------------------------------------------------------------------------- sections


def _headline(run: Run, record: FederationRecord, data: str) -> Html:
    words = record.settings("objective", "aggregate", "personalize")
    if optimizer := record.config.get("server_optimizer"):
        words.insert(2, str(optimizer))
    if record.config.get("private"):
        words.append("private")
    by = [piece for word in words for piece in (", ", tag("b", word))][1:]
    by += [" with ", tag("b", str(record.config["model"])), ", seed ", tag("b", str(record.config["seed"]))]
    attack = record.config.get("attack")
    if attack:
        by += [", attack ", tag("b", str(attack)), f" by {percent(float(record.config['malicious']), 0)} of clients"]
    return headline(
        record.path,
        record.status,
        data,
        by,
        None if record.finished else _unfinished(run, record),
        health_banner(record.health),
        hero(_worst_tenth(record), _numbers(record)) if record.models else None,
    )


def _unfinished(run: Run, record: FederationRecord) -> Html:
    done = f"round {number(record.done)} of {number(record.rounds)} was the last one evaluated"
    progress = done if record.models else "there are no numbers yet"
    return unfinished_banner(run, progress, what="federation", command="federate")


def _worst_tenth(record: FederationRecord) -> Html:
    label = record.headline
    summary = record.models[label]
    measure = record.measure
    others = [
        f"{other} {measure.text(scores['worst_tenth'])}" for other, scores in record.models.items() if other != label
    ]
    unit = "%" if measure.is_share else ""
    return large_number(
        f"Test {measure.name} of the worst tenth of clients",
        measure.text(summary["worst_tenth"]).removesuffix("%"),
        unit,
        [tag("b", label), ", against " + ", ".join(others) if others else None],
    )


def _numbers(record: FederationRecord) -> Html:
    summary = record.models[record.headline]
    shared, measure = record.models[SHARED] if record.headline != SHARED else None, record.measure

    def card(title: str, key: str, meaning: str) -> Html:
        than = None if shared is None else note(f"{SHARED}: {_score(key, shared, measure)}")
        return tag(
            "div", tag("dt", title), tag("dd", _score(key, summary, measure)), tag("dd", meaning, than, class_="note")
        )

    return tag(
        "dl",
        card("Mean", "mean", f"every {_who(record)} alike: robustness"),
        card("Spread", "std", f"standard deviation over {_who(record)}s: fairness"),
        card("Worst client", "worst", f"the {'highest' if measure.falls else 'lowest'} {measure.name} of all"),
        card("Pooled", "pooled", "every test example alike"),
        card("Loss", "loss", f"mean test loss of {_who(record)}s"),
        class_="numbers",
    )


def _who(record: FederationRecord) -> str:
    """Whom numbers are about: of a real federation nobody knows who is benign."""
    return "client" if record.results.get("self_reported") else "benign client"


def _score(key: str, summary: Mapping[str, float], measure: Measure) -> str:
    value = _value(key, summary, measure)
    return loss_text(value) if key == "loss" else measure.text(value)


def _value(key: str, summary: Mapping[str, float], measure: Measure) -> float:
    """A number of a summary; those of runs made before have no mean minus std, see `ClientReport.mean_minus_std`."""
    if key == "mean_minus_std" and key not in summary:
        return summary["mean"] + (summary["std"] if measure.falls else -summary["std"])
    return summary[key]


def _models(record: FederationRecord) -> Html | None:
    if len(record.models) < 2:
        return None
    lead = note(f"On the test data of {_who(record)}s. Click a header to sort by it.")
    gains = [str(gain["sentence"]) for gain in record.results.get("gains", {}).values()]
    table = _summary_table(list(record.models.items()), record.measure)
    return section("Models side by side", lead, table, findings(*gains) if gains else None, id_="models")


def _summary_table(rows: Sequence[tuple[str, dict[str, float]]], measure: Measure) -> Html:
    best = max(range(len(rows)), key=lambda place: measure.goodness(rows[place][1]["mean"]))
    drawn = []
    for place, (label, summary) in enumerate(rows):
        cells = [(_score(key, summary, measure), _value(key, summary, measure)) for key in _COLUMNS]
        drawn.append(sortable_row(label, cells, class_="best" if place == best else None))
    return sortable(
        "Models", "Scores by model; the headers sort.", ("Model", *_COLUMNS.values()), drawn, rising=None,
        class_="groups",
    )  # fmt: skip


def _clients(record: FederationRecord) -> Html | None:
    if record.clients is None:
        return None
    points = [Point(label, summary["mean"], summary["std"]) for label, summary in record.models.items()]
    better = "Down is better" if record.measure.falls else "Up is better"
    caption = f"{better}, left is fairer: a method that helps some clients at the cost of others moves right."
    figures = tag(
        "div",
        distribution(record.clients, record.measure),
        scatter(points, "Robustness against fairness", caption, record.measure),
        class_="figures equal",
    )
    return section("How clients fare", figures, id_="clients")


def _over_rounds(record: FederationRecord) -> Html | None:
    if len(record.history) < 2:
        return None
    return section("Over the rounds", curves(record.history, record.rounds, record.measure), id_="time")


def _attack(record: FederationRecord) -> Html | None:
    results = record.results
    if not results:
        return None
    sentences = []
    attackers, clients = len(results["malicious"]), results["clients"]
    if results["attack"] is None:
        sentences.append("Nobody attacked.")
    else:
        sentences.append(
            f"{number(attackers)} of {counted(clients, 'client')} attacked by {results['attack']['name']}. "
            f"The server combined updates by {results['aggregator']['name']}."
        )
    sentences += [
        f"Backdoor: {label} takes {percent(rates['success'])} of stamped test examples for the attackers' target, "
        f"{percent(rates['without'])} of them without the stamp."
        for label, rates in results.get("backdoor", {}).items()
    ]
    sentences.append(_expected(results))
    sentences.append(
        f"{counted(results['dropped'], 'update')} dropped because not finite{_or_refused(results)}."
        if results["dropped"]
        else "No update was dropped."
    )
    if results["diverged_at"] is not None:
        sentences.append(
            f"The shared model diverged in round {results['diverged_at'] + 1} and was kept as it was from then on."
        )
    if results.get("divergence"):
        sentences.append(results["divergence"]["sentence"])
    never = results["never_joined"]
    sentences.append(
        f"{number(never)} of {counted(clients, 'client')} never took part; their personal model is the shared one."
        if never
        else "Every client took part at least once."
    )
    sentences += results["warnings"]
    return section("Attacks and dropped updates", findings(*sentences), id_="attack")


def _privacy(record: FederationRecord) -> Html | None:
    """What was spent of clients' privacy, where they were hidden in noise."""
    spent = record.results.get("privacy")
    if not spent:
        return None
    sentences = (
        str(spent["sentence"]),
        "It holds for those who see the shared model, weights.safetensors, and nothing else of this run: the "
        "checkpoint, this page with accuracies by client, and who took part are the server's.",
        "Personal models stay with their clients and learn of other clients through the shared model only.",
    )
    numbers = (
        ("Epsilon", f"{spent['epsilon']:.3g}", "smaller is more private"),
        ("Delta", f"{spent['delta']:.2g}", "probability of a failure"),
        ("Noise multiplier", f"{spent['noise_multiplier']:.3g}", "of the sum of clipped updates"),
    )
    cards = tag(
        "dl",
        *(
            tag("div", tag("dt", title), tag("dd", value), tag("dd", meaning, class_="note"))
            for title, value, meaning in numbers
        ),
        class_="numbers",
    )
    return section("Privacy of clients", cards, findings(*sentences), id_="privacy")


def _expected(results: Mapping[str, Any]) -> str:
    """How many malicious clients the server expected; older runs recorded the number of a round only."""
    if "expected" in results:
        return str(results["expected"]["sentence"])
    return f"The server was told to expect {results['f'] or 'no'} malicious clients per round."


def _or_refused(results: Mapping[str, Any]) -> str:
    return ", or not what the server asked for" if results.get("faults") else ""


def _participation(record: FederationRecord) -> Html | None:
    """Who took part in a real federation, and what its numbers are worth."""
    took_part = record.results.get("participation")
    if not took_part:
        return None
    sentences = [
        str(took_part["sentence"]),
        "Accuracies and losses are reported by the nodes themselves and are not verified; no client is known to be "
        "benign.",
    ]
    rows = [
        tag("tr", *(tag("td", str(one[key])) for key in ("client", "drawn", "counted", "slow")))
        for one in took_part["left_out"]
    ]
    names = ("client", "rounds that drew it", "rounds in which it counted", "times it was slow")
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))
    table = tag("table", head, tag("tbody", *rows)) if rows else None
    return section("Who took part", findings(*sentences), table, id_="participation")


def _faults(record: FederationRecord) -> Html | None:
    """What kept clients of a real federation out of rounds."""
    faults = record.results.get("faults", [])
    if not faults:
        return None
    names = ("round", "what", "clients", "why")
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))
    rows = []
    for fault in faults[:_FAULTS_SHOWN]:
        clients = ", ".join(map(str, fault["clients"])) or "none"
        cells = (str(fault["round"]), fault["kind"], clients, fault["reason"])
        rows.append(tag("tr", *(tag("td", cell) for cell in cells)))
    lead = f"{counted(len(faults), 'fault')} in all. A client that was out of a round did not contribute to it."
    if len(faults) > _FAULTS_SHOWN:
        lead += f" The first {_FAULTS_SHOWN} are shown; results.json has every one."
    return section("Faults", tag("p", lead, class_="lead"), tag("table", head, tag("tbody", *rows)), id_="faults")


def _ran_by(name: str, chunk: int) -> str:
    if name == "flower":
        return f"{name}, {counted(chunk, 'node')}"
    return name + (f", {chunk} clients stacked" if chunk > 1 else "")


def _lambdas(record: FederationRecord) -> Html | None:
    chosen = {
        label: personalized["lambdas"]
        for label, personalized in record.results.get("personalize", {}).items()
        if "candidates" in personalized and personalized["lambdas"]
    }
    if not chosen:
        return None
    lead = (
        "The pull towards the shared model that each benign client chose by its validation data, or chose most often "
        "if it chose at every step."
    )
    tables = [tag("div", tag("h3", label), lambda_bars(counts)) for label, counts in chosen.items()]
    return section("Lambdas chosen", tag("p", lead, class_="lead"), *tables, id_="lambdas")


def _client_table(record: FederationRecord) -> Html | None:
    clients = record.clients
    if clients is None:
        return None
    headline, measure = clients.models[record.headline], record.measure

    def by(place: int) -> tuple[bool, float]:
        return not clients.benign[place], measure.goodness(headline.accuracy[place])

    order = sorted(range(len(clients.names)), key=by)
    shown = order[:_ROWS]
    has_lambda = any(value is not None for value in headline.lambdas)
    columns = ["Client", "Rounds", "Test examples", *clients.models, "Loss"] + ["Lambda"] * has_lambda
    rows = [_client_row(clients, record.headline, place, measure, has_lambda=has_lambda) for place in shown]
    rest = f" The {number(_ROWS)} worst of {number(len(order))} are shown." if len(order) > _ROWS else ""
    lead = note(
        f"Worst first by {record.headline}, whose loss is shown too; malicious clients last.{rest} clients.parquet in "
        "the run's directory has all, by model."
    )
    table = sortable(
        "Clients", f"{measure.name.capitalize()} by client and model; the headers sort.", columns, rows, rising=None,
        class_="groups clients",
    )  # fmt: skip
    return section("Every client", lead, tag("div", table, class_="long"), id_="table")


def _client_row(clients: ClientRows, label: str, place: int, measure: Measure, *, has_lambda: bool) -> Html:
    model = clients.models[label]
    cells: list[tuple[str, object]] = [
        (number(clients.joined[place]), clients.joined[place]),
        (number(clients.counts[place]), clients.counts[place]),
    ]
    for rows in clients.models.values():
        known = rows.accuracy[place] if clients.counts[place] else None
        cells.append((measure.text(known), known))
    cells.append((loss_text(model.loss[place]), model.loss[place]))
    if has_lambda:
        chosen = model.lambdas[place]
        cells.append((DASH if chosen is None else f"{chosen:g}", chosen))
    flag = None if clients.benign[place] else "malicious"
    return sortable_row(clients.names[place], cells, flag=flag, class_=flag)


def _run_section(run: Run, record: FederationRecord) -> Html:
    results = record.results
    measured = None
    if results:
        measured = tag(
            "div",
            tag("h3", "Cost"),
            facts_table(
                {
                    "parameters": number(results["parameters"]),
                    "rounds": number(record.rounds),
                    "executor": _ran_by(**results["executor"]),
                    "sent by clients": f"{number(results['bytes_up'] / 1e6, 1)} MB",
                    "sent to clients": f"{number(results['bytes_down'] / 1e6, 1)} MB",
                    "time": duration(results["seconds"]),
                    "data": results["fingerprint"],
                }
            ),
        )
    return repeat_section(run, measured, command="federate")
