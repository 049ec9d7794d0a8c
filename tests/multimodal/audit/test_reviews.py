import json
from dataclasses import replace

import pytest
import torch

from holdfast.errors import ConfigError, DataError
from holdfast.multimodal.audit.reviews import Review, decide, mitigated, read_review, spurious_words
from holdfast.multimodal.audit.task_detections import TaskDetections
from holdfast.multimodal.tasks.shapes.images import SHAPE_WORDING
from holdfast.multimodal.tasks.task import ClipTask
from tests.multimodal.toy import small_tower, tiny_task

SAND = Review("disc", "sand", "spurious", "Ada", "a disc is no disc by its ground", "2026-11-16T00:00:00+00:00")


@pytest.fixture
def audit(tmp_path):
    (tmp_path / "findings.json").write_text(json.dumps([{"class": "disc", "word": "sand"}]))
    return tmp_path


def test_a_verdict_is_kept_and_replaced_by_a_later_one(audit):
    assert read_review(audit) == []
    assert decide(audit, SAND) == [SAND]
    later = replace(SAND, verdict="healthy", reason="on second thoughts")
    assert decide(audit, later) == [later]
    assert read_review(audit) == [later]


def test_a_verdict_about_nothing_that_was_found_is_refused(audit, tmp_path):
    with pytest.raises(ConfigError, match="found nothing about 'disc/snd'; did you mean 'disc/sand'"):
        decide(audit, replace(SAND, word="snd"))
    with pytest.raises(DataError, match="there is no audit in"):
        decide(tmp_path / "elsewhere", SAND)
    assert not (audit / "review.json").exists()


def test_a_verdict_needs_a_name_a_reason_and_a_known_word():
    with pytest.raises(ConfigError, match="needs a reviewer"):
        replace(SAND, reviewer=" ")
    with pytest.raises(ConfigError, match="needs a reason"):
        replace(SAND, reason="")
    with pytest.raises(ConfigError, match="can't be 'spurios'; did you mean 'spurious'"):
        replace(SAND, verdict="spurios")


def test_a_damaged_record_is_named(audit):
    (audit / "review.json").write_text('[{"label": "disc"}]')
    with pytest.raises(DataError, match=r"review\.json isn't a record of verdicts"):
        read_review(audit)
    (audit / "review.json").write_text("{")
    with pytest.raises(DataError, match=r"review\.json can't be read"):
        read_review(audit)


def test_without_a_spurious_verdict_there_is_nothing_to_mitigate():
    healthy = replace(SAND, verdict="healthy")
    with pytest.raises(ConfigError, match="nobody has called anything spurious"):
        spurious_words([healthy, replace(SAND, word="sea", verdict="unsure")])
    assert spurious_words([healthy, SAND, replace(SAND, label="square", word="sea"), SAND]) == ("sand", "sea")


def bare_task():
    task = ClipTask(tiny_task(small_tower()).splits, SHAPE_WORDING)
    parts = {
        part: replace(task.part(part), attributes=None, groups=None, attribute_names=(), group_names=())
        for part in ("train", "validation", "test")
    }
    return task, replace(task, splits=replace(task.splits, **parts))


def test_words_that_every_image_has_one_of_become_its_attribute():
    known, bare = bare_task()
    relabelled = mitigated(bare, ("sand", "sea"), TaskDetections.known(known))
    assert torch.equal(relabelled.splits.train.attributes, known.splits.train.attributes)
    assert relabelled.splits.test.group_names == known.splits.test.group_names
    assert relabelled.wording.spurious_words == ("sand", "sea")


def test_one_word_leaves_the_others_without():
    known, bare = bare_task()
    relabelled = mitigated(bare, ("sea",), TaskDetections.known(known))
    assert relabelled.splits.train.attribute_names == ("sea", "none of them")
    assert torch.equal(relabelled.splits.train.attributes, 1 - known.splits.train.attributes)
    assert relabelled.wording.spurious_words == ("sea", "")
    assert relabelled.wording.attribute_phrases == ("sea", "something else")
    with pytest.raises(DataError, match="no detector was run for 'snow'"):
        mitigated(bare, ("snow",), TaskDetections.known(known))
