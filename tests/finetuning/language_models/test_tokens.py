from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.readers.instructions import Instructions
from holdfast.errors import ConfigError, DataError
from holdfast.finetuning import Template, tokenize
from holdfast.finetuning.language_models.tokens import IGNORED
from tests.finetuning.small import instructions, language, tokens_of


def test_an_example_is_its_prompt_its_response_and_the_end() -> None:
    data = instructions()
    model = language(data)
    tokens = tokens_of(data, model)
    item = tokens[5]
    text = model.tokenizer.decode(item["input_ids"])
    assert text == f"{data.prompts[5][0][1]}\n{data.responses[5]}<|endoftext|>"
    learned = item["labels"] != IGNORED
    assert model.tokenizer.decode(item["input_ids"][learned]) == f"{data.responses[5]}<|endoftext|>"


def test_a_batch_is_padded_on_the_right() -> None:
    data = instructions()
    tokens = tokens_of(data, language(data))
    batch = tokens.batch([1, 4, 2])
    for row, position in enumerate([1, 4, 2]):
        item = tokens[position]
        length = len(item["input_ids"])
        assert torch.equal(batch.input_ids[row, :length], item["input_ids"])
        assert torch.equal(batch.labels[row, :length], item["labels"])
        assert bool((batch.labels[row, length:] == IGNORED).all())
        assert batch.attention_mask[row].tolist() == [1] * length + [0] * (batch.input_ids.shape[1] - length)
    collated = tokens.collate([tokens[1], tokens[4], tokens[2]])
    assert torch.equal(collated["input_ids"], batch.input_ids)
    assert torch.equal(collated["labels"], batch.labels)


def test_batches_cover_everything_once_and_stay_within_their_tokens() -> None:
    data = instructions(50)
    tokens = tokens_of(data, language(data))
    batches = tokens.batches(np.arange(50), 100)
    assert sorted(np.concatenate(batches).tolist()) == list(range(50))
    assert all(len(batch) * tokens.lengths[batch].max() <= 100 for batch in batches)
    assert len(batches) < 25
    alone = tokens.batches(np.arange(50), 1)
    assert len(alone) == 50


@pytest.mark.parametrize("count", [2, 3, 7])
def test_shares_of_processes_cover_everything_once_and_have_about_as_many_tokens(count: int) -> None:
    data = instructions(50)
    tokens = tokens_of(data, language(data))
    positions = np.arange(3, 50)
    shares = [tokens.batches(positions, 100, share=(index, count)) for index in range(count)]
    assert sorted(place for share in shares for batch in share for place in batch.tolist()) == positions.tolist()
    weights = [sum(int(tokens.lengths[batch].sum()) for batch in share) for share in shares]
    assert max(weights) - min(weights) <= tokens.lengths.max()
    assert all(len(batch) * tokens.lengths[batch].max() <= 100 for share in shares for batch in share)


def test_a_step_of_fewer_examples_than_processes_leaves_some_without_work() -> None:
    data = instructions(50)
    tokens = tokens_of(data, language(data))
    assert [len(tokens.batches(np.array([4]), 100, share=(index, 2))) for index in range(2)] == [1, 0]


def test_a_part_keeps_its_examples() -> None:
    data = instructions()
    tokens = tokens_of(data, language(data))
    part = tokens.part(np.array([7, 3]))
    assert torch.equal(part[0]["input_ids"], tokens[7]["input_ids"])
    assert torch.equal(part[1]["labels"], tokens[3]["labels"])


def test_a_prompt_that_fills_all_the_room_leaves_no_loss() -> None:
    rows = [{"prompt": "word " * 50, "response": "yes"}, {"prompt": "short", "response": "yes"}]
    data = Instructions.of(rows)
    tokens = tokens_of(data, language(data), max_length=20)
    assert tokens.undefined.tolist() == [True, False]
    assert tokens.lengths.max() == 20
    with pytest.raises(DataError, match="longer than 4 tokens"):
        tokens_of(data, language(data), max_length=4)


