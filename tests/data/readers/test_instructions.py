import io
import json
import math
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.readers.instruction_columns import InstructionColumns
from holdfast.data.readers.instructions import Instructions, read_instructions
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


def test_a_conversation_ends_with_a_response() -> None:
    turns = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Bye"), ("assistant", "Ciao")]
    data = Instructions.of([{"messages": [{"role": role, "content": said} for role, said in turns]}])
    assert data.prompts == (tuple(turns[:-1]),)
    assert data.responses == ("Ciao",)


def test_columns_by_name() -> None:
    rows = [{"text": "Hund", "english": "dog", "kind": b} for b in ("noun", "verb", "noun")]
    data = Instructions.of(rows, InstructionColumns("text", "english", "kind"))
    assert data.source_names == ("noun", "verb")
    assert data.sources.tolist() == [0, 1, 0]


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


@pytest.mark.parametrize("nothing", [None, math.nan, ""])
def test_an_input_without_anything_adds_nothing(nothing: object) -> None:
    data = Instructions.of([{"instruction": "Count.", "input": nothing, "output": "1"}])
    assert data.prompts == ((("user", "Count."),),)


def test_an_input_of_0_is_an_input() -> None:
    assert Instructions.of([{"instruction": "Double.", "input": 0, "output": 0}]).prompts[0][0][1] == "Double.\n\n0"


def test_an_input_goes_behind_the_last_turn_of_the_user() -> None:
    data = Instructions.of([{"instruction": [said("system", "Be brief."), said("user", "Translate.")],
                             "input": "Hund", "output": "dog"}])  # fmt: skip
    assert data.prompts == ((("system", "Be brief."), ("user", "Translate.\n\nHund")),)


def test_turns_before_the_last_of_a_completion_belong_to_the_prompt() -> None:
    completion = [said("assistant", "Hello"), said("user", "Bye"), said("assistant", "Ciao")]
    data = Instructions.of([{"prompt": [said("user", "Hi")], "completion": completion}])
    assert data.prompts == ((("user", "Hi"), ("assistant", "Hello"), ("user", "Bye")),)
    assert data.responses == ("Ciao",)


def test_every_answer_of_a_conversation_is_learned() -> None:
    """A file whose last turns are "Yes." teaches more than "Yes."."""
    turns = [
        said("user", "Name a prime."),
        said("assistant", "Seven."),
        said("user", "Sure?"),
        said("assistant", "Yes."),
    ]
    (chat,) = Instructions.of([{"conversations": turns}]).chats
    assert [chat.turns[place][1] for place in chat.learned] == ["Seven.", "Yes."]


def test_answers_in_a_prompt_are_given_and_those_of_a_completion_learned() -> None:
    prompt = [said("user", "Hi"), said("assistant", "Hello"), said("user", "Bye")]
    completion = [said("assistant", "Ciao"), said("user", "?"), said("assistant", "Bye")]
    (chat,) = Instructions.of([{"prompt": prompt, "completion": completion}]).chats
    assert chat.learned == (3, 5)


def test_a_message_of_weight_0_is_not_learned() -> None:
    turns = [said("user", "a"), {**said("assistant", "b"), "weight": 0}, said("user", "c"), said("assistant", "d")]
    assert Instructions.of([{"messages": turns}]).chats[0].learned == (3,)
    with pytest.raises(DataError, match=r"weight is 0\.5"):
        Instructions.of([{"messages": [said("user", "a"), {**said("assistant", "b"), "weight": 0.5}]}])


def test_what_follows_the_last_answer_is_left_out() -> None:
    (chat,) = Instructions.of([{"messages": [said("user", "a"), said("assistant", "b"), said("user", "c")]}]).chats
    assert chat.turns == (("user", "a"), ("assistant", "b"))


def test_parts_are_joined_and_pictures_refused() -> None:
    parts = [{"type": "text", "text": "Add "}, {"type": "input_text", "text": "1 and 2."}]
    row = {"messages": [{"role": "user", "content": parts}, said("assistant", "3")]}
    assert Instructions.of([row]).prompts == (USER,)
    gemini = {"messages": [{"role": "user", "parts": [{"text": "Add 1 and 2."}]}, {"role": "model", "parts": ["3"]}]}
    assert Instructions.of([gemini]).prompts == (USER,)
    picture = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}
    with pytest.raises(DataError, match=r"row 1 .*part that isn.t text \('image_url'\)"):
        Instructions.of([picture])


