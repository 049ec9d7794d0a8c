import pytest
import torch

from holdfast.errors import ConfigError, DataError
from holdfast.multimodal.audit.detectors import Detections
from holdfast.multimodal.audit.running_detectors import read_vocabulary, run_detector
from holdfast.multimodal.audit.task_detections import TaskDetections, read_detections, write_detections
from holdfast.multimodal.tasks.shapes.images import SHAPE_WORDING
from holdfast.multimodal.tasks.task import PARTS, ClipTask
from tests.multimodal.toy import small_tower, tiny_task


@pytest.fixture
def task():
    return ClipTask(tiny_task(small_tower()).splits, SHAPE_WORDING)


def test_what_labels_say_is_seen_and_survives_a_file(task, tmp_path):
    known = TaskDetections.known(task)
    assert known.words == ("sand", "sea")
    write_detections(tmp_path / "seen.csv", known, task)
    again = read_detections(tmp_path / "seen.csv", task)
    for part in PARTS:
        table = again.attributes(part, task.part(part))
        assert torch.equal(torch.from_numpy(table.column("sea")), task.part(part).attributes)
    assert not again.has_boxes


def test_boxes_survive_a_file(task, tmp_path):
    box = torch.tensor([[0.1, 0.2, 0.5, 0.75]])
    one = Detections(torch.tensor([3]), torch.tensor([0]), torch.tensor([0.25]), box)
    none = Detections(*(tensor[:0] for tensor in (one.images, one.words, one.scores, one.boxes)))
    write_detections(
        tmp_path / "s.csv", TaskDetections(("gull",), {"train": one, "validation": none, "test": none}, True), task
    )
    again = read_detections(tmp_path / "s.csv", task)
    assert again.has_boxes
    assert torch.allclose(again.detections["train"].boxes, box)
    assert again.detections["train"].images.tolist() == [3]
    assert len(again.detections["test"].images) == 0
    assert again.attributes("train", task.part("train"), threshold=0.3).present.sum() == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id\n3\n", "has no sightings"),
        ("id,word\nx,gull\n", r"line 2 of .* has the id 'x'"),
        ("id,word\n1,gull\n", r"the id 1 belongs to images of train and validation and test; give the part"),
        ("part,id,word\ntrain,999,gull\n", "'train' has no image with the id 999"),
        ("part,id,word,left,top,right,bottom\ntrain,1,gull,0.5,0,0.4,1\n", "left before right"),
        ("part,id,word,score\ntrain,1,gull,high\n", "that isn.t a number"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_by_its_line(task, tmp_path, text, said):
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(DataError, match=said):
        read_detections(tmp_path / "s.csv", task)


def test_a_vocabulary_comes_from_words_or_synsets_without_the_classes(tmp_path):
    (tmp_path / "words.txt").write_text("Sand\nsea\ndisc\nsea\n\n")
    assert read_vocabulary(tmp_path / "words.txt", tmp_path, ("disc", "square")) == ("sand", "sea")
    (tmp_path / "s.json").write_text('{"Water": "body_of_water.n.01", "disk": "disc.n.02"}')
    assert read_vocabulary(tmp_path / "s.json", tmp_path, ("disc",)) == ("body of water",)
    with pytest.raises(ConfigError, match="there is no vocabulary"):
        read_vocabulary(None, tmp_path, ())
    place = tmp_path / "visual_genome" / "object_synsets.json"
    place.parent.mkdir()
    place.write_text('{"a": "tree.n.01"}')
    assert read_vocabulary(None, tmp_path, ()) == ("tree",)
    (tmp_path / "words.txt").write_text("disc\n")
    with pytest.raises(DataError, match="holds no word besides the names of classes"):
        read_vocabulary(tmp_path / "words.txt", tmp_path, ("disc",))
    (tmp_path / "s.json").write_text('{"a": 1}')
    with pytest.raises(DataError, match="must hold a list of words"):
        read_vocabulary(tmp_path / "s.json", tmp_path, ())


def test_a_detector_looks_at_pictures_of_all_parts(task):
    tower, told = small_tower(), []

    class Blue:
        """Sees the first word where an image is more blue than red."""

        def detect(self, images, words):
            assert float(images.min()) >= 0
            assert float(images.max()) <= 1
            found = (images[:, 2].mean((1, 2)) > images[:, 0].mean((1, 2))).nonzero().flatten()
            boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(len(found), 4)
            return Detections(found, torch.zeros_like(found), torch.ones(len(found)), boxes)

    seen = run_detector(task, tower.preprocessing, Blue(), ["water"], lambda done, of: told.append((done, of)))
    agree = [
        (torch.from_numpy(seen.attributes(part, task.part(part)).column("water")) == task.part(part).attributes)
        for part in PARTS
    ]
    assert float(torch.cat(agree).float().mean()) > 0.9
    assert told[-1] == (106, 106)
