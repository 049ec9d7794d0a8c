"""The notebooks run in a fresh kernel, and print what is committed."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_code_blocks import expect_lines

pytest.importorskip("nbclient")

_spec = importlib.util.spec_from_file_location("run_notebooks", ROOT / "docs" / "notebooks" / "run.py")
notebooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(notebooks)


def printed(cells) -> list[str]:
    """What each cell of code printed or was worth; a picture stands as its type."""
    texts = []
    for cell in cells:
        for output in cell.get("outputs", []):
            shown = output.get("text") or ("picture" if "image/png" in output["data"] else output["data"]["text/plain"])
            texts.append(shown if isinstance(shown, str) else "".join(shown))
    return texts


@pytest.mark.parametrize("file", notebooks.NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_prints_what_is_committed(file: Path):
    committed = printed(json.loads(file.read_text())["cells"])
    ran = printed(notebooks.run(file).cells)
    assert len(ran) == len(committed) > 2
    for number, (shown, actual) in enumerate(zip(committed, ran, strict=True)):
        expect_lines(shown, actual, f"{file.name}, output {number}")


def test_the_choice_of_fine_tuning_data_shows_equal_shares():
    """Numbers are not compared above, and this notebook's are what it is about."""
    (shares,) = [text for text in printed(json.loads(notebooks.NOTEBOOKS[1].read_text())["cells"]) if " kept" in text]
    assert re.findall(r"(\w+) +(\d+) of", shares) == [("sums", "24"), ("products", "24"), ("sequences", "12")]


def test_there_is_one_for_each_subject():
    assert [file.stem for file in notebooks.NOTEBOOKS] == ["federation", "fine-tuning-data", "group-failure"]
