import hashlib
import logging
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from holdfast.errors import CheckpointError, ConfigError
from holdfast.models import HUB_MODELS, IMAGENET_WEIGHTS, MODELS, build, load_weights, starting_weights

SHAPE = (3, 4, 4)


def same(one: torch.nn.Module, another: torch.nn.Module, but: str = "nothing") -> bool:
    theirs = another.state_dict()
    return all(torch.equal(value, theirs[key]) for key, value in one.state_dict().items() if not key.startswith(but))


def keep_as_public(weights: dict[str, torch.Tensor], model: str, folder: Path, monkeypatch) -> None:
    """Save weights under the name that they would be published with."""
    torch.save(weights, folder / "weights.pth")
    digest = hashlib.sha256((folder / "weights.pth").read_bytes()).hexdigest()
    name = f"{model}-{digest[:8]}.pth"
    (folder / "weights.pth").rename(folder / name)
    monkeypatch.setattr(starting_weights, "IMAGENET_WEIGHTS", {model: name})


def test_the_same_seed_gives_the_same_start_and_another_seed_another():
    torch.manual_seed(11)
    first = build("mlp", SHAPE, 2, seed=5)
    torch.manual_seed(12)
    assert same(first, build("mlp", SHAPE, 2, seed=5))
    assert not same(first, build("mlp", SHAPE, 2, seed=6))


def test_building_leaves_the_global_generator_where_it_was():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    build("lenet5", (1, 28, 28), 2, seed=9)
    assert torch.equal(torch.rand(4), expected)


def test_models_are_built_on_the_cpu_whatever_the_default_device():
    with torch.device("meta"):
        model = build("linear", SHAPE, 2)
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(ConfigError, match="there is no model 'resnet_18'; did you mean 'resnet18'"):
        build("resnet_18", SHAPE, 2)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_an_input_shape_that_makes_no_sense_is_refused(name):
    with pytest.raises(ConfigError, match=r"shape .* was given \(0,\)"):
        build(name, (0,), 2)


def test_a_model_without_classes_is_refused():
    with pytest.raises(ConfigError, match="at least one class"):
        build("mlp", SHAPE, 0)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_come_back_from_disk(tmp_path: Path, suffix):
    source = build("mlp", SHAPE, 2, seed=1)
    path = tmp_path / f"model{suffix}"
    if suffix == ".pth":
        torch.save(source.state_dict(), path)
    else:
        save_file(source.state_dict(), path)
    assert same(source, build("mlp", SHAPE, 2, seed=2, weights=path))
    assert same(source, build("mlp", SHAPE, 2, seed=2, weights=str(path)))


def test_a_checkpoint_of_data_parallel_training_loads(tmp_path: Path):
    source = build("mlp", SHAPE, 2, seed=1)
    wrapped = {f"module.{key}": value for key, value in source.state_dict().items()}
    torch.save({"state_dict": wrapped, "epoch": 3}, tmp_path / "model.th")
    assert same(source, build("mlp", SHAPE, 2, weights=tmp_path / "model.th"))


def test_a_head_for_other_classes_is_replaced_and_said_so(tmp_path: Path, caplog):
    source = build("resnet20", (3, 8, 8), 10, seed=1)
    save_file(source.state_dict(), tmp_path / "ten.safetensors")
    with caplog.at_level(logging.INFO, "holdfast"):
        model = build("resnet20", (3, 8, 8), 4, seed=2, weights=tmp_path / "ten.safetensors")
    assert same(model, source, but="fc.")
    assert torch.equal(model.fc.weight, build("resnet20", (3, 8, 8), 4, seed=2).fc.weight)
    assert [record.getMessage() for record in caplog.records] == [
        "ten.safetensors is for 10 classes: fc.bias and fc.weight keep their random start"
    ]


def test_old_files_without_batch_counters_load(tmp_path: Path):
    source = build("resnet20", (3, 8, 8), 10, seed=1)
    stored = {key: value for key, value in source.state_dict().items() if "num_batches" not in key}
    torch.save(stored, tmp_path / "old.pth")
    assert same(source, build("resnet20", (3, 8, 8), 10, seed=2, weights=tmp_path / "old.pth"))


def test_foreign_weights_are_described_in_one_sentence_and_change_nothing(tmp_path: Path):
    stored = build("mlp", SHAPE, 2, seed=1).state_dict()
    stored["extra"] = torch.zeros(1)
    stored["layers.0.weight"] = torch.zeros(128, 5)
    del stored["head.bias"]
    save_file(stored, tmp_path / "bad.safetensors")
    model = build("mlp", SHAPE, 2, seed=3)
    with pytest.raises(CheckpointError) as caught:
        load_weights(model, tmp_path / "bad.safetensors")
    assert str(caught.value).endswith(
        "doesn't fit MLP: head.bias is missing; extra is unexpected; "
        "layers.0.weight (128, 5) for (128, 48) is of another shape; give the weights of this network"
    )
    assert same(model, build("mlp", SHAPE, 2, seed=3))


