import io
import time

import datasets
import numpy as np
import pytest
from PIL import Image

from holdfast.data import read
from holdfast.data.own import hub
from holdfast.errors import DataError, MissingDependencyError
from tests.data.own.wards import wards


@pytest.fixture(autouse=True)
def quiet():
    datasets.disable_progress_bars()


def saved(tmp_path, rows=None, names=("died", "lived")):
    whole = datasets.Dataset.from_dict(rows or wards())
    return whole.cast_column("label", datasets.ClassLabel(names=list(names)))


def test_a_saved_set_has_the_names_of_its_classes(tmp_path):
    rows = wards()
    saved(tmp_path, rows).save_to_disk(str(tmp_path / "set"))
    train = read(tmp_path / "set").train
    assert train.class_names == ("died", "lived")
    assert [train.class_names[y] for y in train.labels] == [rows["label"][i] for i in train.ids.tolist()]


def test_parts_of_a_saved_set_are_parts(tmp_path):
    whole = saved(tmp_path)
    parts = datasets.DatasetDict({"train": whole.select(range(40)), "test": whole.select(range(40, 60))})
    parts.save_to_disk(str(tmp_path / "set"))
    splits = read(tmp_path / "set")
    assert len(splits.test) == 20 and len(splits.train) + len(splits.validation) == 40
    assert any("no rows for validation" in note for note in splits.notes)


def test_images_of_a_saved_set_are_inputs(tmp_path):
    def encoded(value):
        stream = io.BytesIO()
        Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(stream, "PNG")
        return {"bytes": stream.getvalue(), "path": None}

    whole = datasets.Dataset.from_dict({"img": [encoded(i) for i in range(20)], "label": [i % 2 for i in range(20)]})
    whole = whole.cast_column("img", datasets.Image()).cast_column("label", datasets.ClassLabel(names=["a", "b"]))
    whole.save_to_disk(str(tmp_path / "set"))
    splits = read(tmp_path / "set")
    assert splits.train.input_shape == (3, 8, 8) and splits.schema.kind == "image"


def test_a_class_without_a_label_is_refused(tmp_path):
    whole = datasets.Dataset.from_dict({"x": [1.0, 2.0, 3.0], "label": [0, 1, -1]})
    whole.cast_column("label", datasets.ClassLabel(names=["a", "b"])).save_to_disk(str(tmp_path / "set"))
    with pytest.raises(DataError, match=r"no label in column 'label' of 1 row \(the first is row 3\)"):
        read(tmp_path / "set")


@pytest.mark.parametrize("name", ["state.json", "dataset_info.json", "data-00000-of-00001.arrow"])
@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_damaged_set_is_a_sentence(tmp_path, name, how):
    saved(tmp_path).save_to_disk(str(tmp_path / "set"))
    file = tmp_path / "set" / name
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(DataError, match=r"set can't be read as a saved data set .*; save it again"):
        read(tmp_path / "set")


def test_a_name_that_can_t_be_reached_is_one_sentence_without_retries(monkeypatch, caplog):
    """The hub's client would try five times, for 23 seconds."""
    monkeypatch.setattr(hub, "is_reachable", lambda address: False)
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with pytest.raises(DataError, match=r"'nobody/nothing' can't be loaded from the hub .*save_to_disk") as raised:
        read("hf:nobody/nothing")
    assert not slept and len(str(raised.value)) < 400
    with pytest.raises(DataError, match="names no data set"):
        read("hf:")


def test_being_offline_ends_with_the_reading(monkeypatch):
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    monkeypatch.setattr(hub, "is_reachable", lambda address: False)
    with hub._offline_if_unreachable():
        assert constants.HF_HUB_OFFLINE and datasets.config.HF_HUB_OFFLINE
    assert before == (constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE)


def test_without_the_package_the_extra_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        read("hf:imdb")
