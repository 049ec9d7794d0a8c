"""One image to 8-bit RGB, whatever its mode: the one place that opens image files.

Pillow's ``convert("RGB")`` clips what has more than 8 bits (a 16-bit ramp turns white, a float image from 0 to 1
black), drops transparency and leaves a photograph on its side. Here every mode has a rule:

| image | becomes |
| --- | --- |
| 8-bit RGB, grey, 1-bit | the same pixels, grey in three channels, black and white |
| palette (P, PA) | the colours of its palette |
| transparent: LA, RGBA, La, RGBa, or a palette or colour declared transparent | laid on white |
| CMYK, YCbCr, LAB, HSV | converted, without colour profiles |
| grey of 16 bits (I;16 in either order) | divided by 257: 65,535 is white; in a TIFF of 12 bits, 4,095 is |
| integers of 32 bits (I) | the same, if all are in 0..65,535; refused otherwise, and where none exceeds 255 in a TIFF |
| floats (F) | times 255 if in 0..1, kept if in 0..255; refused otherwise, and with NaN or infinity |

Colour of 16 bits per channel is read by Pillow, which keeps the high byte. EXIF orientation is applied. Of an animation
(GIF, WebP, AVIF, APNG) or a camera's multi-picture JPEG the first frame counts; a TIFF of several pages is refused,
unless the others are thumbnails or masks. More pixels than `PIL.Image.MAX_IMAGE_PIXELS`, at which Pillow only warns,
are refused. A file is told by its content, not by its suffix, and must be one of `FORMATS`: Pillow would hand
PostScript to another program. Nothing but `DataError` leaves, whatever Pillow raises on a damaged file.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from holdfast.errors import DataError

#: What is opened, by Pillow's names, the usual ones first; those that this Pillow was built without are left out.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM", "TIFF", "JPEG2000", "AVIF")

_REMEDY = "replace it or drop its row"
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_BITS_PER_SAMPLE, _KIND_OF_PAGE = 258, 254
_THUMBNAIL_OR_MASK = 0b101
_MOST_PAGES = 32
_WHITE_16, _WHITE_12, _WHITE_8 = 65_535, 4_095, 255
_ROUNDING = 1e-3  # how far a float image may lie outside of 0..1, as resampled ones do
_UNCLEAR = 2.0  # floats whose largest value is between 1 and this are neither 0..1 nor 0..255


class _RefusedError(Exception):
    """What an image is that is not read, and the remedy; the file's name is put before it."""


def decode(
    source: Path | bytes, name: str | None = None, *, remedy: str | None = None, alpha: bool = False
) -> Image.Image:
    """An image file as 8-bit RGB by the rules of this module; ordinary RGB files bit by bit as Pillow decodes them.

    Args:
        source: a file, or the content of one.
        name: what errors call the image; the path where omitted.
        remedy: what errors propose where the file is missing or damaged.
        alpha: give RGBA instead, with transparency kept and not laid on white.

    Raises:
        DataError: if the file is missing, damaged, no image, too large, or of values without a known scale.
    """
    with image_file(source, name, remedy=remedy) as file:
        return _eight_bits(file, alpha)


def to_rgb(image: Image.Image, name: str) -> Image.Image:
    """An image that somebody else opened as 8-bit RGB, by the same rules.

    Args:
        image: of any mode.
        name: what errors call it.

    Raises:
        DataError: as `decode`.
    """
    with _refusals(name, None):
        _check_header(image)
        return _eight_bits(image, alpha=False)


def turned_size(image: Image.Image) -> tuple[int, int]:
    """Width and height once the EXIF orientation is applied, from the header alone."""
    width, height = image.size
    return (height, width) if _orientation(image) >= 5 and not _is_tiff(image) else (width, height)


@contextmanager
def image_file(source: Path | bytes, name: str | None = None, *, remedy: str | None = None) -> Iterator[Image.Image]:
    """An image whose header is read and found acceptable; what Pillow raises in the block becomes a `DataError`."""
    with (
        _refusals(name or str(source), remedy),
        _stream(source) as stream,
        Image.open(stream, formats=_formats()) as file,
    ):
        _check_header(file)
        yield file


@contextmanager
def _refusals(name: str, remedy: str | None) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except _RefusedError as error:
        raise DataError(f"the image {name} {error}") from error
    except FileNotFoundError as error:
        remedy = remedy or "correct the path in the metadata, or fetch the images"
        raise DataError(f"there is no image {name}; {remedy}") from error
    except Image.DecompressionBombError as error:
        raise DataError(f"the image {name} {_too_large()}") from error
    except UnidentifiedImageError as error:
        known = ", ".join(_formats())
        raise DataError(
            f"the image {name} can't be decoded (no intact header of {known}); {remedy or _REMEDY}"
        ) from error
    except Exception as error:  # damaged files make Pillow raise nearly anything: struct.error, KeyError, zlib.error
        raise DataError(f"the image {name} can't be decoded ({_reason(error)}); {remedy or _REMEDY}") from error