def test_a_long_list_of_foreign_keys_is_cut(tmp_path: Path):
    save_file(build("linear", SHAPE, 2).state_dict(), tmp_path / "linear.safetensors")
    with pytest.raises(CheckpointError, match=r"and \d\d more are missing"):
        build("resnet20", SHAPE, 2, weights=tmp_path / "linear.safetensors")


@pytest.mark.parametrize("name", ["cut.safetensors", "cut.pth", "empty.pth", "text.pth"])
def test_a_damaged_file_is_named(tmp_path: Path, name):
    path = tmp_path / name
    state = build("mlp", SHAPE, 2).state_dict()
    if name.endswith("safetensors"):
        save_file(state, path)
    else:
        torch.save(state, path)
    contents = {"empty": b"", "text": b"not a checkpoint"}.get(path.stem, path.read_bytes()[:500])
    path.write_bytes(contents)
    with pytest.raises(CheckpointError, match=f"{name} can't be read"):
        build("mlp", SHAPE, 2, weights=path)


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("evil-was-here"),))


def test_a_file_that_wants_to_execute_code_is_refused(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(CheckpointError, match="can't be read"):
        build("mlp", SHAPE, 2, weights=tmp_path / "evil.pth")
    assert not (tmp_path / "evil-was-here").exists()


def test_a_file_that_holds_no_state_dict_is_refused(tmp_path: Path):
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(CheckpointError, match="doesn't hold a state dict"):
        build("mlp", SHAPE, 2, weights=tmp_path / "list.pth")


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no file of weights at .*nowhere\.pth"):
        build("mlp", SHAPE, 2, weights=tmp_path / "nowhere.pth")


@pytest.mark.parametrize("place", ["data root", "environment", "hub"])
def test_imagenet_weights_are_found_where_people_keep_them(tmp_path: Path, monkeypatch, place):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    if place == "environment":
        monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "data"))
    folder = tmp_path / ("hub/checkpoints" if place == "hub" else "data/weights")
    folder.mkdir(parents=True)
    source = build("resnet18", (3, 32, 32), 5, seed=1)
    keep_as_public(source.state_dict(), "resnet18", folder, monkeypatch)
    root = tmp_path / "data" if place == "data root" else None
    assert same(build("resnet18", (3, 32, 32), 2, weights="imagenet", root=root), source, but="fc.")


def test_absent_imagenet_weights_say_where_they_belong(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    with pytest.raises(ConfigError) as caught:
        build("resnet50", (3, 32, 32), 2, weights="imagenet", root=tmp_path)
    said = str(caught.value)
    assert "https://download.pytorch.org/models/resnet50-0676ba61.pth" in said
    assert str(tmp_path / "weights" / "resnet50-0676ba61.pth") in said
    assert str(tmp_path / "hub" / "checkpoints" / "resnet50-0676ba61.pth") in said


def test_public_weights_that_are_not_the_file_of_their_name_are_refused(tmp_path: Path):
    (tmp_path / "weights").mkdir()
    torch.save(build("resnet18", (3, 32, 32), 5, seed=1).state_dict(), tmp_path / "weights" / "resnet18-f37072fd.pth")
    with pytest.raises(CheckpointError, match=r"sum begins with .* instead of f37072fd; remove it and download https"):
        build("resnet18", (3, 32, 32), 2, weights="imagenet", root=tmp_path)


def test_every_public_file_carries_eight_digits_of_its_sum():
    assert all(re.fullmatch(r"[a-z0-9_]+-[0-9a-f]{8}\.pth", name) for name in IMAGENET_WEIGHTS.values())


def test_densenet_reads_the_names_of_the_public_file(tmp_path: Path, monkeypatch):
    source = build("densenet121", (3, 32, 32), 5, seed=1)
    old_names = {
        re.sub(r"(denselayer\d+\.(?:norm|conv))(\d)", r"\1.\2", key): value
        for key, value in source.state_dict().items()
        if "num_batches" not in key
    }
    assert "features.denseblock4.denselayer16.conv.2.weight" in old_names
    (tmp_path / "weights").mkdir()
    keep_as_public(old_names, "densenet121", tmp_path / "weights", monkeypatch)
    model = build("densenet121", (3, 32, 32), 2, seed=2, weights="imagenet", root=tmp_path)
    assert same(model, source, but="classifier.")


def test_imagenet_weights_exist_only_for_the_networks_that_have_them():
    assert IMAGENET_WEIGHTS.keys() <= MODELS.keys()
    with pytest.raises(ConfigError, match="no public ImageNet weights are known for 'lenet5'"):
        build("lenet5", (1, 28, 28), 2, weights="imagenet")


def test_weights_on_the_hub_exist_only_for_the_networks_that_have_them():
    assert HUB_MODELS.keys() <= MODELS.keys()
    with pytest.raises(ConfigError, match="'resnet18' has no weights on the hub; those that do are distilbert"):
        build("resnet18", (3, 32, 32), 2, weights="hub")