def test_tool_calls_are_learned_and_their_results_given() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    row = {
        "tools": [{"type": "function", "function": {"name": "add"}}],
        "messages": [
            said("developer", "Be exact."),
            said("user", "Add."),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "3"},
            said("assistant", "It is 3."),
        ],
    }
    (chat,) = Instructions.of([row]).chats
    assert [role for role, _ in chat.turns] == ["system", "system", "user", "assistant", "tool", "assistant"]
    assert '"name": "add"' in chat.turns[0][1]
    assert chat.learned == (3, 5)
    assert chat.turns[3][1] == '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


PUBLIC = {
    "sharegpt with tools": ({"system": "Be exact.", "conversations": [
        {"from": "human", "value": "Add."}, {"from": "function_call", "value": "{}"},
        {"from": "observation", "value": "3"}, {"from": "gpt", "value": "3."}]}, ["{}", "3."]),
    "dolly": ({"instruction": "Who?", "context": "A man.", "response": "He.", "category": "qa"}, ["He."]),
    "tulu": ({"id": "x", "dataset": "flan", "messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}]}, ["b"]),
    "preferences, plain": ({"prompt": "a", "chosen": "b", "rejected": "c"}, ["b"]),
    "preferences, with the prompt in both": ({"prompt": "a", "chosen": [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "rejected": []}, ["b"]),
    "preferences without a prompt": ({"chosen": [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "rejected": []}, ["b"]),
    "text": ({"text": "All of it."}, ["All of it."]),
    "messages as json": ({"messages": '[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]'},
        ["b"]),
    "flan": ({"inputs": "a", "targets": "b", "task_name": "t"}, ["b"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", PUBLIC)
def test_what_is_learned_of_public_formats(kind: str) -> None:
    row, learned = PUBLIC[kind]
    (chat,) = Instructions.of([row]).chats
    assert [chat.turns[place][1] for place in chat.learned] == learned
    if kind.startswith("preferences"):
        assert chat.turns[:-1] == (("user", "a"),)
    if kind == "text":
        assert chat.turns[:-1] == ()


def test_the_source_is_found_by_its_usual_names_if_it_recurs() -> None:
    rows = [
        {"prompt": "a", "response": "b", "id": i, "source": f"https://{i}", "dataset": f"d{i % 3}"} for i in range(200)
    ]
    data = Instructions.of(rows)
    assert (data.source_column, data.source_names) == ("dataset", ("d0", "d1", "d2"))
    assert Instructions.of(rows, InstructionColumns(source="source")).source_column == "source"
    nested = [{"prompt": "a", "response": "b", "source": {"a": 1}} for _ in range(4)]
    assert Instructions.of(nested).source_column is None


def test_bad_rows_are_passed_over_on_request_and_remembered() -> None:
    good = json.dumps({"prompt": "a", "response": "b"})
    deep = '{"prompt": ' + "[" * 100_000 + "]" * 100_000 + ', "response": "b"}'
    lines = ["{", good, '{"prompt": "a"}', "", "[]", deep, good]
    data = Instructions.of(lines, skip_bad=True)
    assert list(data.rows) == [good, good]
    assert [reason.partition(" of data ")[0] for reason in data.skipped] == ["line 1", "line 5", "line 6", "line 3"]
    with pytest.raises(DataError, match="not one of the 2 rows of data can be read: row 1"):
        Instructions.of([{"prompt": "a", "response": None}] * 2, skip_bad=True)
    with pytest.raises(DataError, match="line 1 of data isn't JSON"):
        Instructions.of(["{"], skip_bad=True)
    with pytest.raises(DataError, match=r"line 1 of data isn't JSON \(nested too deeply\)"):
        Instructions.of([deep])


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["role", "content", "from", "value", "text", "type", "tool_calls", "function", "name", "weight",
                         "parts", "arguments", "function_call"]) | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(["messages", "prompt", "response", "text", "input", "instruction",
                                                 "source", "tools", "system", "chosen"]), ODD, max_size=4),
                min_size=1, max_size=4))  # fmt: skip
def test_odd_rows_are_read_or_refused_with_a_sentence(rows: list) -> None:
    for skip_bad in (False, True):
        try:
            data = Instructions.of(rows, skip_bad=skip_bad)
        except DataError:
            continue
        assert len(data) + len(data.skipped) == len(rows)
        assert all(chat.turns[-1][0] == "assistant" for chat in data.chats)


def test_null_nan_and_missing_sources_are_one_source() -> None:
    row = {"prompt": "a", "response": "b"}
    data = Instructions.of([row, {**row, "source": "x"}, {**row, "source": None}, {**row, "source": math.nan}])
    assert data.source_names == ("(no source)", "x")
    assert data.sources.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("columns", [InstructionColumns("source", "target"), InstructionColumns("prompt", "source")])
def test_the_prompt_or_the_response_is_no_source_unless_it_is_asked_for(columns: InstructionColumns) -> None:
    rows = [{"source": f"s{i}", "target": "t", "prompt": "p"} for i in range(3)]
    assert Instructions.of(rows, columns).source_names == ("all",)
    assert len(Instructions.of(rows, replace(columns, source="source")).source_names) == 3


def test_a_conversation_under_another_name() -> None:
    rows = [{"dialog": [said("user", "Hi"), said("assistant", "Hello")]}]
    data = Instructions.of(rows, InstructionColumns("dialog", "dialog"))
    assert data.prompts == ((("user", "Hi"),),)
    assert data.responses == ("Hello",)


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([], InstructionColumns(), "no rows"),
        ([{"german": "a", "english": "b"}], InstructionColumns(), "--prompt-column"),
        ([{"prompt": "a", "text": "b"}], InstructionColumns(), "--prompt-column"),
        (
            [{"prompt": "a", "response": "b"}],
            InstructionColumns(prompt="promt"),
            "no column 'promt'; did you mean 'prompt'",
        ),
        ([{"prompt": "a", "response": "b"}, {"prompt": "a"}], InstructionColumns(), "row 2 of data has no prompt"),
        ([{"prompt": "a", "response": None}], InstructionColumns(), "row 1 of data has no prompt"),
        ([{"messages": [{"role": "user", "content": "a"}]}], InstructionColumns(), "no message is the assistant's"),
        ([{"messages": [{"role": "robot", "content": "a"}]}], InstructionColumns(), "robot"),
        ([{"prompt": "a", "response": math.nan}], InstructionColumns(), "row 1 of data has no prompt .*nan isn.t text"),
        ([{"prompt": math.nan, "response": "b"}], InstructionColumns(), "row 1 of data has no prompt .*nan isn.t text"),
        ([{"question": "a", "answer": ["b", "c"]}], InstructionColumns(), "row 1 of data .*'b' stands where a message"),
        ([{"question": "a", "answer": []}], InstructionColumns(), "row 1 of data .*no message is the assistant's"),
        ([{"messages": ["a", "b"]}], InstructionColumns(), "row 1 of data .*'a' stands where a message"),
        ([{"messages": []}], InstructionColumns(), "row 1 of data .*no message is the assistant's"),
        (
            [{"prompt": "a", "completion": [said("user", "b")]}],
            InstructionColumns(),
            "row 1 of data .*no message is the assistant's",
        ),
        (
            [{"prompt": "a", "response": "b", "source": "\ud83d"}],
            InstructionColumns(),
            "row 1 of data .*half a character",
        ),
        (
            ['{"prompt": "a \\ud83d", "response": "b"}'],
            InstructionColumns(),
            "line 1 of data .*letter 3 of .*half a character",
        ),
        (["{"], InstructionColumns(), "line 1 of data isn't JSON"),
        (["3"], InstructionColumns(), "line 1 of data has no columns"),
        ([3], InstructionColumns(), "row 1 of data has no columns"),
        (["", " "], InstructionColumns(), "no rows"),
    ],
)
def test_what_can_not_be_read(rows: list, columns: InstructionColumns, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Instructions.of(rows, columns)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_a_subset_is_written_in_the_format_of_the_file(tmp_path: Path, suffix: str) -> None:
    rows = [{"prompt": f"p{i}", "response": f"r{i}", "note": {"é": i}} for i in range(5)]
    given = tmp_path / f"all{suffix}"
    given.write_bytes(Instructions("data", (), np.empty(0, np.int64), (), rows).encoded(suffix))
    data = read_instructions(given)
    part = data.part(np.array([3, 1]))
    (tmp_path / f"part{suffix}").write_bytes(part.encoded(suffix))
    again = read_instructions(tmp_path / f"part{suffix}")
    assert again.responses == ("r3", "r1")
    assert json.loads(again.encoded(".jsonl").splitlines()[0]) == rows[3]
    if suffix == ".jsonl":
        assert set((tmp_path / "part.jsonl").read_text().splitlines()) < set(given.read_text().splitlines())


def test_a_subset_of_a_table_keeps_the_types_of_its_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({
        "prompt": ["a", "b", "c"],
        "response": ["1", "2", "3"],
        "id": pa.array([1, 2, 3], pa.int32()),
        "score": pa.array([0.1, 0.2, 0.3], pa.float32()),
        "big": pa.array([2**63 + 5] * 3, pa.uint64()),
        "rare": ["only me", None, None],
        "when": pa.array([1577836800000000001] * 3, pa.timestamp("ns")),
        "took": pa.array([10**18] * 3, pa.duration("ns")),
        "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
        "pairs": pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
        "meta": pa.array([{"a": 1, "b": None}] * 3, pa.struct([("a", pa.int8()), ("b", pa.string())])),
        "tags": pa.array([[]] * 3, pa.list_(pa.string())),
    }).replace_schema_metadata({"huggingface": "{}"})  # fmt: skip
    pq.write_table(table, tmp_path / "all.parquet")
    part = read_instructions(tmp_path / "all.parquet").part(np.array([1, 2]))
    (tmp_path / "part.parquet").write_bytes(part.encoded(".parquet"))
    found = pq.read_table(tmp_path / "part.parquet")
    assert found.schema.equals(pq.read_table(tmp_path / "all.parquet").schema, check_metadata=True)
    assert found.equals(table.slice(1))
    assert part.responses == ("2", "3")


def test_half_a_character_in_another_column_is_written_as_it_was(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "response": "b", "note": "\ud83d"}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    assert json.loads(read_instructions(tmp_path / "a.json").encoded(".json")) == rows


def test_json_lines_in_a_json_file_stay_lines(tmp_path: Path) -> None:
    lines = '{"prompt": "a",  "response": "b"}\n{"prompt": "c", "response": "d"}\n'
    (tmp_path / "a.json").write_text(lines)
    data = read_instructions(tmp_path / "a.json")
    assert data.responses == ("b", "d")
    assert data.encoded(".json").decode() == lines


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a{suffix}"
    rows = [{"prompt": "a", "response": "b"}]
    file.write_text(json.dumps(rows if suffix == ".json" else rows[0]), "utf-8-sig")
    assert read_instructions(file).responses == ("b",)


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
    with pytest.raises(DataError, match=r"isn't a \.jsonl, \.json or \.parquet"):
        read_instructions(tmp_path / "a.txt")


@pytest.mark.parametrize(("broken", "message"), [("{", "isn't JSON"), ('{"prompt": "a"}', "has no prompt with")])
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
    data = read_instructions(tmp_path)
    assert data.responses == ("b",)
    assert json.loads(data.encoded(data.suffix)) == {"prompt": "a", "response": "b"}


@pytest.mark.parametrize("value", [datetime(2020, 1, 1), b"\xff"])
def test_a_folder_with_columns_that_json_does_not_know_is_kept_as_parquet(tmp_path: Path, value: object) -> None:
    pytest.importorskip("datasets")
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"prompt": "a", "response": "b", "more": [{"value": value}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    data = read_instructions(tmp_path)
    assert data.suffix == ".parquet"
    assert pq.read_table(io.BytesIO(data.encoded(data.suffix))).to_pylist() == rows


def test_fingerprints_tell_data_apart() -> None:
    one, same, other = (Instructions.of([{"prompt": "a", "response": text}]).fingerprint for text in ("b", "b", "c"))
    assert one == same != other
