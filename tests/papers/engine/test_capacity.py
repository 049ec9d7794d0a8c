"""The cost model of a federation: it finds what costs are made of, and says how far off it is."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from holdfast.errors import HoldfastError
from holdfast.papers.engine.capacity import COSTS, MILLION, Measured, amount, fitted, page, read_runs, size

SIZES = [
    (100, 20, 2, 210),
    (100, 100, 2, 7946),
    (1000, 100, 8, 210),
    (1000, 1000, 2, 210),
    (10_000, 1000, 8, 7946),
    (100_000, 100, 2, 210),
    (100_000, 1000, 2, 7946),
]


def run(sizes, **costs):
    blank = dict.fromkeys((*COSTS, "seconds"), 1.0)
    return Measured(*sizes, **(blank | costs), kept=sizes[1])


def made_of(cost, **terms):
    """Runs whose cost is exactly the sum of these terms."""
    names = {name.replace("_", " "): value for name, value in terms.items()}
    runs = [run(sizes) for sizes in SIZES]
    return [replace(each, **{cost: sum(value * each.term(name) for name, value in names.items())}) for each in runs]


@pytest.mark.parametrize(
    ("cost", "terms"),
    [
        ("server_cpu", {"message": 0.02, "client_of_the_round": 1e-4, "parameter_sent": 2e-8, "client": 1e-6}),
        ("server_cpu", {"message": 0.02, "client": 1e-6}),
        ("server_memory", {"fixed": 4e8, "client": 300.0, "parameter_sent": 16.0}),
        ("disk", {"kept_client": 4096.0, "kept_parameter": 8.0}),
    ],
)
def test_the_terms_of_a_cost_are_found_again(cost, terms):
    fit = fitted(made_of(cost, **terms), cost)
    for name, value in fit.terms.items():
        assert value == pytest.approx(terms.get(name.replace(" ", "_"), 0.0), rel=1e-6, abs=1e-12)
    assert fit.worst < 1e-6
    assert fit.at(run((1_000_000, 1000, 10, 8000))) == pytest.approx(
        sum(value * run((1_000_000, 1000, 10, 8000)).term(name.replace("_", " ")) for name, value in terms.items())
    )


def test_what_no_sum_explains_is_told_as_an_error():
    runs = made_of("server_cpu", message=0.02)
    runs[0] = replace(runs[0], server_cpu=3 * runs[0].server_cpu)
    assert 0.3 < fitted(runs, "server_cpu").worst < 0.9


def test_the_page_has_every_run_every_cost_and_a_million_clients(tmp_path):
    runs = [run(sizes) for sizes in SIZES]
    text = page(runs, "0123456789abcdef", "the machine slept")
    assert text.count("\n| 100,000 |") == 2
    assert all(name in text for name, _, _ in COSTS.values())
    assert sum(f"| {nodes:,} | {m:,} | {p:,} |" in text for nodes, m, p in MILLION) == len(MILLION)
    assert "0123456789ab" in text and "the machine slept" in text
    file = tmp_path / "runs.json"
    file.write_text(json.dumps({"commit": "abc", "note": "it slept", "runs": [asdict(each) for each in runs]}))
    assert read_runs(file) == (runs, "abc", "it slept")
    file.write_text(json.dumps({"commit": "abc", "note": "", "runs": [{"clients": 3}]}))
    with pytest.raises(HoldfastError):
        read_runs(file)


def test_amounts_have_units_that_suit_them():
    assert [size(value) for value in (12.0, 4096.0, 3.2e7, 1.6e10)] == ["12 B", "4.1 kB", "32 MB", "16 GB"]
    assert [amount(value, "s") for value in (2.0, 0.0034, 5e-6, 3e-9)] == ["2 s", "3.4 ms", "5 µs", "3 ns"]
