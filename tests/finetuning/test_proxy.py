from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from holdfast.errors import ConfigError, DataError, HoldfastWarning, MissingDependencyError
from holdfast.finetuning import FineTuningSettings, LanguageModel, load_language_model, with_lora
from holdfast.finetuning.estimates import Estimate
from holdfast.finetuning.language_models.losses import trajectory_point
from holdfast.finetuning.proxy import record_trajectories
from tests.finetuning.small import instructions, language, tokens_of, weights_of

DATA = instructions()
QUICK = FineTuningSettings(epochs=3, batch_size=8, learning_rate=1e-2)


def test_twelve_points_by_default(tmp_path: Path) -> None:
    longer = FineTuningSettings(epochs=8, batch_size=8, learning_rate=1e-2)
    trajectories = record_trajectories(DATA, language(DATA), tmp_path, longer)
    assert trajectories.steps == tuple(range(2, 26, 2))
    assert (trajectories.losses[:, -1] < trajectories.losses[:, 0]).all()


def test_recording_takes_half_of_the_training_by_default(tmp_path: Path) -> None:
    """Four points of two units each, beside three epochs of six."""
    assert record_trajectories(DATA, language(DATA), tmp_path / "three", QUICK).steps == (2, 4, 7, 9)
    assert record_trajectories(DATA, language(DATA), tmp_path / "given", QUICK, points=2).steps == (4, 9)
    with pytest.raises(ConfigError, match="9 points are to be recorded and the training has 8 steps that change"):
        record_trajectories(DATA, language(DATA), tmp_path / "more", QUICK, points=9)


def test_the_cost_is_told_before_anything_is_written_and_changes_nothing(tmp_path: Path) -> None:
    told = list[Estimate]()

    def tell(cost: Estimate) -> None:
        told.append(cost)
        assert list(tmp_path.iterdir()) == []

    found = record_trajectories(DATA, language(DATA), tmp_path, QUICK, estimated=tell, by_memory=True)
    plain = record_trajectories(DATA, language(DATA), tmp_path / "plain", QUICK)
    assert np.array_equal(found.losses, plain.losses)
    trained = sum(part.numel() for part in language(DATA).model.parameters())
    assert told[0].fixed == pytest.approx(16 * trained, rel=0.05)
    assert min(told[0].training, told[0].recording, told[0].per_token) > 0


def test_curves_know_the_loss_of_guessing_by_frequency(tmp_path: Path) -> None:
    tokens = tokens_of(DATA, language(DATA), 512, template="auto")
    _, counts = np.unique(tokens.ids[tokens.learned], return_counts=True)
    shares = counts / counts.sum()
    key = record_trajectories(DATA, language(DATA), tmp_path, QUICK).key
    assert key["unigram"] == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-5)


def test_the_untrained_model_is_no_point(tmp_path: Path) -> None:
    """The warm-up's first rate is 0, so that nothing is learned in the first step."""
    trajectories = record_trajectories(DATA, language(DATA), tmp_path / "warm", QUICK, every=1)
    assert trajectories.steps == tuple(range(2, 10))
    untrained = trajectory_point(language(DATA).model, tokens_of(DATA, language(DATA), template="auto"))
    assert not np.isclose(trajectories.losses[:, 0], untrained, rtol=1e-4).any()
    cold = replace(QUICK, warmup=0.0)
    found = record_trajectories(DATA, language(DATA), tmp_path / "cold", cold, every=1)
    assert found.steps == tuple(range(1, 10))


def test_a_training_of_one_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has 1 step, .* more epochs, or .* --batch-size"):
        record_trajectories(DATA, language(DATA), tmp_path, replace(QUICK, epochs=1, batch_size=24))
    assert list(tmp_path.iterdir()) == []
    assert record_trajectories(DATA, language(DATA), tmp_path, replace(QUICK, epochs=2, batch_size=24)).steps == (2,)


def test_on_a_part_losses_of_all_are_recorded(tmp_path: Path) -> None:
    trajectories = record_trajectories(DATA, language(DATA), tmp_path, QUICK, trained=10)
    assert trajectories.losses.shape[0] == 24
    with pytest.raises(ConfigError, match="25 examples and there are 24"):
        record_trajectories(DATA, language(DATA), tmp_path / "more", QUICK, trained=25)


def test_losses_are_not_recorded_every_0_steps(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="every 0 steps; give at least 1"):
        record_trajectories(DATA, language(DATA), tmp_path, QUICK, every=0)


def test_who_is_told_that_it_begins_can_refuse(tmp_path: Path) -> None:
    told = list[int]()

    def ready(undefined: NDArray[np.bool_]) -> None:
        told.append(int(undefined.sum()))
        raise DataError("too few")

    with pytest.raises(DataError, match="too few"):
        record_trajectories(DATA, language(DATA), tmp_path, QUICK, template="plain", max_length=14, ready=ready)
    assert 0 < told[0] < 24
    assert list(tmp_path.iterdir()) == []


def test_examples_without_room_for_a_response_are_a_warning_where_nobody_asked_to_be_told(tmp_path: Path) -> None:
    with pytest.warns(HoldfastWarning, match=r"of 24 examples have no room for their response .* raise max_length"):
        record_trajectories(DATA, language(DATA), tmp_path, QUICK, template="plain", max_length=14)


def test_another_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    record_trajectories(DATA, language(DATA), tmp_path, QUICK)
    with pytest.raises(ConfigError, match="another learning_rate"):
        record_trajectories(
            DATA, language(DATA), tmp_path, FineTuningSettings(epochs=3, batch_size=8, learning_rate=2e-2)
        )


