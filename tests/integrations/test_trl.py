"""TRL trains on a chosen subset, with our configuration and with a weight for each example."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.data.readers.instructions import Instructions
from holdfast.errors import ConfigError, DataError
from holdfast.finetuning import LanguageModel
from holdfast.integrations.trainer_configurations import as_messages, configurations
from holdfast.integrations.trl import weighted_sft_trainer
from tests.finetuning.small import instructions, language, weights_of

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

DATA = instructions(8)
TEMPLATE = (
    "{% for message in messages %}{{ '### ' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ message['content'] }}{% endif %}{{ '\n' }}{% endfor %}"
)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


def made() -> LanguageModel:
    found = language(DATA)
    found.tokenizer.chat_template = TEMPLATE
    found.tokenizer.pad_token = found.tokenizer.eos_token
    return found


def rows(weights: Any = None, data: Instructions = DATA) -> Any:
    lines = as_messages(data.chats, [1.0] * len(data) if weights is None else list(weights))
    read = [json.loads(line) for line in lines.splitlines()]
    if weights is None:
        read = [{"messages": row["messages"]} for row in read]
    return datasets.Dataset.from_list(read)


def trainer(kind: Any, found: LanguageModel, given: Any, folder: Path, **options: Any) -> Any:
    settings = {
        "output_dir": str(folder),
        "max_steps": 3,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "assistant_only_loss": True,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "save_strategy": "no",
        "bf16": False,
        "gradient_checkpointing": False,
        **options,
    }
    return kind(found.model, args=trl.SFTConfig(**settings), train_dataset=given, processing_class=found.tokenizer)


def test_weights_of_one_train_as_trl_does(tmp_path: Path) -> None:
    plain, weighed = made(), made()
    trainer(trl.SFTTrainer, plain, rows(), tmp_path / "plain").train()
    trainer(weighted_sft_trainer(), weighed, rows([1.0] * 8), tmp_path / "weighed").train()
    assert np.array_equal(weights_of(plain.model), weights_of(weighed.model))
    assert not np.array_equal(weights_of(plain.model), weights_of(made().model))


def test_the_loss_is_the_weighted_sum_over_tokens(tmp_path: Path) -> None:
    """By hand: of each example the sum of -log p over the assistant's tokens, times its weight, over all tokens."""
    found, weights = made(), [0.0, 0.5, 1.5, 2.0]
    run = trainer(weighted_sft_trainer(), found, rows(weights, DATA.part(np.arange(4))), tmp_path)
    batch = next(iter(run.get_train_dataloader()))
    given, labels = batch["weight"].clone(), batch["labels"].clone()
    assert sorted(given.tolist()) == weights
    logits = found.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    logs = logits[:, :-1].float().log_softmax(2).gather(2, labels[:, 1:].clamp(min=0)[:, :, None])[:, :, 0]
    inside = labels[:, 1:] != -100
    expected = -(logs * inside * given[:, None]).sum() / inside.sum()
    loss = run.compute_loss(found.model, batch)
    torch.testing.assert_close(loss, expected)


def test_what_can_have_no_weights_is_refused(tmp_path: Path) -> None:
    kind = weighted_sft_trainer()
    with pytest.raises(ConfigError, match="join examples, so they can have no weights"):
        trainer(kind, made(), rows([1.0] * 8), tmp_path, packing=True, max_length=64)
    with pytest.raises(ConfigError, match="loss_type is 'dft'"):
        trainer(kind, made(), rows([1.0] * 8), tmp_path, loss_type="dft")
    run = trainer(kind, made(), rows([-1.0] * 8), tmp_path)
    with pytest.raises(DataError, match="negative or no number"):
        next(iter(run.get_train_dataloader()))


def test_our_configuration_is_one_that_trl_reads_and_trains_by(tmp_path: Path) -> None:
    weights = np.linspace(0.5, 1.5, 8).tolist()
    (tmp_path / "messages.jsonl").write_text(as_messages(DATA.chats, weights))
    for name, text in configurations("trl", str(tmp_path), max_length=64).items():
        (tmp_path / name).write_text(text)
    parser = trl.TrlParser((trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig, trl.DatasetMixtureConfig))
    words = ["--config", str(tmp_path / "trl.yaml"), "--use_cpu", "--max_steps", "2", "--bf16", "false"]
    _, settings, _, mixture = parser.parse_args_and_config([*words, "--save_strategy", "no"])
    settings.gradient_checkpointing = False
    found = made()
    before = weights_of(found.model)
    run = weighted_sft_trainer()(
        found.model,
        args=settings,
        train_dataset=trl.get_dataset(mixture)["train"],
        processing_class=found.tokenizer,
    )
    assert sorted(run.train_dataset["weight"]) == pytest.approx(weights)
    run.train()
    assert not np.array_equal(before, weights_of(found.model))
