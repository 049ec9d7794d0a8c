import functools
from dataclasses import replace

import pytest

import holdfast.papers.fingerprint as module
from holdfast.errors import ConfigError
from holdfast.papers.experiment import Cell, Claim, Printed, Verdict
from holdfast.papers.fingerprint import Fingerprint, cell_sources, fingerprint
from tests.papers.toy import a_beats_b, add, b_beats_a, reference, toy_experiment


def at_least(results, bound):
    return Verdict(results.mean("toy/a", "score") >= bound, "")


def bounded(bound):
    return lambda results: Verdict(results.mean("toy/a", "score") >= bound, "")


def test_the_same_declaration_has_the_same_fingerprint(tmp_path):
    assert fingerprint(toy_experiment(tmp_path), "cpu") == fingerprint(toy_experiment(tmp_path), "cpu")


@pytest.mark.parametrize(
    "changes",
    [
        {"printed": {"toy/a": {"score": Printed(1.6, 0.5)}}},
        {"claims": ()},
        {"claims": (Claim("b beats a", a_beats_b),)},
        {"spread": "population"},
        {"cells": lambda scale: (Cell("toy/a", reference(add), {"base": 1}),)},
    ],
    ids=["printed", "no claims", "another predicate", "spread", "settings"],
)
def test_a_change_of_the_declaration_makes_results_stale(tmp_path, changes):
    experiment = toy_experiment(tmp_path)
    before, now = fingerprint(experiment, "cpu"), fingerprint(replace(experiment, **changes), "cpu")
    assert before.stale_since(now) == "declaration changed"


@pytest.mark.parametrize("make", [bounded, lambda bound: functools.partial(at_least, bound=bound)])
def test_the_bound_of_a_claim_is_part_of_it(tmp_path, make):
    one, two, same = (
        fingerprint(toy_experiment(tmp_path, claims=(Claim("large", make(bound)),)), "cpu") for bound in (1, 2, 1)
    )
    assert one == same
    assert one.stale_since(two) == "declaration changed"


def test_a_title_is_no_part_of_it(tmp_path):
    experiment = toy_experiment(tmp_path)
    assert fingerprint(replace(experiment, title="Other"), "cpu") == fingerprint(experiment, "cpu")


def test_claims_may_hold_on_to_functions(tmp_path):
    wrapped = functools.partial(b_beats_a)
    assert fingerprint(toy_experiment(tmp_path, claims=(Claim("b", wrapped),)), "cpu")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for holdfast's source with a package and a module in it."""
    root = tmp_path / "holdfast"
    (root / "training").mkdir(parents=True)
    (root / "training" / "fit.py").write_text('"""Fits."""\n\nRATE = 1  # a rate\n')
    (root / "errors.py").write_text("KINDS = 3\n")
    monkeypatch.setattr(module, "_PACKAGE", root)
    return root


def sources():
    cell = Cell("toy/a", reference(add), {}, depends=("errors",))
    return Fingerprint("same", cell_sources(cell, depends=("training",)))


def test_a_change_of_code_names_the_package_that_changed(package):
    before = sources()
    (package / "training" / "fit.py").write_text('"""Fits."""\n\nRATE = 22  # a rate\n')
    assert before.stale_since(sources()) == "training changed since"


def test_a_new_module_changes_its_package(package):
    before = sources()
    (package / "training" / "extra.py").write_text("X = 1\n")
    assert before.stale_since(sources()) == "training changed since"


def test_a_cell_can_depend_on_a_single_module(package):
    before = sources()
    (package / "errors.py").write_text("KINDS = 4\n")
    assert before.stale_since(sources()) == "errors changed since"


def test_comments_and_docstrings_do_not_make_results_stale(package):
    before = sources()
    text = '"""Fits,\nand says so.\n"""\n\n\n# A word about rates.\nRATE = 1  # the rate\n'
    (package / "training" / "fit.py").write_text(text)
    assert before.stale_since(sources()) is None


def test_a_text_that_looks_like_a_comment_or_a_docstring_counts(package):
    file = package / "training" / "fit.py"
    seen = []
    for body in ('X = "# one"\n', 'X = "# two"\n', 'def f(): "one"\n', 'def g(): "one"\n', "def f():\n    ...\n"):
        file.write_text(body)
        seen.append(sources().sources["training"])
    assert len(set(seen)) == len(seen)


def test_the_module_of_the_function_counts_without_being_named():
    assert "tests.papers.toy" in cell_sources(Cell("toy/a", reference(add)))


def test_a_dependency_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'training'"):
        cell_sources(Cell("toy/a", reference(add)), depends=("trainin",))
