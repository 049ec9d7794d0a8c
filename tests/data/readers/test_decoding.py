import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from holdfast.data.readers.decoding import decode, to_rgb
from holdfast.errors import DataError
from tests.data.readers.image_kinds import (
    RAMP,
    colours,
    encoded,
    every_kind,
    exif,
    sixteen_bits,
    twelve_bit_tiff,
)

KINDS = every_kind()


def pixels(content: bytes) -> np.ndarray:
    return np.asarray(decode(content, "given"))


def on_white(rgba: np.ndarray) -> np.ndarray:
    share = rgba[:, :, 3:] / 255
    return np.rint(rgba[:, :, :3] * share + 255 * (1 - share))


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_becomes_eight_bit_rgb(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(KINDS[name])
    image = decode(tmp_path / name)
    assert image.mode == "RGB" and len(np.unique(np.asarray(image))) > 1
    assert decode(KINDS[name], name).tobytes() == image.tobytes()
    assert image.resize((3, 3)).size == (3, 3)  # nothing is read after the file was closed
    kept = decode(KINDS[name], name, alpha=True)
    assert kept.mode == "RGBA" and kept.size == image.size


@given(st.sampled_from(["JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM"]), st.integers(0, 99), st.integers(1, 40))
def test_ordinary_rgb_files_are_what_pillow_decodes(kind: str, seed: int, width: int) -> None:
    content = encoded(Image.fromarray(colours(seed, width, 9)), kind)
    with Image.open(io.BytesIO(content)) as image:
        assert np.array_equal(pixels(content), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("name", ["grey.png", "grey.jpg", "one-bit.png", "palette.png", "cmyk.jpg", "ycbcr.tif"])
def test_other_eight_bit_modes_are_what_pillow_converts(name: str) -> None:
    with Image.open(io.BytesIO(KINDS[name])) as image:
        assert np.array_equal(pixels(KINDS[name]), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("name", ["wide.png", "wide.tif", "wide.pgm", "wide.jp2", "integers.tif", "twelve.tif"])
def test_a_ramp_of_more_than_eight_bits_stays_a_ramp(name: str) -> None:
    expected = np.rint(RAMP * 255)
    assert np.abs(pixels(KINDS[name])[:, :, 1] - expected).max() <= (1 if name == "twelve.tif" else 0)


def test_either_byte_order_of_sixteen_bits_is_divided_by_257() -> None:
    values = np.arange(0, 65536, 257 // 2, dtype=np.uint16)[:480].reshape(20, 24)
    little, big = Image.fromarray(values), Image.frombytes("I;16B", (24, 20), values.astype(">u2").tobytes())
    assert big.mode == "I;16B"
    expected = np.rint(values / 257)
    for image in (little, big):
        assert np.array_equal(pixels(encoded(image, "TIFF"))[:, :, 0], expected)
        assert np.array_equal(np.asarray(to_rgb(image, "given"))[:, :, 2], expected)


def test_a_sixteen_bit_grey_that_is_declared_transparent_becomes_white() -> None:
    values = sixteen_bits()
    content = encoded(Image.fromarray(values), "PNG", transparency=int(values[0, 0]))
    found = pixels(content)
    assert found[0, 0].tolist() == [255, 255, 255] and found[0, 1].max() < 20


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (RAMP, RAMP * 255),
        (RAMP * 1.0005 - 0.0002, (RAMP * 1.0005 - 0.0002).clip(0, 1) * 255),
        (RAMP * 255, RAMP * 255),
        (RAMP * 100, RAMP * 100),
        (np.zeros((6, 8)), np.zeros((6, 8))),
    ],
)
def test_floats_of_a_usual_range_are_scaled_by_it(values: np.ndarray, expected: np.ndarray) -> None:
    found = pixels(encoded(Image.fromarray(values.astype(np.float32)), "TIFF"))[:, :, 0]
    assert np.abs(found - expected).max() <= 0.51


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (RAMP * 300, r"the image a\.tif has float values from 0 to 300; scale them to 0\.\.1 or 0\.\.255"),
        (RAMP - 0.5, r"float values from -0\.5 to 0\.5"),
        (RAMP * 1.5, r"float values from 0 to 1\.5"),
        (np.where(RAMP > 0.5, np.nan, RAMP), r"has 24 float values that are NaN or infinite"),
        (np.where(RAMP == 1, np.inf, RAMP), r"has 1 float values that are NaN or infinite"),
    ],
)
def test_floats_of_no_usual_range_are_refused(values: np.ndarray, sentence: str, tmp_path: Path) -> None:
    Image.fromarray(values.astype(np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=sentence.replace("the image ", "the image .*")):
        decode(tmp_path / "a.tif")


@pytest.mark.parametrize("values", [[-1, 500], [0, 65536], [0, 200]])
def test_wide_integers_without_a_known_white_are_refused(values: list[int]) -> None:
    content = encoded(Image.fromarray(np.array([values], np.int32)), "TIFF")
    with pytest.raises(DataError, match=f"has integers from {values[0]} to {values[1]} in a type without .* save it"):
        pixels(content)


def test_transparent_images_lie_on_white() -> None:
    rgba = colours(channels=4)
    for name in ("rgba.png", "rgba.tif", "rgba.webp"):
        with Image.open(io.BytesIO(KINDS[name])) as image:
            stored = np.asarray(image)
        assert np.array_equal(stored[:, :, 3], rgba[:, :, 3])
        assert np.abs(pixels(KINDS[name]) - on_white(stored)).max() <= 1
    premultiplied = to_rgb(Image.fromarray(rgba).convert("RGBa"), "given")
    assert np.abs(np.asarray(premultiplied) - on_white(rgba)).max() <= 2
    half = Image.fromarray(rgba).convert("LA")
    assert np.asarray(to_rgb(half.convert("La"), "given")).shape == (6, 8, 3)


def test_what_a_palette_or_a_colour_declares_transparent_is_white() -> None:
    with Image.open(io.BytesIO(KINDS["transparent-palette.png"])) as image:
        gone = np.asarray(image) == 3
    opaque = pixels(KINDS["palette.png"])
    assert gone.any()
    assert np.array_equal(pixels(KINDS["transparent-palette.png"]), np.where(gone[:, :, None], 255, opaque))
    gone = (colours() == colours()[0, 0]).all(2)
    assert np.array_equal(pixels(KINDS["transparent-colour.png"]), np.where(gone[:, :, None], 255, colours()))
    gone = colours()[:, :, 0] == 7
    expected = np.where(gone, 255, colours()[:, :, 0])
    assert np.array_equal(pixels(KINDS["transparent-grey.png"])[:, :, 0], expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_applied_once(kind: str, orientation: int) -> None:
    image = Image.fromarray(colours())
    options = {"lossless": True} if kind == "WEBP" else {}
    found = pixels(encoded(image, kind, exif=exif(orientation), **options))
    told = image.copy()
    told.getexif()[0x0112] = orientation
    assert np.array_equal(found, np.asarray(ImageOps.exif_transpose(told)))
    assert (found.shape == (8, 6, 3)) == (orientation >= 5)


def test_a_sixteen_bit_image_on_its_side_is_turned_too() -> None:
    content = encoded(Image.fromarray(sixteen_bits()), "PNG", exif=exif(6))
    assert np.array_equal(pixels(content)[:, :, 0], np.rot90(np.rint(RAMP * 255), -1))


@pytest.mark.parametrize(
    "damage", [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*" + bytes(40), b"x" * 30]
)
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_broken_exif_and_profiles_do_not_matter(damage: bytes) -> None:
    image = Image.fromarray(colours(width=32, height=16))
    whole = pixels(encoded(image, "JPEG"))
    for options in ({"exif": damage}, {"icc_profile": damage}):
        assert np.array_equal(pixels(encoded(image, "JPEG", **options)), whole)
        assert np.array_equal(pixels(encoded(image, "PNG", **options)), np.asarray(image))


def test_of_an_animation_the_first_frame_counts() -> None:
    for name in ("moving.png", "moving.webp"):
        assert np.array_equal(pixels(KINDS[name]), colours())
    with Image.open(io.BytesIO(KINDS["moving.gif"])) as image:
        assert image.n_frames == 3
        assert np.array_equal(pixels(KINDS["moving.gif"]), np.asarray(image.convert("RGB")))


def test_a_tiff_of_several_pages_is_refused_but_thumbnails_are_not_pages() -> None:
    first, second = (Image.fromarray(colours(seed)) for seed in (0, 1))
    with pytest.raises(DataError, match="is a TIFF of several pages; save each page"):
        pixels(encoded(first, "TIFF", save_all=True, append_images=[second]))
    second.encoderinfo = {"tiffinfo": {254: 1}}
    assert np.array_equal(pixels(encoded(first, "TIFF", save_all=True, append_images=[second])), colours())


def png_of_size(width: int, height: int) -> bytes:
    """A PNG that only says how large it is."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [10_000, 14_000])
def test_bombs_are_refused_where_pillow_warns_and_where_it_raises(side: int) -> None:
    with pytest.raises(DataError, match=r"pixels that are decoded.*; scale it down"):
        pixels(png_of_size(side, side))


def test_files_that_are_no_images_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with pytest.raises(DataError, match=r"there is no image .*a\.png"):
        decode(path)
    for content, why in (
        (b"", "it is empty"),
        (b"not an image\n", "no intact header of JPEG, PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no intact header of"),
        (png_of_size(0, 4), "no intact header of"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"the image .*a\.png can't be decoded \({why}"):
            decode(path)
    with pytest.raises(DataError, match=r"the image given can't be decoded \(it has 0 x 4 pixels\)"):
        to_rgb(Image.new("RGB", (0, 4)), "given")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(DataError, match=r"folder\.png can't be decoded \(it is a folder\)"):
        decode(tmp_path / "folder.png")
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(DataError, match="n't a regular file"):
        decode(tmp_path / "pipe.png")
    with pytest.raises(DataError, match="can't be decoded"):
        decode(Path("a\0b.png"))


def test_a_wrong_suffix_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(KINDS["rgb.jpg"])
    assert decode(tmp_path / "a.png").tobytes() == decode(KINDS["rgb.jpg"], "given").tobytes()


@pytest.mark.parametrize(
    "error", [struct.error("x"), KeyError(3), MemoryError(), zlib.error("a\nb"), RecursionError("r" * 999)]
)
def test_whatever_pillow_raises_becomes_one_short_sentence(monkeypatch, error: Exception) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(DataError, match=r"^the image given can't be decoded \(.+\); get it again$") as caught:
        decode(b"x", "given", remedy="get it again")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250
    assert caught.value.__cause__ is error


def test_an_interrupt_is_not_taken_for_a_damaged_file(monkeypatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Image, "open", stop)
    with pytest.raises(KeyboardInterrupt):
        decode(b"x", "given")


def test_a_twelve_bit_tiff_is_white_at_4095() -> None:
    assert pixels(twelve_bit_tiff(np.full((2, 2), 4095))).min() == 255