def test_another_model_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    """Of the same shape: the second would get the curves of the first."""
    first = record_trajectories(DATA, language(DATA), tmp_path, QUICK)
    with pytest.raises(ConfigError, match="another model"):
        record_trajectories(DATA, language(DATA, seed=1), tmp_path, QUICK)
    again = record_trajectories(DATA, language(DATA), tmp_path, QUICK)
    assert np.array_equal(first.losses, again.losses)
    assert again.key["data"] == DATA.fingerprint


def test_the_fingerprint_of_a_model_is_that_of_its_weights() -> None:
    model = language(DATA)
    before = model.fingerprint
    assert before == language(DATA).fingerprint != language(DATA, seed=1).fingerprint
    with torch.no_grad():
        next(iter(model.model.parameters()))[0, 0] += 1e-3
    assert model.fingerprint != before
    assert len(LanguageModel(model.model.bfloat16(), model.tokenizer).fingerprint) == len(before)


def test_recording_is_beside_what_the_cost_model_says(tmp_path: Path) -> None:
    """A18: three epochs of steps cost 18, nine points 2 each."""
    seconds = record_trajectories(DATA, language(DATA), tmp_path, replace(QUICK, warmup=0.0), every=1).seconds
    assert seconds is not None
    assert min(seconds.training, seconds.recording) > 0
    assert seconds.recording_by_model == pytest.approx(seconds.training)


def test_a_saved_model_is_loaded_from_its_folder(tmp_path: Path) -> None:
    given = language(DATA)
    given.model.save_pretrained(tmp_path)  # type: ignore[operator]
    given.tokenizer.save_pretrained(tmp_path)
    loaded = load_language_model(str(tmp_path))
    assert np.array_equal(weights_of(given.model), weights_of(loaded.model))
    assert np.array_equal(tokens_of(DATA, given).ids, tokens_of(DATA, loaded).ids)


def test_half_a_download_is_said_to_be_one(tmp_path: Path) -> None:
    given = language(DATA)
    given.model.save_pretrained(tmp_path)  # type: ignore[operator]
    given.tokenizer.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(DataError, match="can't be loaded"):
        load_language_model(str(tmp_path))


def test_examples_longer_than_the_positions_that_a_model_has_learned_are_refused(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    told: list[NDArray[np.bool_]] = []  # what is cut away is no matter here
    rotary = language(DATA, longest=16)
    config = GPT2Config(vocab_size=300, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    learned = LanguageModel(GPT2LMHeadModel(config), rotary.tokenizer)
    with pytest.raises(ConfigError, match=r"learned 16 positions and an example has \d\d tokens; .* --max-length 16"):
        record_trajectories(DATA, learned, tmp_path, QUICK, template="plain", max_length=17)
    assert list(tmp_path.iterdir()) == []
    record_trajectories(DATA, learned, tmp_path / "cut", QUICK, template="plain", max_length=16, ready=told.append)
    record_trajectories(DATA, rotary, tmp_path / "rotary", QUICK, template="plain", max_length=17, ready=told.append)


def test_pickled_weights_are_never_loaded(tmp_path: Path) -> None:
    given = language(DATA)
    given.model.save_pretrained(tmp_path)  # type: ignore[operator]
    given.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(given.model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match="can't be loaded"):
        load_language_model(str(tmp_path))


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(DataError, match=r"'\./nowhere' can't be loaded"):
        load_language_model("./nowhere")
    with pytest.raises(DataError, match=r"there is no file \./nowhere/model\.gguf"):
        load_language_model("./nowhere/model.gguf")


def test_lora_learns_only_its_adapters(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    plain = language(DATA)
    before = weights_of(plain.model)
    adapted = with_lora(plain, rank=2)
    assert 0 < adapted.parameters < 0.5 * len(before)
    trajectories = record_trajectories(DATA, adapted, tmp_path, QUICK)
    assert (trajectories.losses[:, -1] < trajectories.losses[:, 0]).mean() > 0.9
    base = LanguageModel(adapted.model.get_base_model(), plain.tokenizer)  # type: ignore[operator]
    stored = {name: part for name, part in base.model.named_parameters() if "lora" not in name}
    assert np.array_equal(before, np.concatenate([part.detach().numpy().ravel() for part in stored.values()]))


def test_weights_in_four_bits_stay_and_adapters_learn(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    given = language(DATA, width=64)
    given.model.save_pretrained(tmp_path / "proxy")  # type: ignore[operator]
    given.tokenizer.save_pretrained(tmp_path / "proxy")
    adapted = with_lora(load_language_model(str(tmp_path / "proxy"), four_bit=True), rank=2)
    small = {name: part.clone() for name, part in adapted.model.named_parameters() if part.dtype == torch.uint8}
    assert small
    trajectories = record_trajectories(DATA, adapted, tmp_path / "run", QUICK)
    assert (trajectories.losses[:, -1] < trajectories.losses[:, 0]).mean() > 0.9
    assert all(torch.equal(part, dict(adapted.model.named_parameters())[name]) for name, part in small.items())


def test_four_bits_without_their_package_or_of_a_gguf_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install bitsandbytes"):
        load_language_model("./nowhere", four_bit=True)
    with pytest.raises(ConfigError, match=r"leave out --four-bit"):
        load_language_model("./nowhere.gguf", four_bit=True)


def test_the_pythia_of_the_document_has_its_parameters() -> None:
    """The architecture at Pythia-70M's size: 70,426,624 weights in all."""
    from holdfast.finetuning.language_models.models import gpt_neox

    with torch.device("meta"):
        model = gpt_neox(50304, layers=6, width=512, heads=8, longest=2048)
    assert sum(part.numel() for part in model.parameters()) == 70_426_624
