import pytest
import torch

from holdfast.multimodal.audit.detectors import Detections
from holdfast.multimodal.audit.evidence import gather_evidence, kindred_words
from holdfast.multimodal.audit.task_detections import TaskDetections
from holdfast.multimodal.tasks.task import ClipTask
from tests.multimodal.toy import TWO_TEMPLATES, leaning_tower, tiny_task

pytest.importorskip("captum")


@pytest.fixture(scope="module")
def audited():
    tower = leaning_tower()
    return tower, ClipTask(tiny_task(tower).splits, TWO_TEMPLATES)


def with_boxes(task):
    """Sand fills the left half of every image that has it, sea the right half."""
    known = TaskDetections.known(task)
    halves = torch.tensor([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
    values = {
        part: Detections(one.images, one.words, one.scores, halves[one.words]) for part, one in known.detections.items()
    }
    return TaskDetections(known.words, values, has_boxes=True)


def test_images_of_a_finding_are_of_its_class_with_and_without_the_word(audited):
    tower, task = audited
    evidence = gather_evidence(tower, task, TaskDetections.known(task), min_support=4, images=3)
    train = task.splits.train
    assert {(one.label, one.word) for one in evidence.findings} == {(0, "sand"), (1, "sea")}
    assert min(one.delta for one in evidence.findings) > 0.5
    assert len(evidence.samples) == len(evidence.findings)
    for finding, sample in zip(evidence.findings, evidence.samples, strict=True):
        word = ("sand", "sea").index(finding.word)
        assert 0 < len(sample.present) <= 3
        for place in sample.present:
            assert (int(train.labels[place]), int(train.attributes[place])) == (finding.label, word)
        for place in sample.absent:
            assert (int(train.labels[place]), int(train.attributes[place])) == (finding.label, 1 - word)
        assert all(evidence.maps[place].shape == (24, 24) for place in (*sample.present, *sample.absent))
    assert evidence.credits == {}


def test_words_are_credited_where_boxes_are_known(audited):
    tower, task = audited
    evidence = gather_evidence(tower, task, with_boxes(task), min_support=4, images=1)
    train = task.splits.train
    for label in (0, 1):
        words = dict(evidence.credits[label])
        assert sum(words.values()) <= evidence.credited[label] == int((train.labels == label).sum())
        shown = [int(((train.labels == label) & (train.attributes == value)).sum()) for value in (0, 1)]
        assert words.get("sand", 0) <= shown[0]
        assert words.get("sea", 0) <= shown[1]


def test_a_model_that_leans_on_nothing_leaves_no_findings(audited):
    tower, task = audited
    evidence = gather_evidence(tower, task, TaskDetections.known(task), min_support=1000)
    assert (evidence.findings, evidence.samples, evidence.maps) == ((), (), {})


def test_words_that_share_a_part_with_a_class_are_named():
    assert kindred_words(("bottle", "baby", "water tap", "tea"), ("Water Bottle", "can opener")) == [
        "bottle",
        "water tap",
    ]
