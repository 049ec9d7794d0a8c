"""Small files in the published forms of MATH, NumGLUE, SimulEq and Mathematics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.data.sets.text.math_files import boxed, read_math_file
from holdfast.data.sets.text.math_problems import final_answer
from holdfast.errors import DataError

MATH = {
    "problem": "What is half of $1$?",
    "level": "Level 1",
    "type": "Prealgebra",
    "solution": "Half of it is $1 / 2$, so $\\boxed{\\frac{1}{2}}$.",
}
NUMGLUE = [
    {"question": "Ann has 3 pens and buys 4. How many?", "answer": 7, "type": "Type_1"},
    {
        "passage": "They met in 1912.",
        "question": "Who met?",
        "answer": {"number": "", "date": {"day": "", "month": "", "year": ""}, "spans": ["Ann", "Ben"]},
        "type": "Type_6",
    },
    {"question": "When?", "answer": {"number": "", "date": {"day": "3", "month": "May", "year": ""}, "spans": []}},
]
SIMULEQ = {
    "iIndex": 1,
    "sQuestion": "Two numbers sum to 10 and differ by 3.",
    "lEquations": ["x+y=10", "x-y=3"],
    "lSolutions": [6.5, 3.5],
}


def test_math_is_a_folder_of_problems(tmp_path: Path) -> None:
    folder = tmp_path / "algebra"
    folder.mkdir()
    (folder / "1.json").write_text(json.dumps(MATH))
    (folder / "2.json").write_text(json.dumps(MATH | {"type": "Algebra"}))
    data = read_math_file("math", tmp_path)
    assert [final_answer(response) for response in data.responses] == ["\\frac{1}{2}"] * 2
    assert data.source_names == ("Algebra", "Prealgebra")
    assert data.prompts[0][-1][1] == MATH["problem"]


def test_numglue_has_numbers_spans_and_dates(tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps(problem) + "\n" for problem in NUMGLUE))
    data = read_math_file("numglue", file)
    assert [final_answer(response) for response in data.responses] == ["7", "Ann, Ben", "3 May"]
    assert data.prompts[1][-1][1] == "They met in 1912.\nWho met?"


def test_simuleq_has_its_equations_for_a_solution(tmp_path: Path) -> None:
    file = tmp_path / "simuleq.json"
    file.write_text(json.dumps([SIMULEQ]))
    assert read_math_file("simuleq", file).responses == ("x+y=10\nx-y=3\n#### 6.5, 3.5",)


def test_mathematics_alternates_questions_and_answers(tmp_path: Path) -> None:
    (tmp_path / "arithmetic__add.txt").write_text("What is 1 + 2?\n3\nTotal of 4 and -1.\n3\n")
    data = read_math_file("mathematics", tmp_path)
    assert data.responses == ("#### 3", "#### 3")
    assert data.source_names == ("arithmetic__add",)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("math", json.dumps({"problem": "a", "solution": "no box", "type": "b"})),
        ("math", "{"),
        ("numglue", json.dumps({"answer": 3})),
        ("numglue", json.dumps({"question": "q", "answer": {}})),
        ("simuleq", json.dumps([7])),
        ("mathematics", "What?\n"),
        ("mathematics", ""),
    ],
)
def test_another_form_is_said_in_a_sentence(form: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(text)
    with pytest.raises(DataError, match=f"holds no problems in the form {form}"):
        read_math_file(form, file)


def test_what_is_not_there() -> None:
    with pytest.raises(DataError, match="did you mean 'math'"):
        read_math_file("maths", Path())
    with pytest.raises(DataError, match="there is no file nowhere"):
        read_math_file("math", Path("nowhere"))


def test_braces_inside_a_box_belong_to_it() -> None:
    assert boxed("\\boxed{1}, no: \\boxed{ \\sqrt{2}{x} } it is") == "\\sqrt{2}{x}"
    with pytest.raises(ValueError, match="does not end"):
        boxed("\\boxed{1")
