import contextlib
import copyreg
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from holdfast.errors import DataError, HoldfastError
from holdfast.poisoning.attacks.public_benchmark import described
from holdfast.poisoning.attacks.public_benchmark.files import read_package, read_setups
from holdfast.poisoning.attacks.public_benchmark.pickled_data import _KINDS, read_pickled
from tests.poisoning.attacks.public_benchmark import hostile
from tests.poisoning.attacks.toy import tiny_case

ROOM = 2**29
fuzzed = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(folder, content, name="file.pickle"):
    (folder / name).write_bytes(content)
    return folder / name


@contextlib.contextmanager
def known_extension():
    """An extension that some package registered and some pickle used, so that no name is looked up any more."""
    copyreg.add_extension(os.mkdir.__module__, "mkdir", hostile.EXTENSION[1])
    pickle.loads(hostile.EXTENSION + b".")
    try:
        yield
    finally:
        copyreg.remove_extension(os.mkdir.__module__, "mkdir", hostile.EXTENSION[1])
        copyreg.clear_extension_cache()


@pytest.mark.parametrize("attack", hostile.running("place"))
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(tmp_path, attack):
    """The public loaders call pickle.load, which makes the folder."""
    canary = tmp_path / "canary"
    content = hostile.running(canary)[attack]
    with known_extension():
        with contextlib.suppress(Exception):
            pickle.loads(content)
        assert canary.is_dir()
        canary.rmdir()
        with pytest.raises(DataError, match=r"is not read|is damaged") as caught:
            read_pickled(written(tmp_path, content))
    assert not canary.exists()
    assert len(str(caught.value).splitlines()) == 1


def test_no_class_that_pickles_are_read_with_can_be_changed_by_one(tmp_path):
    """BUILD on a class would set its attributes, for this file and all later ones."""
    before = {name: dict(vars(kind)) for name, kind in _KINDS.items()}
    for name in _KINDS:
        module, _, attribute = name.rpartition(".")
        for state in (b"}" + hostile.text("rebuild") + b"K\x01s", b"N}" + hostile.text("rebuild") + b"K\x01s\x86"):
            with pytest.raises(DataError):
                read_pickled(written(tmp_path, hostile.name(module, attribute) + state + b"b."))
    assert before == {name: dict(vars(kind)) for name, kind in _KINDS.items()}


def test_every_name_that_is_looked_up_is_in_the_table(tmp_path):
    for module, name in [("os", "system"), ("numpy", "load"), ("torch", "load"), ("numpy", "ndarray.__class__")]:
        with pytest.raises(DataError, match=f"asks for '{module}.{name}'"):
            read_pickled(written(tmp_path, hostile.name(module, name) + b"."))
    with pytest.raises(DataError, match="PERSID"):
        read_pickled(written(tmp_path, b"Pid\n."))


def test_a_name_in_a_sentence_is_short_and_on_one_line(tmp_path):
    for name in ("a\x1b[31m\u2028" + "b" * 10_000, "\r\n"):
        content = b"\x80\x04" + hostile.text("os") + b"X" + len(name.encode()).to_bytes(4, "little") + name.encode()
        with pytest.raises(DataError) as caught:
            read_pickled(written(tmp_path, content + b"\x93."))
        assert str(caught.value).isprintable() and len(str(caught.value)) < 400 + len(str(tmp_path))


