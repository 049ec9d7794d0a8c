"""Small images of every kind that Pillow writes, and one that it doesn't, to try decoding and its fuzzer on."""

import io
import struct
from pathlib import Path

import numpy as np
from PIL import Image

RAMP = np.linspace(0, 1, 48).reshape(6, 8)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def colours(seed: int = 0, width: int = 8, height: int = 6, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(height, width, channels), dtype=np.uint8)


def sixteen_bits() -> np.ndarray:
    return np.rint(RAMP * 65535).astype(np.uint16)


def twelve_bit_tiff(values: np.ndarray) -> bytes:
    """Grey of 12 bits, two pixels in three bytes, which Pillow reads and can't write."""
    pairs = values.reshape(-1, 2).astype(int)
    packed = b"".join(bytes([a >> 4, (a & 15) << 4 | b >> 8, b & 255]) for a, b in pairs)
    height, width = values.shape
    tags = [(256, width), (257, height), (258, 12), (259, 1), (262, 1), (273, 8), (277, 1), (278, height)]
    tags.append((279, len(packed)))
    entries = b"".join(struct.pack("<HHII", tag, 4 if tag in (273, 279) else 3, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", 8 + len(packed)) + packed + struct.pack("<H", len(tags)) + entries + bytes(4)


def exif(orientation: int) -> Image.Exif:
    found = Image.Exif()
    found[0x0112] = orientation
    return found


def every_kind() -> dict[str, bytes]:
    """Name to content; all of them are read."""
    rgb, rgba = Image.fromarray(colours()), Image.fromarray(colours(channels=4))
    grey = Image.fromarray(colours()[:, :, 0])
    palette = rgb.quantize(16)
    wide, floats = Image.fromarray(sixteen_bits()), Image.fromarray(RAMP.astype(np.float32))
    frames = [Image.fromarray(colours(seed)) for seed in range(3)]
    larger = Image.fromarray(colours(width=40, height=30))
    rest = {"save_all": True, "append_images": frames[1:]}
    return {
        "rgb.png": encoded(rgb, "PNG"),
        "rgb.jpg": encoded(larger, "JPEG", quality=90),
        "progressive.jpg": encoded(larger, "JPEG", progressive=True),
        "turned.jpg": encoded(larger, "JPEG", exif=exif(6)),
        "turned.png": encoded(rgb, "PNG", exif=exif(5)),
        "turned.tif": encoded(rgb, "TIFF", exif=exif(8)),
        "turned.webp": encoded(rgb, "WEBP", exif=exif(3), lossless=True),
        "cmyk.jpg": encoded(larger.convert("CMYK"), "JPEG"),
        "cmyk.tif": encoded(rgb.convert("CMYK"), "TIFF"),
        "ycbcr.tif": encoded(rgb.convert("YCbCr"), "TIFF"),
        "lab.tif": encoded(rgb.convert("LAB"), "TIFF"),
        "grey.png": encoded(grey, "PNG"),
        "grey.jpg": encoded(larger.convert("L"), "JPEG"),
        "transparent-grey.png": encoded(grey, "PNG", transparency=7),
        "one-bit.png": encoded(grey.convert("1"), "PNG"),
        "one-bit.tif": encoded(grey.convert("1"), "TIFF", compression="group4"),
        "palette.png": encoded(palette, "PNG"),
        "transparent-palette.png": encoded(palette, "PNG", transparency=3),
        "alphas-palette.png": encoded(palette, "PNG", transparency=bytes(range(0, 160, 10))),
        "transparent-colour.png": encoded(rgb, "PNG", transparency=tuple(colours()[0, 0].tolist())),
        "rgba.png": encoded(rgba, "PNG"),
        "rgba.tif": encoded(rgba, "TIFF", compression="tiff_lzw"),
        "grey-alpha.png": encoded(rgba.convert("LA"), "PNG"),
        "rgba.webp": encoded(rgba, "WEBP", lossless=True),
        "wide.png": encoded(wide, "PNG"),
        "wide.tif": encoded(wide, "TIFF", compression="tiff_deflate"),
        "wide.pgm": encoded(wide, "PPM"),
        "wide.jp2": encoded(wide, "JPEG2000"),
        "integers.tif": encoded(Image.fromarray(sixteen_bits().astype(np.int32)), "TIFF"),
        "twelve.tif": twelve_bit_tiff(np.rint(RAMP * 4095)),
        "floats.tif": encoded(floats, "TIFF"),
        "floats.pfm": encoded(floats, "PPM"),
        "moving.gif": encoded(frames[0].quantize(16), "GIF", save_all=True, append_images=frames[1:]),
        "moving.png": encoded(frames[0], "PNG", **rest),
        "moving.webp": encoded(frames[0], "WEBP", lossless=True, **rest),
        "pair.jpg": encoded(larger, "MPO", save_all=True, append_images=[larger.rotate(90)]),
        "rgb.bmp": encoded(rgb, "BMP"),
        "rgb.ppm": encoded(rgb, "PPM"),
        "rgb.jp2": encoded(rgb, "JPEG2000"),
    }


def write_kinds(folder: Path) -> list[Path]:
    """All of them as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in every_kind().items():
        (folder / name).write_bytes(content)
    return [folder / name for name in every_kind()]
