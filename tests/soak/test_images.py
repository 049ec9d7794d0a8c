"""Images of every kind with damaged bytes, and of every mode with any values, are decoded or refused in a sentence."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.data.readers.decoding import decode, to_rgb
from holdfast.data.readers.image_files import check_files, decode_all, sample_sizes
from holdfast.data.readers.images import ImageReader
from holdfast.errors import DataError
from tests.data.readers.image_kinds import every_kind

DAMAGES = 15
_WIDE = ("I", "I;16", "I;16B", "I;16L", "F")
MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", *_WIDE)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """A few bits turned over, bytes replaced, a part cut out, repeated or cut off; mostly near the beginning."""
    found = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        reach = len(found) if rng.integers(2) else min(len(found), 200)
        place, some = int(rng.integers(reach + 1)), int(rng.integers(1, 9))
        kind = rng.integers(6)
        if kind <= 1 and place < len(found):
            found[place] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            found[place : place + some] = rng.bytes(some)
        elif kind == 3:
            found[place : place + some] = b"\xff" * some
        elif kind == 4:
            found[place:place] = found[: place + some]
        else:
            del found[place : None if rng.integers(2) else place + some]
    return bytes(found)


def refused_in_a_sentence(error: DataError) -> bool:
    sentence = str(error)
    return "\n" not in sentence and len(sentence) < 600 and ";" in sentence


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")
def test_damaged_images_are_decoded_or_refused(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    paths, readable = [], []
    for name, content in every_kind().items():
        for number in range(DAMAGES):
            paths.append(tmp_path / f"{number}-{name}")
            paths[-1].write_bytes(damaged(content, rng))
            try:
                image = decode(paths[-1])
                assert image.mode == "RGB" and len(image.tobytes()) == 3 * image.width * image.height
                readable.append(True)
            except DataError as error:
                assert refused_in_a_sentence(error) and paths[-1].name in str(error)
                readable.append(False)
    assert 0.1 < np.mean(readable) < 0.9 and len(paths) >= 500
    _, failed = decode_all(paths, ImageReader(resize=8, crop=None), 2)
    assert [position for position, _ in failed] == np.flatnonzero(~np.array(readable)).tolist()
    assert {position for position, _ in check_files(paths, 2)} <= {position for position, _ in failed}
    assert len(sample_sizes(paths, len(paths))) >= sum(readable)


@pytest.mark.soak
def test_images_of_any_mode_and_values_are_decoded_or_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for mode in MODES * 3:
        size = (int(rng.integers(1, 9)), int(rng.integers(1, 9)))
        image = Image.new(mode, size)
        content = rng.bytes(len(image.tobytes()))
        image.frombytes(content if rng.integers(4) else bytes(len(content)))
        if rng.integers(2):
            image.info["transparency"] = (3, b"\1\2", (1, 2, 3), "x", None)[int(rng.integers(5))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = to_rgb(image, "given")
                assert found.mode == "RGB" and found.size == size
            except DataError as error:
                assert refused_in_a_sentence(error)
