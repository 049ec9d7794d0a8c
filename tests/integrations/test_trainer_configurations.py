"""Configurations in the trainers' own forms; TRL's is read by TRL itself in test_trl."""

from __future__ import annotations

import json

import pytest
import yaml

from holdfast.data.readers.instructions import Instructions
from holdfast.integrations.trainer_configurations import as_messages, configurations
from tests.finetuning.small import instructions

#: Settings of each trainer's documentation; another name is ignored or refused there.
AXOLOTL = {
    "base_model",
    "datasets",
    "output_dir",
    "sequence_len",
    "val_set_size",
    "adapter",
    "lora_r",
    "lora_alpha",
    "lora_target_linear",
    "num_epochs",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "optimizer",
    "lr_scheduler",
    "bf16",
    "gradient_checkpointing",
}
LLAMA_FACTORY = {
    "stage",
    "do_train",
    "finetuning_type",
    "lora_rank",
    "lora_target",
    "dataset_dir",
    "dataset",
    "template",
    "cutoff_len",
    "output_dir",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "num_train_epochs",
    "lr_scheduler_type",
    "bf16",
    "report_to",
}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("trainer", "known"), [("axolotl", AXOLOTL), ("llama-factory", LLAMA_FACTORY)])
def test_settings_are_those_that_the_trainer_knows(trainer, known: set[str], plain: bool) -> None:
    files = configurations(trainer, "/somewhere", max_length=300, plain=plain)
    settings = yaml.safe_load(files[f"{trainer}.yaml"])
    assert set(settings) <= known
    assert 300 in settings.values()
    assert files[f"{trainer}.yaml"].startswith("# ")


def test_llama_factory_finds_the_rows_by_their_entry() -> None:
    files = configurations("llama-factory", "/somewhere")
    entry = json.loads(files["dataset_info.json"])[yaml.safe_load(files["llama-factory.yaml"])["dataset"]]
    row = json.loads(as_messages(instructions(1).chats, [1.0]))
    assert entry["columns"]["messages"] in row
    tags = entry["tags"]
    assert {tags["role_tag"], tags["content_tag"]} == set(row["messages"][0])
    assert [message["role"] for message in row["messages"]] == [tags["user_tag"], tags["assistant_tag"]]


def test_axolotl_reads_the_messages_and_learns_the_assistants() -> None:
    (rows,) = yaml.safe_load(configurations("axolotl", "/somewhere")["axolotl.yaml"])["datasets"]
    assert rows["path"] == "/somewhere/messages.jsonl"
    assert (rows["type"], rows["field_messages"], rows["roles_to_train"]) == (
        "chat_template",
        "messages",
        ["assistant"],
    )


def test_texts_stay_texts() -> None:
    data = Instructions.of([{"text": "Once."}, {"text": "Twice."}])
    read = [json.loads(line) for line in as_messages(data.chats, [0.5, 1.5]).splitlines()]
    assert read == [{"text": "Once.", "weight": 0.5}, {"text": "Twice.", "weight": 1.5}]
