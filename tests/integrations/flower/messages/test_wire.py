"""Nothing that arrives is believed: every claim is compared with what must come before anything is read."""

import io
import tracemalloc

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from holdfast.integrations.flower.messages.arrays import RejectedError
from holdfast.integrations.flower.messages.wire import FORMAT, Request, array, head_of, packed, whole, wholes, words

NAME = "0123456789abcdef" * 2


def holding(held: Array) -> RecordDict:
    return RecordDict({"holdfast": ConfigRecord({"format": FORMAT}), "arrays": ArrayRecord({"updates": held})})


def read(held: Array):
    return array(holding(held), "updates", (2, 3), torch.float32)


def with_header(shape, descr="<f4", fortran=False, body=b"\0" * 24) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": fortran, "shape": shape})
    return stream.getvalue() + body


def test_arrays_arrive_as_they_were_sent():
    sent = torch.arange(6, dtype=torch.float32).view(2, 3)
    content = packed({}, {"updates": sent})
    assert torch.equal(array(content, "updates", (2, 3), torch.float32), sent)


def test_an_array_that_was_sent_by_columns_arrives_by_rows():
    sent = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert read(Array(sent)).tolist() == sent.tolist()


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (Array(np.zeros((2, 4), np.float32)), r"claims float32 \(2, 4\) where float32 \(2, 3\)"),
        (Array(np.zeros((2, 3), np.float64)), "claims float64"),
        (Array("float32", (2, 2_500_000_000), "numpy.ndarray", with_header((2, 3))), "claims"),
        (Array("float32", (2, 3), "torch", with_header((2, 3))), "serialized by 'torch'"),
        (Array("float32", (2, 3), "numpy.ndarray", with_header((2, 3), body=b"\0" * 9999)), "bytes where 24 must come"),
        (Array("float32", (2, 3), "numpy.ndarray", with_header((2, 3), body=b"\0" * 20)), "holds 20 bytes where 24"),
        (Array("float32", (2, 3), "numpy.ndarray", with_header((2, 2_500_000_000))), "not float32"),
        (Array("float32", (2, 3), "numpy.ndarray", with_header((2, 3), "<f8", body=b"\0" * 48)), "not float32"),
        (Array("float32", (2, 3), "numpy.ndarray", with_header((2, 3), "|O")), "not float32"),
        (Array("float32", (2, 3), "numpy.ndarray", b"not an array at all"), "not float32"),
        (Array("float32", (2, 3), "numpy.ndarray", b"\x93NUMPY\x01\x00\xf0\x01" + b"(" * 496), "not float32"),
        (Array("float32", (2, 3), "numpy.ndarray", b""), "not float32"),
    ],
)
def test_an_array_that_is_not_exactly_what_must_come_is_rejected(held, says):
    tracemalloc.start()
    with pytest.raises(RejectedError, match=says):
        read(held)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


def test_what_is_missing_or_of_another_format_is_rejected():
    with pytest.raises(RejectedError, match="no array 'losses'"):
        array(holding(Array(np.zeros(1))), "losses", (1,), torch.float64)
    with pytest.raises(RejectedError, match="the sender isn't holdfast"):
        head_of(RecordDict({}))
    with pytest.raises(RejectedError, match="format 99 and not 1"):
        head_of(RecordDict({"holdfast": ConfigRecord({"format": 99})}))


def test_numbers_and_texts_are_what_they_must_be():
    head = ConfigRecord({"n": 3, "flag": True, "list": [1, 2], "texts": ["a"], "half": 0.5})
    assert (whole(head, "n"), wholes(head, "list", 2), words(head, "texts")) == (3, [1, 2], ["a"])
    for wrong in ("flag", "half", "list", "none"):
        with pytest.raises(RejectedError, match="not a whole number"):
            whole(head, wrong)
    with pytest.raises(RejectedError, match="2 numbers where 3 must come"):
        wholes(head, "list", 3)


def test_an_order_arrives_as_it_was_sent():
    request = Request("train", NAME, 4, 10, (1, 5), ("ditto",), "test", torch.ones(3))
    found = Request.of(request.pack())
    assert (found.action, found.federation, found.number, found.total) == ("train", NAME, 4, 10)
    assert (found.clients, found.labels, found.part) == ((1, 5), ("ditto",), "test")


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request("erase", NAME), "action 'erase'"),
        (Request("train", "../../etc"), "names no federation"),
        (Request("train", NAME, -1), "round -1"),
        (Request("train", NAME, 0, 10, (5, 1)), "not ascending"),
        (Request("train", NAME, 0, 10, (10,)), "client 10 of 10"),
        (Request("train", NAME, 0, 10**9), "at most"),
    ],
)
def test_a_node_rejects_orders_that_make_no_sense(request_, says):
    with pytest.raises(RejectedError, match=says):
        Request.of(request_.pack())