def test_an_empty_prompt_still_has_a_token_before_its_response() -> None:
    model = language()
    data = Instructions.of([{"prompt": "", "response": "yes"}])
    tokens = tokenize(data, model.tokenizer, Template("{prompt}"), max_length=9)
    assert tokens.prompt_lengths.tolist() == [1]
    assert not tokens.undefined.any()


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = st.sampled_from(["", "Hello.", "What is 1 + 2?", " 3 ", "<|x|>", "eins\nzwei"])
TURNS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def chatml() -> Any:
    tokenizer = language().tokenizer
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"], "eos_token": "<|im_end|>"})
    tokenizer.chat_template = CHATML
    return tokenizer


@given(TURNS, st.booleans())
def test_what_is_learned_of_a_chat_is_what_its_template_marks(chatml: Any, turns: list, system: bool) -> None:
    """transformers' own mask of what the assistant generates, which TRL's assistant_only_loss uses, is the oracle."""
    messages = [{"role": "system", "content": "Be brief."}] if system else []
    for question, answer in turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    marked = chatml.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
    tokens = tokenize(Instructions.of([{"messages": messages}]), chatml, Template(None))
    ours = "".join(chatml.convert_ids_to_tokens(tokens.ids[tokens.learned].tolist()))
    theirs = [number for number, inside in zip(marked["input_ids"], marked["assistant_masks"], strict=True) if inside]
    assert ours == "".join(chatml.convert_ids_to_tokens(theirs))
    whole = chatml.apply_chat_template(messages, tokenize=False)
    assert chatml.decode(tokens.ids) == whole.removesuffix("\n")


def test_templates_of_text_put_every_exchange_between_their_words() -> None:
    model = language()
    row = chat(("system", "Be brief."), ("user", "Hi"), ("assistant", "Yes?"), ("user", "Bye"))
    data = Instructions.of([row])
    tokens = tokenize(data, model.tokenizer, Template("Q: {prompt}\nA:"))
    end = "<|endoftext|>"
    text = f"Q: System: Be brief.\n\nUser: Hi\nA:Yes?{end}Q: Bye\nA:Hello{end}"
    assert model.tokenizer.decode(tokens.ids) == text
    assert model.tokenizer.decode(tokens.ids[tokens.learned]) == f"Yes?{end}Hello{end}"
    assert tokens.predicted.tolist() == [int(tokens.learned.sum())]
    assert text.startswith(Template("Q: {prompt}\nA:").render(data.prompts[0], model.tokenizer))


def test_a_template_that_changes_earlier_turns_teaches_the_last_answer_only() -> None:
    model = language()
    model.tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{% if m.role != 'assistant' or loop.last %}{{ m.content }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    data = Instructions.of([chat(("user", "Hi"), ("assistant", "Yes?"), ("user", "Bye"))])
    tokens = tokenize(data, model.tokenizer, Template(None))
    assert model.tokenizer.decode(tokens.ids[tokens.learned]) == "Hello<|endoftext|>"


def test_a_text_is_learned_whole_and_without_a_template() -> None:
    model = language()
    tokens = tokenize(Instructions.of([{"text": "name 3"}]), model.tokenizer, Template.named("instruction", None))
    assert model.tokenizer.decode(tokens.ids) == "<|endoftext|>name 3<|endoftext|>"
    assert tokens.learned.tolist() == [False] + [True] * (len(tokens.ids) - 1)


def test_alpacas_preamble_speaks_of_an_input_where_there_is_one() -> None:
    rows = [{"instruction": "Count.", "input": "", "output": "1"}, {"instruction": "Say.", "input": "x", "output": "x"}]
    model = language()
    tokens = tokenize(Instructions.of(rows), model.tokenizer, Template.named("alpaca", None))
    first, second = (model.tokenizer.decode(tokens[place]["input_ids"]) for place in range(2))
    assert "further context" not in first
    assert "### Input:" not in first
    assert "further context" in second
    assert "### Instruction:\nSay.\n\n### Input:\nx\n\n### Response:\nx<|endoftext|>" in second


def test_refused_conversations_have_nothing_to_learn_on_request() -> None:
    model = language()
    model.tokenizer.chat_template = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}x"
    data = Instructions.of([chat(("user", "Hi")), chat(("system", "Be brief."), ("user", "Hi"))])
    tokens = tokenize(data, model.tokenizer, Template(None), skip_bad=True)
    assert tokens.undefined.tolist() == [False, True]


