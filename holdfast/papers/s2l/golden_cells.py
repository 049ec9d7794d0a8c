"""A data root that holds next to nothing, for golden cells of S2L: problems of a line and models of few weights.

The tables on problems read published sets, and the one at the document's scale models of the hub. Here the same code
reads files of the same form that are made on the spot.
"""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.data.readers.instructions import Instructions
from holdfast.finetuning import small_language_model
from holdfast.papers.common.golden_cells import together

_PLACE = "ROOT"  # in settings: the folder
_OF_EACH = 16


def in_small_root(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Compute cells with a small data root of their own.

    Args:
        settings: as for `together`; strings that begin with ``ROOT`` are paths in the folder, which has
            ``train.jsonl``, the language models ``proxy`` and ``target``, and the sets of math problems.
        seed: of the cells; the folder is always the same.
    """
    with tempfile.TemporaryDirectory() as folder:
        _fill(Path(folder))
        with _data_root(folder):
            return together(_placed(dict(settings), folder), seed)


@contextmanager
def _data_root(folder: str) -> Iterator[None]:
    before = os.environ.get("HOLDFAST_DATA")
    os.environ["HOLDFAST_DATA"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["HOLDFAST_DATA"]
        else:
            os.environ["HOLDFAST_DATA"] = before


def _placed(value: Any, folder: str) -> Any:
    if isinstance(value, dict):
        return {key: _placed(part, folder) for key, part in value.items()}
    if isinstance(value, str) and value.startswith(_PLACE):
        return folder + value.removeprefix(_PLACE)
    return value


def _fill(root: Path) -> None:
    math = root / "math"
    math.mkdir()
    pairs = [(3 + 5 * place % 11, 2 + 3 * place % 7) for place in range(_OF_EACH)]
    for name, word in (("gsm8k_train.jsonl", "apples"), ("gsm8k_test.jsonl", "pears")):
        lines = [
            {"question": f"Ann has {a} {word} and finds {b}. How many?", "answer": f"{a} + {b} = {a + b}\n#### {a + b}"}
            for a, b in pairs
        ]
        (math / name).write_text("\n".join(json.dumps(line) for line in lines))
    with (math / "mawps_asdiv_train.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["Question", "Numbers", "Equation", "Answer"])
        table.writeheader()
        for a, b in pairs:
            row = {"Question": f"number0 birds and number1 {'more ' * (a % 3)}birds", "Equation": "+ number0 number1"}
            table.writerow({**row, "Numbers": f"{a} {b}", "Answer": a + b})
    problems = [
        {"Body": f"There are {a} cups.", "Question": f"{b} break?", "Equation": f"( {a}.0 - {b}.0 )", "Answer": a - b}
        for a, b in pairs
    ]
    (math / "SVAMP.json").write_text(json.dumps(problems))
    rows = [
        {
            "instruction": f"{('add', 'take', 'name')[place % 3]} {'very ' * (place % 5)}{place}",
            "output": f"it is {place * 7 % 10}" + " indeed" * (place % 3),
            "source": ("sums", "sums", "words", "names")[place % 4],
        }
        for place in range(3 * _OF_EACH)
    ]
    data = Instructions.of(rows)
    (root / "train.jsonl").write_bytes(data.encoded(".jsonl"))
    for name, width in (("proxy", 16), ("target", 24)):
        language = small_language_model(data.responses, layers=2, width=width, heads=2, vocabulary=300, seed=width)
        model: Any = language.model
        model.save_pretrained(root / name)
        language.tokenizer.save_pretrained(root / name)
