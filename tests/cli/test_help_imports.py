"""Help pages import what they show, and no more."""

import pytest

from tests.test_lazy import in_a_new_process

BESIDE_FIT = ("coresets", "federated", "integrations", "multimodal", "poisoning", "report")
HEAVY = ("torch", "numpy", "sklearn", "scipy", "pyarrow", "PIL", "transformers", "numba", "flwr")


def imported_by(words: str) -> set[str]:
    """The modules that a command has imported when its help is printed."""
    printed = in_a_new_process(
        f"""
        import contextlib, io, sys
        from holdfast.cli.main import main
        page = io.StringIO()
        with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
            main({words.split()!r})
        assert "holdfast" in page.getvalue()
        print(*sys.modules, sep="\\n")
        """
    )
    return set(printed.split())


LIGHT = ["", "demo", "predict", "evaluate", "export", "audit", "select", "data", "runs", "report", "reproduce", "sweep"]
LIGHT += ["federation", "federation admit", "federation serve", "federation status"]


@pytest.mark.parametrize("words", [f"{command} --help".strip() for command in LIGHT])
def test_pages_that_show_no_class_of_the_library_import_nothing_heavy(words):
    modules = imported_by(words)
    assert not modules & set(HEAVY)
    most = 30 if words.startswith("select") else 20  # the options of its eight methods
    assert len([name for name in modules if name.startswith("holdfast")]) <= most


@pytest.mark.parametrize(
    ("words", "most", "needless"),
    [
        ("fit --help", 57, BESIDE_FIT),
        ("fit --method spare --help", 74, BESIDE_FIT),
        ("federate --help", 88, ("coresets", "multimodal", "poisoning", "spurious")),
    ],
)
def test_pages_that_show_options_import_the_classes_they_show_and_no_room_beside(words, most, needless):
    modules = imported_by(words)
    own = {name for name in modules if name.startswith("holdfast.")}
    assert len(own) <= most, sorted(own)
    assert not modules & {"sklearn", "scipy", "pyarrow", "PIL", "transformers", "numba", "flwr"}
    assert not {name for name in own if name.startswith(tuple(f"holdfast.{room}." for room in needless))}