def test_there_must_be_room_and_an_end() -> None:
    model = language()
    with pytest.raises(ConfigError, match="max_length is 1"):
        tokens_of(instructions(), model, max_length=1)
    model.tokenizer.eos_token = None
    with pytest.raises(ConfigError, match="no end token"):
        tokens_of(instructions(), model)


def test_templates() -> None:
    model = language()
    turns = (("user", "Add {1} and 2."),)
    assert (
        Template.named("auto", model.tokenizer).render(turns, model.tokenizer).startswith("### Instruction:\nAdd {1}")
    )
    assert Template.named("Q: {prompt} A:", model.tokenizer).render(turns, model.tokenizer) == "Q: Add {1} and 2. A:"
    several = (("system", "Be brief."), ("user", "Hi"))
    assert Template.named("plain", None).render(several, None) == "System: Be brief.\n\nUser: Hi\n"
    with pytest.raises(ConfigError, match=r"no template 'plan'; did you mean 'plain'\?"):
        Template.named("plan", model.tokenizer)
    with pytest.raises(ConfigError, match="no chat template"):
        Template.named("chat", model.tokenizer)
    model.tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    own = Template.named("auto", model.tokenizer)
    assert own.render(several, model.tokenizer) == "<system>Be brief.<user>Hi<assistant>"


def test_a_template_that_refuses_a_prompt_is_named_with_its_row() -> None:
    model = language()
    model.tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{{ messages[0].content }}"
    )
    data = Instructions.of([chat(("user", "Hi")), chat(("system", "Be brief."), ("user", "Hi"))])
    message = r"refuses the prompt of row 2 of data \(System role not supported\); .* --template instruction"
    with pytest.raises(DataError, match=message):
        tokenize(data, model.tokenizer, Template(None))


def chat(*turns: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": said} for role, said in (*turns, ("assistant", "Hello"))]}


def test_an_end_token_of_the_template_is_kept() -> None:
    """Chat templates end turns with it; here the prompt ends with such a turn."""
    model = language()
    model.tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}"
    tokens = tokenize(Instructions.of([chat(("user", "Hi"))]), model.tokenizer, Template(None))
    assert model.tokenizer.decode(tokens.ids) == "Hi<|endoftext|>Hello<|endoftext|>"


def test_an_end_token_that_the_tokenizer_adds_by_itself_is_left_out() -> None:
    from tokenizers.processors import TemplateProcessing

    model = language()
    model.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", model.tokenizer.eos_token_id)]
    )
    data = Instructions.of([{"prompt": "Hi", "response": "Hello"}])
    assert model.tokenizer.decode(tokens_of(data, model).ids) == "Hi\nHello<|endoftext|>"


def test_tokens_on_disk_are_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.finetuning.language_models.tokens._CHATS", 5)
    data = instructions(23)
    found = language(data)
    form = Template.named("plain", found.tokenizer)
    memory = tokenize(data, found.tokenizer, form)
    disk = tokenize(data, found.tokenizer, form, folder=tmp_path)
    assert isinstance(disk.ids, np.memmap)
    for name in ("ids", "learned", "ends", "predicted"):
        assert np.array_equal(getattr(disk, name), getattr(memory, name))
    assert disk.unigram_entropy == memory.unigram_entropy
    assert sorted(place.name for place in tmp_path.iterdir()) == ["ids.bin", "learned.bin"]
