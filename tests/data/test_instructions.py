import json
from pathlib import Path

import numpy as np
import pytest

from holdfast.data.instructions import Columns, Instructions, read_instructions
from holdfast.errors import DataError

USER = (("user", "Add 1 and 2."),)

ROWS = {
    "alpaca": {"instruction": "Add 1 and 2.", "input": "", "output": "3"},
    "mathinstruct": {"source": "data/CoT/gsm.json", "instruction": "Add 1 and 2.", "output": "3"},
    "prompt and completion": {"prompt": "Add 1 and 2.", "completion": "3"},
    "question and answer": {"question": "Add 1 and 2.", "answer": "3", "level": 5},
    "messages": {"messages": [{"role": "user", "content": "Add 1 and 2."}, {"role": "assistant", "content": "3"}]},
    "sharegpt": {"conversations": [{"from": "human", "value": "Add 1 and 2."}, {"from": "gpt", "value": "3"}]},
    "lists": {"prompt": [{"role": "user", "content": "Add 1 and 2."}],
              "completion": [{"role": "assistant", "content": "3"}]},
    "number": {"problem": "Add 1 and 2.", "solution": 3},
}  # fmt: skip


@pytest.mark.parametrize("kind", ROWS)
def test_ordinary_formats(kind: str) -> None:
    data = Instructions.of([ROWS[kind]])
    assert data.prompts == (USER,)
    assert data.responses == ("3",)
    assert data.source_names == (("data/CoT/gsm.json",) if kind == "mathinstruct" else ("all",))


def test_alpaca_applies_instructions_to_inputs() -> None:
    data = Instructions.of([{"instruction": "Translate.", "input": "Hund", "output": "dog"}])
    assert data.prompts == ((("user", "Translate.\n\nHund"),),)


def test_a_conversation_ends_with_the_response() -> None:
    turns = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Bye"), ("assistant", "Ciao")]
    data = Instructions.of([{"messages": [{"role": role, "content": said} for role, said in turns]}])
    assert data.prompts == (tuple(turns[:-1]),)
    assert data.responses == ("Ciao",)


def test_columns_by_name() -> None:
    rows = [{"text": "Hund", "english": "dog", "kind": b} for b in ("noun", "verb", "noun")]
    data = Instructions.of(rows, Columns("text", "english", "kind"))
    assert data.source_names == ("noun", "verb")
    assert data.sources.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([], Columns(), "no rows"),
        ([{"text": "a", "english": "b"}], Columns(), "--prompt-column"),
        ([{"prompt": "a", "response": "b"}], Columns(prompt="promt"), "no column 'promt'; did you mean 'prompt'"),
        ([{"prompt": "a", "response": "b"}, {"prompt": "a"}], Columns(), "row 2 of data has no prompt"),
        ([{"prompt": "a", "response": None}], Columns(), "row 1 of data has no prompt"),
        ([{"messages": [{"role": "user", "content": "a"}]}], Columns(), "not the assistant's"),
        ([{"messages": [{"role": "robot", "content": "a"}]}], Columns(), "robot"),
        (["{"], Columns(), "line 1 of data is no JSON"),
        (["3"], Columns(), "line 1 of data has no columns"),
        ([3], Columns(), "row 1 of data has no columns"),
        (["", " "], Columns(), "no rows"),
    ],
)
def test_what_can_not_be_read(rows: list, columns: Columns, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Instructions.of(rows, columns)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_a_subset_is_written_in_the_format_of_the_file(tmp_path: Path, suffix: str) -> None:
    rows = [{"prompt": f"p{i}", "response": f"r{i}", "note": {"é": i}} for i in range(5)]
    given = tmp_path / f"all{suffix}"
    given.write_bytes(Instructions("data", (), (), np.empty(0, np.int64), (), rows).encoded(suffix))
    data = read_instructions(given)
    part = data.part(np.array([3, 1]))
    (tmp_path / f"part{suffix}").write_bytes(part.encoded(suffix))
    again = read_instructions(tmp_path / f"part{suffix}")
    assert again.responses == ("r3", "r1")
    assert json.loads(again.encoded(".jsonl").splitlines()[0]) == rows[3]
    if suffix == ".jsonl":
        assert set((tmp_path / "part.jsonl").read_text().splitlines()) < set(given.read_text().splitlines())


def test_files_that_are_not_there_or_not_whole(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        read_instructions(tmp_path / "missing.jsonl")
    (tmp_path / "a.json").write_text('{"rows": []}')
    with pytest.raises(DataError, match="no list of rows"):
        read_instructions(tmp_path / "a.json")
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="can't be read"):
        read_instructions(tmp_path / "a.parquet")
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(DataError, match=r"no \.jsonl, \.json or \.parquet"):
        read_instructions(tmp_path / "a.txt")


@pytest.mark.parametrize(("broken", "message"), [("{", "is no JSON"), ('{"prompt": "a"}', "has no prompt with")])
def test_a_line_is_counted_as_an_editor_counts_it(tmp_path: Path, broken: str, message: str) -> None:
    good, file = '{"prompt": "a", "response": "b"}', tmp_path / "a.jsonl"
    file.write_text("\n".join([good, "", "  ", good, broken]))
    with pytest.raises(DataError, match=f"line 5 of {file} {message}"):
        read_instructions(file)
    file.write_text("\n".join([good, "", "  ", good, ""]))
    assert read_instructions(file).rows == [good, good]


def test_a_folder_goes_through_datasets(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    (tmp_path / "train.jsonl").write_text('{"prompt": "a", "response": "b"}\n')
    assert read_instructions(tmp_path).responses == ("b",)


def test_fingerprints_tell_data_apart() -> None:
    one, same, other = (Instructions.of([{"prompt": "a", "response": text}]).fingerprint for text in ("b", "b", "c"))
    assert one == same != other