SCRIPT = """
import resource, signal, sys
from pathlib import Path
from holdfast.errors import DataError
from holdfast.poisoning.attacks.public_benchmark.pickled_data import read_pickled
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]),) * 2)
for file in sorted(Path(sys.argv[2]).iterdir()):
    signal.alarm(60)
    print(file.stem, end=": ", flush=True)
    try:
        read_pickled(file)
        print("read", flush=True)
    except DataError as error:
        print(error, flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit of memory is set as on Linux")
def test_what_a_pickle_claims_costs_no_memory_and_no_time(tmp_path):
    attacks = hostile.filling()
    for name, content in attacks.items():
        written(tmp_path, content, name.replace(" ", "-"))
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(ROOM), str(tmp_path)], capture_output=True, text=True, check=False
    )
    lines = process.stdout.splitlines()
    assert process.returncode == 0 and len(lines) == len(attacks), process.stdout + process.stderr
    for line in lines:
        assert "MemoryError" not in line and ("is not read" in line or "is damaged" in line), line


def samples():
    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    return [
        [(image, 1), (image.copy(), 1)],
        {"target class": np.int64(2), "base indices": np.arange(5), "name": "text"},
        (torch.rand(3, 2, 2), 3, torch.ones(2), [4, 1]),
        [b"bytes", 2.5, None, True, -7, 2**70],
    ]


SAMPLES = [pickle.dumps(value, protocol=protocol) for value in samples() for protocol in (2, 4, 5)]
SNIPPETS = [
    *(hostile.name(*name.rsplit(".", 1)) for name in _KINDS),
    *(hostile.name(module, name) for module, name in [("os", "mkdir"), ("builtins", "eval"), ("torch", "load")]),
    *(hostile.text(text) for text in ("f8", "RGB", "latin1", "canary", "C", "__setstate__", "os", "mkdir")),
    *(b"(", b")", b"]", b"}", b"N", b"K\x00", b"K\x02", b"J\xff\xff\xff\xff", b"C\x08abcdefgh", b"q\x00", b"h\x00"),
    *(b"\x85", b"\x86", b"\x87", b"t", b"a", b"e", b"s", b"u", b"R", b"\x81", b"b", b"\x93", b"\x94", b"0", b"2"),
    *(hostile.EXTENSION, b"Q", b"o", b"\x92", b"l", b"d", b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", b"h\x01"),
]


@st.composite
def mutated(draw):
    """A valid file in which some bytes are others, are missing, come twice, or are instructions."""
    content = bytearray(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 4))):
        start, length = draw(st.integers(0, len(content))), draw(st.integers(0, 12))
        content[start : start + length] = draw(st.one_of(st.binary(max_size=12), st.sampled_from(SNIPPETS)))
    return bytes(content[: draw(st.one_of(st.none(), st.integers(0, len(content))))])


written_programs = st.lists(st.sampled_from(SNIPPETS), max_size=40).map(lambda parts: b"".join(parts) + b".")


@fuzzed
@given(st.one_of(mutated(), written_programs))
def test_damaged_and_made_up_pickles_give_a_value_or_a_sentence_within_a_bound(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, content)
    tracemalloc.start()
    try:
        with known_extension():
            read_pickled(path)
    except DataError as error:
        assert str(error).isprintable()
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2**27 + 300 * len(content)
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", SAMPLES)
def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path, content):
    for end in range(0, len(content), 7):
        with pytest.raises(DataError):
            read_pickled(written(tmp_path, content[:end]))


leaves = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3)),
    st.sampled_from([np.zeros((2, 2, 3), np.uint8), np.full((3, 8, 8), np.nan), np.arange(3), np.float64(0.5)]),
    st.sampled_from([np.zeros((8, 8, 3), np.uint8), np.zeros((3, 8, 8), np.float32), np.array(3)]),
)
keys = st.sampled_from(["target class", "target index", "base class", "base indices"])
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)
setups = st.lists(st.fixed_dictionaries(dict.fromkeys(keys.elements, leaves | st.lists(leaves, max_size=2))))


@fuzzed
@given(values | setups)
def test_setups_of_any_values_give_setups_or_a_sentence(tmp_path, value):
    with contextlib.suppress(HoldfastError):
        read_setups(written(tmp_path, pickle.dumps(value)))


pairs = st.lists(st.tuples(leaves, leaves) | st.tuples(leaves, leaves, leaves, values), min_size=1, max_size=3)


@fuzzed
@given(values | pairs, values | st.lists(st.integers(0, 9)), values | pairs | st.tuples(leaves, leaves, leaves, values))
def test_packages_of_any_values_give_poisons_or_a_sentence(tmp_path, poisons, indices, target):
    train, _, _ = tiny_case()
    for name, value in {"poisons": poisons, "base_indices": indices, "target": target}.items():
        written(tmp_path, pickle.dumps(value), f"{name}.pickle")
    with contextlib.suppress(HoldfastError):
        read_package(tmp_path, train)


def test_a_million_instructions_are_the_most(tmp_path, monkeypatch):
    path = written(tmp_path, pickle.dumps([1, 2, 3], protocol=2))
    monkeypatch.setattr(described, "MOST_INSTRUCTIONS", 9)
    assert read_pickled(path) == [1, 2, 3]
    monkeypatch.setattr(described, "MOST_INSTRUCTIONS", 8)
    with pytest.raises(DataError, match="more than 8 instructions"):
        read_pickled(path)
