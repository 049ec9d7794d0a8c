"""What a method that chooses examples did: how often, for how much work, and how well its model of the loss held."""

from __future__ import annotations

from holdfast.coresets.accounting import Accounts
from holdfast.errors import counted
from holdfast.report.html.charts import Axis, Line, Mark, chart, round_numbers
from holdfast.report.html.markup import Html, duration, join, number, tag
from holdfast.report.html.page import section
from holdfast.report.pages.run_record import RunRecord

_MOST_MARKS = 60
_ACTIVITIES = {
    "look": "looking at random subsets",
    "choose": "choosing",
    "model": "modelling the loss",
    "check": "checking the model",
}


def choices_section(record: RunRecord) -> Html | None:
    """A section per method that left its accounts in the run's directory; None where none did."""
    names = dict.fromkeys(name for plan in record.plans for name in plan["policies"])
    loaded = {name: Accounts.load(record.path, name) for name in names}
    parts = [part for name, accounts in loaded.items() if accounts is not None for part in _account_of(name, accounts)]
    return section("What was chosen", *parts, id_="chosen") if parts else None


def _account_of(name: str, accounts: Accounts) -> list[Html]:
    spent = ", ".join(
        f"{duration(seconds)} {_ACTIVITIES.get(activity, activity)}" for activity, seconds in accounts.seconds.items()
    )
    chosen = f"{name} chose {counted(len(accounts.selections), 'time')}"
    checked = f" and checked its choice {counted(len(accounts.checks), 'time')}" if accounts.checks else ""
    work = f", which took forward passes of {number(accounts.forward)} examples"
    if accounts.backward:
        work += f" and backward passes of {number(accounts.backward)}"
    lead = tag("p", f"{chosen}{checked}{work}: {spent}.", class_="lead")
    return [lead, *([error_figure(accounts)] if len(accounts.checks) > 1 else [])]


def error_figure(accounts: Accounts) -> Html:
    """By how much of the loss its model was off, check by check.

    Args:
        accounts: with at least two checks.
    """
    points = tuple((check["step"], check["error"]) for check in accounts.checks)
    end, largest = points[-1][0], max(error for _, error in points)
    steps, errors = round_numbers(0.0, float(end)), round_numbers(0.0, largest or 1.0)
    marks = [Mark(float(one["step"]), "plan") for one in accounts.selections if one["step"] <= end]
    few = len(marks) <= _MOST_MARKS
    caption = join(
        [
            "By how much of the loss its quadratic model was off at each check. ",
            "Dotted marks are new choices." if few else "It falls to zero with every new choice.",
        ]
    )
    return chart(
        "Error of the model of the loss",
        f"Error of the model of the loss over {number(end)} steps, at most {largest:.3g}",
        [Line("error", points, "named-0")],
        x=Axis(0.0, float(end), tuple((step, number(step)) for step in steps if step <= end)),
        y=Axis(0.0, errors[-1], tuple((error, f"{error:g}") for error in errors)),
        marks=marks if few else [],
        caption=caption,
        along="optimizer steps",
        labelled=False,
    )
