"""Public instruction formats, each from its file to a subset in the same form, and damaged rows of all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.readers.instructions import Instructions, read_instructions
from holdfast.errors import DataError
from holdfast.finetuning import FineTuningSettings, LanguageModel, s2l_select
from holdfast.finetuning.proxy import record_trajectories
from tests.finetuning.small import language

WEATHER = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}

#: A row of each format as its data sets have it, what the assistant says in it, and the source.
FORMATS: Mapping[str, tuple[Mapping[str, Any], tuple[str, ...], str]] = {
    "ShareGPT, several turns": (
        {
            "id": "identity_0",
            "conversations": [
                {"from": "human", "value": "Who wrote it?"},
                {"from": "gpt", "value": "Ann wrote it."},
                {"from": "human", "value": "Sure?"},
                {"from": "gpt", "value": "Yes."},
            ],
        },
        ("Ann wrote it.", "Yes."),
        "all",
    ),
    "OpenAI with tools": (
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "How warm is it?"},
                {"role": "assistant", "content": None, "tool_calls": [WEATHER]},
                {"role": "tool", "tool_call_id": "1", "content": "12"},
                {"role": "assistant", "content": "Twelve degrees."},
            ],
            "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
        },
        ("weather", "Twelve degrees."),
        "all",
    ),
    "OpenAI with content parts": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Say "}, {"type": "text", "text": "it."}]},
                {"role": "assistant", "content": [{"type": "text", "text": "Said."}]},
            ]
        },
        ("Said.",),
        "all",
    ),
    "Alpaca": (
        {"instruction": "Add them.", "input": "1, 2", "output": "3", "text": "Below is ... 3"},
        ("3",),
        "all",
    ),
    "Dolly": (
        {"instruction": "When?", "context": "It was 1999.", "response": "In 1999.", "category": "closed_qa"},
        ("In 1999.",),
        "closed_qa",
    ),
    "OASST as messages": (
        {
            "messages": [
                {"role": "prompter", "content": "Hello."},
                {"role": "assistant", "content": "Good day."},
            ],
            "source": "oasst1",
        },
        ("Good day.",),
        "oasst1",
    ),
    "Tulu": (
        {
            "id": "sci_1",
            "dataset": "science",
            "messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}],
        },
        ("Because.",),
        "science",
    ),
    "MathInstruct": (
        {"source": "data/CoT/aqua_rat.json", "instruction": "2 + 2?", "output": "It is 4. The answer is 4"},
        ("It is 4. The answer is 4",),
        "data/CoT/aqua_rat.json",
    ),
    "OpenOrca": (
        {"id": "flan.1", "system_prompt": "Explain.", "question": "Is it so?", "response": "It is so."},
        ("It is so.",),
        "all",
    ),
    "GSM8K": ({"question": "3 - 1?", "answer": "3 - 1 = 2\n#### 2"}, ("3 - 1 = 2\n#### 2",), "all"),
    "TRL, prompt and completion": (
        {
            "prompt": [{"role": "user", "content": "Colour of the sky?"}],
            "completion": [{"role": "assistant", "content": "Blue."}],
        },
        ("Blue.",),
        "all",
    ),
    "TRL, preferences": (
        {
            "chosen": [{"role": "user", "content": "Two?"}, {"role": "assistant", "content": "2"}],
            "rejected": [{"role": "user", "content": "Two?"}, {"role": "assistant", "content": "3"}],
        },
        ("2",),
        "all",
    ),
    "UltraChat": (
        {
            "prompt": "Name one.",
            "prompt_id": "a",
            "messages": [{"role": "user", "content": "Name one."}, {"role": "assistant", "content": "One."}],
        },
        ("One.",),
        "all",
    ),
    "LLaMA-Factory with a history": (
        {"instruction": "Now?", "input": "", "output": "Three.", "history": [["One?", "1."], ["Two?", "2."]]},
        ("1.", "2.", "Three."),
        "all",
    ),
    "HH-RLHF": (
        {
            "chosen": "\n\nHuman: Hi?\n\nAssistant: Hello.\n\nHuman: Well?\n\nAssistant: Fine.",
            "rejected": "\n\nHuman: Hi?\n\nAssistant: No.",
        },
        ("Hello.", "Fine."),
        "all",
    ),
    "Capybara, pairs": (
        {"source": "made", "conversation": [{"input": "Q", "output": "A."}, {"input": "R", "output": "B."}]},
        ("A.", "B."),
        "made",
    ),
    "Firefly, pairs": ({"conversation": [{"human": "Q", "assistant": "A."}]}, ("A.",), "all"),
    "Gemini": (
        {
            "systemInstruction": {"role": "system", "parts": [{"text": "Briefly."}]},
            "contents": [{"role": "user", "parts": [{"text": "Q"}]}, {"role": "model", "parts": [{"text": "A."}]}],
        },
        ("A.",),
        "all",
    ),
    "Anthropic with tools": (
        {
            "system": "Briefly.",
            "messages": [
                {"role": "user", "content": "How warm?"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "weather", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "12"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "Twelve."}]},
            ],
        },
        ("weather", "Twelve."),
        "all",
    ),
    "Cohere": (
        {"messages": [{"role": "User", "content": "Q"}, {"role": "Chatbot", "content": "A."}]},
        ("A.",),
        "all",
    ),
    "TRL, unpaired preferences": ({"prompt": "Q", "completion": "A.", "label": True}, ("A.",), "all"),
    "columns in capitals": ({"Question": "Q", "Answer": "A.", "Category": "maths"}, ("A.",), "maths"),
    "plain text": ({"text": "Once there was a house."}, ("Once there was a house.",), "all"),
}

ROWS = 8
QUICK = FineTuningSettings(epochs=1, batch_size=2, learning_rate=1e-2)


@pytest.fixture(scope="module")
def proxy() -> LanguageModel:
    return language()


def file_of(row: Mapping[str, Any], folder: Path) -> Path:
    file = folder / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for _ in range(ROWS)))
    return file


@pytest.mark.parametrize("name", FORMATS)
def test_a_public_format_goes_from_its_file_to_a_subset_of_it(name: str, tmp_path: Path, proxy: LanguageModel) -> None:
    row, said, source = FORMATS[name]
    data = read_instructions(file_of(row, tmp_path))
    chat = data.chats[0]
    learned = [chat.turns[place][1] for place in chat.learned]
    assert len(learned) == len(said)
    assert all(part in text for part, text in zip(said, learned, strict=True))
    assert data.source_names == (source,)
    curves = record_trajectories(data, proxy, tmp_path / "proxy", QUICK, template="auto", points=1)
    assert not curves.undefined.any()
    chosen = s2l_select(curves.losses, 3, k=2, sources=data.sources).positions
    assert [json.loads(line) for line in data.part(chosen).encoded(".jsonl").splitlines()] == [row] * 3


def test_an_answer_that_is_marked_as_bad_is_not_learned() -> None:
    """TRL's unpaired preferences have both, and the bad ones once were learned like the others."""
    rows = [{"prompt": "Q", "completion": text, "label": good} for text, good in (("A.", True), ("Go away.", False))]
    with pytest.raises(DataError, match="is one not to give"):
        Instructions.of([json.dumps(row) for row in rows])
    data = Instructions.of(rows, skip_bad=True)
    assert (data.responses, len(data.skipped)) == (("A.",), 1)