def _stream(source: Path | bytes) -> BinaryIO:
    if isinstance(source, bytes):
        if not source:
            raise OSError("it is empty")
        return io.BytesIO(source)
    status = source.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for forever
        raise OSError("it is a folder" if stat.S_ISDIR(status.st_mode) else "it isn't a regular file")
    if status.st_size == 0:
        raise OSError("it is empty")
    return source.open("rb")


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _check_header(image: Image.Image) -> None:
    if min(image.size) < 1:
        raise OSError(f"it has {image.width} x {image.height} pixels")
    if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
        raise _RefusedError(_too_large(image))
    if _is_tiff(image) and getattr(image, "is_animated", False) and _has_more_pages(image):
        raise _RefusedError("is a TIFF of several pages; save each page as a file of its own")


def _is_tiff(image: Image.Image) -> bool:
    return image.format == "TIFF"


def _has_more_pages(image: Image.Image) -> bool:
    """Whether a page besides the first is an image in its own right."""
    tags: Any = image
    try:
        for page in range(1, _MOST_PAGES):
            image.seek(page)
            if not int(tags.tag_v2.get(_KIND_OF_PAGE, 0)) & _THUMBNAIL_OR_MASK:
                return True
    except EOFError:
        image.seek(0)
        return False
    return True


def _eight_bits(image: Image.Image, alpha: bool) -> Image.Image:
    image.load()
    turn = _TURNS.get(_orientation(image))
    if image.mode == "I" or image.mode.startswith("I;16"):
        image = _grey(_from_integers(image), np.asarray(image), image.info.get("transparency"))
    elif image.mode == "F":
        image = _grey(_from_floats(np.asarray(image)))
    elif image.mode in ("La", "RGBa"):
        image = image.convert("LA" if image.mode == "La" else "RGBA")
    if alpha:
        image = image.convert("RGBA")
    elif image.mode in ("LA", "PA", "RGBA") or (image.mode in ("1", "L", "P", "RGB") and "transparency" in image.info):
        image = _on_white(image)
    elif image.mode != "RGB":
        image = image.convert("RGB")
    return image if turn is None else image.transpose(turn)


def _grey(values: NDArray[np.float32], stored: NDArray[Any] | None = None, transparent: object = None) -> Image.Image:
    """Values from 0 to 255 as an image, transparent where the stored value is the one that the file declares so."""
    image = Image.fromarray(np.rint(values).astype(np.uint8))
    if stored is not None and isinstance(transparent, int):
        image.putalpha(Image.fromarray(np.where(stored == transparent, 0, 255).astype(np.uint8)))
    return image


def _from_integers(image: Image.Image) -> NDArray[np.float32]:
    """Integers of more than 8 bits as 0..255."""
    values = np.asarray(image)
    low, high = int(values.min()), int(values.max())
    tags: Any = getattr(image, "tag_v2", {})
    bits = tags.get(_BITS_PER_SAMPLE)
    if bits == (12,):
        return values.astype(np.float32).clip(0, _WHITE_12) * np.float32(_WHITE_8 / _WHITE_12)
    unclear = bits == (32,) and 0 < high <= _WHITE_8
    if low < 0 or high > _WHITE_16 or unclear:
        raise _RefusedError(
            f"has integers from {low} to {high} in a type without a known black and white; save it with 8 bits from 0 "
            "to 255, or with 16 bits from 0 to 65535"
        )
    return values.astype(np.float32) * np.float32(_WHITE_8 / _WHITE_16)


def _from_floats(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Floats of one of the two usual ranges as 0..255."""
    bad = int(values.size - np.isfinite(values).sum())
    if bad:
        raise _RefusedError(f"has {bad} float values that are NaN or infinite; mend them, or drop its row")
    low, high = float(values.min()), float(values.max())
    if low >= -_ROUNDING and high <= 1 + _ROUNDING:
        return values.clip(0, 1) * np.float32(_WHITE_8)
    if low >= 0 and _UNCLEAR <= high <= _WHITE_8:
        return values
    raise _RefusedError(f"has float values from {low:g} to {high:g}; scale them to 0..1 or 0..255 and save it again")


def _on_white(image: Image.Image) -> Image.Image:
    layered = image.convert("RGBA")
    canvas = Image.new("RGB", image.size, "white")
    canvas.paste(layered.convert("RGB"), mask=layered.getchannel("A"))
    return canvas


def _orientation(image: Image.Image) -> int:
    """1 to 8, as EXIF numbers them; 1 where there is none, or none that can be read. Pillow turns a TIFF itself."""
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # the picture is whole, only what is said about it is not
        return 1
    return found if isinstance(found, int) else 1


def _too_large(image: Image.Image | None = None) -> str:
    has = "more" if image is None else f"{image.width} x {image.height} pixels, more"
    most = Image.MAX_IMAGE_PIXELS or 0
    return (
        f"has {has} than the {most:,} pixels that are decoded, as a small file can fill the memory; scale it down, or "
        "raise PIL.Image.MAX_IMAGE_PIXELS if you trust it"
    )


def _reason(error: Exception) -> str:
    """What an error says, as a short clause of printable characters."""
    words = " ".join(str(error).split())
    text = "".join(char if char.isprintable() else "?" for char in words)
    return text[:120] or type(error).__name__
