import json
from pathlib import Path

import pytest

from holdfast.data.sets.text.math_problems import FILES, final_answer, load_math_problems
from holdfast.errors import DataError


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "count", "first", "solution"),
    [
        ("gsm8k", 7473, "Natalia sold clips", "Natalia sold 48/2 = 24 clips in May."),
        ("gsm8k-test", 1319, "Janet", None),
        (
            "mawps-asdiv",
            3138,
            "Bryan took a look at his books as well. If Bryan has 56 books",
            "56 * 9 = 504\n#### 504",
        ),
        ("svamp", 1000, "Each pack of dvds costs 76 dollars.", "76 - 25 = 51\n#### 51"),
    ],
)
def test_published_files(shared_data: Path, name: str, count: int, first: str, solution: str | None) -> None:
    data = load_math_problems(name, shared_data)
    assert len(data) == count
    assert data.prompts[0][0][1].startswith(first)
    assert "<<" not in "".join(data.responses)
    assert all(final_answer(response) for response in data.responses)
    if solution is not None:
        assert data.responses[0].startswith(solution)


def test_equations_are_written_as_people_write_them(tmp_path: Path) -> None:
    (tmp_path / "math").mkdir()
    rows = [
        "Question,Numbers,Equation,Answer",
        '"Has number0 , and number1 ?",25000.0 1.5 8.0,- number0 * number1 number2,24988.0',
    ]
    (tmp_path / "math/mawps_asdiv_train.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "math/SVAMP.json").write_text(
        json.dumps([{"Body": "A", "Question": "B ?", "Equation": "( ( 1.0 + 2.0 ) * ( 3.0 - 1.0 ) )", "Answer": 6.0}])
    )
    mawps, svamp = (load_math_problems(name, tmp_path) for name in ("mawps-asdiv", "svamp"))
    assert mawps.prompts[0][0][1] == "Has 25000, and 1.5?"
    assert mawps.responses == ("25000 - ( 1.5 * 8 ) = 24988\n#### 24988",)
    assert svamp.prompts[0][0][1] == "A. B?"
    assert svamp.responses == ("( 1 + 2 ) * ( 3 - 1 ) = 6\n#### 6",)


def test_what_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no math problems called 'gsm9k'"):
        load_math_problems("gsm9k", tmp_path)
    (tmp_path / "math").mkdir()
    (tmp_path / FILES["gsm8k"].path).write_text('{"question": "a"}\n')
    with pytest.raises(DataError, match="as they are published"):
        load_math_problems("gsm8k", tmp_path)