def test_single_messages_of_a_tree_are_no_conversations() -> None:
    row = {"message_id": "a", "parent_id": None, "text": "What is it?", "role": "prompter"}
    with pytest.raises(DataError, match="single messages of trees"):
        Instructions.of([row])


def test_a_text_among_conversations_is_none() -> None:
    messages = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A."}]
    data = Instructions.of([{"messages": messages}, {"messages": "nothing"}], skip_bad=True)
    assert (len(data), len(data.skipped)) == (1, 1)


def test_what_people_say_is_not_learned_where_a_conversation_is_one_text() -> None:
    data = Instructions.of([{"chat": "USER: Hi\n\n\nASSISTANT: Hello\nUser: friends\nASSISTANT: Bye"}])
    assert data.chats[0].turns == (("user", "Hi"), ("assistant", "Hello"), ("user", "friends"), ("assistant", "Bye"))
    assert data.chats[0].learned == (1, 3)
    assert Instructions.of([{"text": "User: Hi\nAssistant: Hello"}]).chats[0].learned == (0,)  # a text is learned whole


ODD: tuple[Any, ...] = (
    None, "", " ", 0, -1, 1e400, True, [], {}, [[]], [None], [{}], "[", "[{", "\ud800", "\x00", "{prompt}",
    "<|endoftext|>", "a" * 3000, [{"role": "user"}], [{"role": 3, "content": {}}], [{"from": "gpt", "value": None}],
    {"role": "user"},
    [{"role": "assistant", "content": [{"type": "image_url"}]}], [{"role": "assistant", "tool_calls": 7}],
    [{"role": "assistant", "content": "x", "weight": "heavy"}],
)  # fmt: skip


def damaged(draw: np.random.Generator) -> str:
    """A row of some format with something odd in it, or half a line."""
    row = json.loads(json.dumps(list(FORMATS.values())[draw.integers(len(FORMATS))][0]))
    kind = draw.integers(5)
    names = list(row)
    name = names[draw.integers(len(names))]
    odd = ODD[draw.integers(len(ODD))]
    if kind == 0:
        del row[name]
    elif kind == 1:
        row[name] = odd
    elif kind == 2 and isinstance(row[name], list):
        row[name].insert(int(draw.integers(len(row[name]) + 1)), odd)
    elif kind == 3 and isinstance(row[name], list) and isinstance(row[name][0], dict):
        key = list(row[name][0])[-1]
        row[name][int(draw.integers(len(row[name])))][key] = odd
    text = json.dumps(row)
    return text[: draw.integers(1, len(text))] if kind == 4 else text


@given(st.integers(0, 2**32))
def test_damaged_rows_are_passed_over_or_named_in_a_sentence(seed: int) -> None:
    """Five rows of any format, damaged; a hundred times in every run of the tests."""
    draw = np.random.default_rng(seed)
    lines = [damaged(draw) for _ in range(5)]
    for skip_bad in (True, False):
        try:
            data = Instructions.of(lines, skip_bad=skip_bad)
        except DataError as error:
            assert "\n" not in str(error)
            continue
        assert len(data) + len(data.skipped) == sum(1 for line in lines if line.strip())
        assert all(chat.learned for chat in data.chats)


def test_500_damaged_rows_do_not_end_a_recording(tmp_path: Path, proxy: LanguageModel) -> None:
    draw = np.random.default_rng(1)
    good, _, _ = FORMATS["OpenAI with content parts"]
    lines = [json.dumps(good), *(damaged(draw) for _ in range(500))]
    data = Instructions.of(lines, skip_bad=True)
    assert len(data) + len(data.skipped) == 501
    assert len(data.skipped) > 100
    settings = FineTuningSettings(epochs=1, batch_size=8, learning_rate=1e-2)
    curves = record_trajectories(data, proxy, tmp_path, settings, max_length=96, points=1, skip_bad=True)
    assert np.isfinite(curves.losses).all()
