"""Recording inside transformers' Trainer, and on two processes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.errors import CheckpointError
from holdfast.finetuning import LanguageModel, TrajectoryRecorder
from holdfast.finetuning.language_models.losses import trajectory_point
from holdfast.integrations.trajectories import trajectory_callback
from tests.finetuning.small import instructions, language, tokens_of, weights_of

transformers = pytest.importorskip("transformers")

DATA = instructions()


def llama() -> LanguageModel:
    """Another architecture: transformers' Trainer doesn't restore the output layer of a GPT-NeoX."""
    found = language(DATA)
    config = transformers.LlamaConfig(
        vocab_size=len(found.tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2,
    )  # fmt: skip
    torch.manual_seed(0)
    return LanguageModel(transformers.LlamaForCausalLM(config), found.tokenizer)


def train(
    folder: Path, recorder: TrajectoryRecorder | None, *, resume: bool = False, stop: int | None = None
) -> np.ndarray:
    found = llama()
    tokens = tokens_of(DATA, found)

    class Stop(transformers.TrainerCallback):  # type: ignore[name-defined,misc]
        def on_step_end(self, args: object, state: object, control: object, **parts: object) -> None:
            control.should_training_stop = state.global_step == stop  # type: ignore[attr-defined]

    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=8, num_train_epochs=2, learning_rate=1e-2, save_steps=2,
        report_to=[], disable_tqdm=True, use_cpu=True, seed=3,
    )  # fmt: skip
    trainer = transformers.Trainer(
        found.model, arguments, train_dataset=tokens, data_collator=tokens.collate,
        callbacks=[Stop(), *([trajectory_callback(recorder)] if recorder else [])],
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=resume or None)
    return weights_of(found.model)


def test_points_of_a_trainer_are_its_checkpoints_losses(tmp_path: Path) -> None:
    tokens = tokens_of(DATA, language(DATA))
    recorder = TrajectoryRecorder(tmp_path / "points", tokens, every=2)
    with_it, without = train(tmp_path / "a", recorder), train(tmp_path / "b", None)
    assert np.array_equal(with_it, without)
    found = recorder.trajectories()
    assert found.steps == (2, 4, 6)
    saved = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "a" / "checkpoint-4")
    np.testing.assert_allclose(found.losses[:, 1], trajectory_point(saved, tokens), atol=1e-6)


def test_a_stopped_trainer_resumes_with_the_points_there_are(tmp_path: Path) -> None:
    tokens = tokens_of(DATA, language(DATA))
    whole = TrajectoryRecorder(tmp_path / "whole", tokens, every=2)
    train(tmp_path / "a", whole)
    parts = TrajectoryRecorder(tmp_path / "parts", tokens, every=2)
    train(tmp_path / "b", parts, stop=4)
    assert parts.trajectories().steps == (2, 4)
    train(tmp_path / "b", TrajectoryRecorder(tmp_path / "parts", tokens, every=2), resume=True)
    assert np.array_equal(whole.trajectories().losses, parts.trajectories().losses)


def test_a_model_that_was_not_loaded_as_a_whole_is_noticed(tmp_path: Path) -> None:
    found = llama()
    recorder = TrajectoryRecorder(tmp_path, tokens_of(DATA, found), every=2)
    recorder.record(found.model, 2)
    recorder.check(found.model, 2)
    recorder.check(found.model, 1)
    torch.nn.init.normal_(found.model.lm_head.weight)  # type: ignore[union-attr,arg-type]
    with pytest.raises(CheckpointError, match="not loaded as a whole"):
        recorder.check(found.model, 2)
