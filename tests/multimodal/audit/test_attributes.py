import numpy as np
import pytest

from holdfast.data import Examples
from holdfast.errors import DataError
from holdfast.multimodal.audit.attributes import Attributes, label_attribute, vocabulary


def test_a_detected_word_becomes_the_attribute_of_examples():
    examples = Examples.of(np.zeros((4, 2), np.float32), [0, 0, 1, 1], class_names=["pacifier", "bottle"])
    attributes = Attributes(("hand", "baby"), np.array([[0, 1], [0, 0], [1, 1], [0, 0]], bool))
    labelled = label_attribute(examples, attributes, "baby")
    assert labelled.attributes.tolist() == [1, 0, 1, 0]
    assert [labelled.group_names[g] for g in labelled.groups] == [
        "pacifier/baby", "pacifier/no baby", "bottle/baby", "bottle/no baby",
    ]  # fmt: skip
    assert labelled.attribute_names == ("no baby", "baby")
    with pytest.raises(DataError, match="no detector was run for 'babe'; did you mean 'baby'"):
        label_attribute(examples, attributes, "babe")
    with pytest.raises(DataError, match="the table is of 4 images and there are 2 examples"):
        label_attribute(examples.subset([0, 1]), attributes, "baby")


def test_the_vocabulary_is_lemmas_without_repeats_and_without_classes():
    synsets = ["water_bottle.n.01", "baby.n.02", "baby.n.01", "Can.n.01", "hand", "nipple.n.02"]
    classes = ["water bottle", "baby pacifier, Nipple"]
    assert vocabulary(synsets, classes) == ("baby", "can", "hand")
