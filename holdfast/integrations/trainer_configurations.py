"""Ready configurations of other people's trainers for a chosen subset: TRL, axolotl and LLaMA-Factory.

Each is a file in the trainer's own format beside ``messages.jsonl``, which all three read: one conversation per row in
OpenAI's form, with the row's weight. The model is named on the trainer's command line, which the first line of each
file shows. Every assistant's turn is learned and nothing else, as holdfast itself learns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import yaml

from holdfast.data.readers.chats import Chat, joined_inputs

Trainer = Literal["trl", "axolotl", "llama-factory"]

MESSAGES = "messages.jsonl"
_PASSES, _RATE, _RANK = 3, 2e-5, 16
_DATASET = "chosen"


def as_messages(chats: Sequence[Chat], weights: Sequence[float]) -> str:
    """Conversations as lines of JSON: ``messages`` in OpenAI's form, or ``text`` where nobody asks, and ``weight``.

    Args:
        chats: the conversations.
        weights: of each.
    """
    plain = all(len(chat.turns) == 1 for chat in chats)
    rows = (
        {**({"text": chat.response} if plain else {"messages": _messages(chat)}), "weight": weight}
        for chat, weight in zip(chats, weights, strict=True)
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _messages(chat: Chat) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in joined_inputs(chat.turns)]


def configurations(trainer: Trainer, folder: str, *, max_length: int = 512, plain: bool = False) -> Mapping[str, str]:
    """The files that a trainer needs, by name.

    Args:
        trainer: whose.
        folder: where ``messages.jsonl`` is.
        max_length: tokens of an example at most.
        plain: whether rows are texts instead of conversations.
    """
    ways = {"trl": _trl, "axolotl": _axolotl, "llama-factory": _llama_factory}
    return ways[trainer](folder, max_length, plain)


def _trl(folder: str, max_length: int, plain: bool) -> dict[str, str]:
    settings: dict[str, Any] = {
        "datasets": [{"path": "json", "data_files": f"{folder}/{MESSAGES}", "split": "train"}],
        "output_dir": f"{folder}/trl",
        "num_train_epochs": _PASSES,
        "learning_rate": _RATE,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 4,
        "max_length": max_length,
        "packing": False,
        "assistant_only_loss": not plain,
        "report_to": "none",
    }
    return {"trl.yaml": _text("trl sft --config trl.yaml --model_name_or_path MODEL", settings)}


def _axolotl(folder: str, max_length: int, plain: bool) -> dict[str, str]:
    rows = {"path": f"{folder}/{MESSAGES}", "ds_type": "json"}
    chats = {"type": "chat_template", "field_messages": "messages", "roles_to_train": ["assistant"]}
    settings = {
        "datasets": [{**rows, **({"type": "completion", "field": "text"} if plain else chats)}],
        "output_dir": f"{folder}/axolotl",
        "sequence_len": max_length,
        "val_set_size": 0,
        "adapter": "lora",
        "lora_r": _RANK,
        "lora_alpha": 2 * _RANK,
        "lora_target_linear": True,
        "num_epochs": _PASSES,
        "micro_batch_size": 8,
        "gradient_accumulation_steps": 4,
        "learning_rate": 10 * _RATE,
        "optimizer": "adamw_torch",
        "lr_scheduler": "cosine",
        "bf16": "auto",
        "gradient_checkpointing": True,
    }
    return {"axolotl.yaml": _text("axolotl train axolotl.yaml --base-model MODEL", settings)}


def _llama_factory(folder: str, max_length: int, plain: bool) -> dict[str, str]:
    tags = {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
        "system_tag": "system",
        "observation_tag": "tool",
    }
    chats = {"formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": tags}
    entry = {"file_name": MESSAGES, **({"columns": {"prompt": "text"}} if plain else chats)}
    settings = {
        "stage": "pt" if plain else "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "lora_rank": _RANK,
        "lora_target": "all",
        "dataset_dir": folder,
        "dataset": _DATASET,
        "template": "default",
        "cutoff_len": max_length,
        "output_dir": f"{folder}/llama-factory",
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 4,
        "learning_rate": 10 * _RATE,
        "num_train_epochs": float(_PASSES),
        "lr_scheduler_type": "cosine",
        "bf16": True,
        "report_to": "none",
    }
    command = "llamafactory-cli train llama-factory.yaml model_name_or_path=MODEL template=ITS-TEMPLATE"
    return {
        "llama-factory.yaml": _text(command, settings),
        "dataset_info.json": json.dumps({_DATASET: entry}, indent=1) + "\n",
    }


def _text(command: str, settings: Mapping[str, Any]) -> str:
    return f"# {command}\n{yaml.safe_dump(dict(settings), sort_keys=False)}"
