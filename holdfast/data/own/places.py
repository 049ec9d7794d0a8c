"""What is at a place: a table, a folder of images, arrays, a data set of the hub; or a sentence that says why not."""

from __future__ import annotations

from pathlib import Path

from holdfast.data.own import image_folders
from holdfast.data.own.arrays import read_arrays
from holdfast.data.own.hub import is_saved, read_hub, read_saved
from holdfast.data.own.options import HUB
from holdfast.data.own.source import PARTS, Source
from holdfast.data.own.tables import READERS, read_table, read_tables, suffix_of, tables_in
from holdfast.data.own.words import shortened, some
from holdfast.errors import DataError

_FORMS = (
    "a table (csv, tsv, parquet, arrow, jsonl), an npz file, a folder with a folder of images per class, a folder of "
    "images with a metadata.csv, a folder of tables, a saved data set of the hub, or hf:NAME"
)
#: Files that people have and we don't read, and what to do about it.
_REMEDIES = {
    ".xlsx": "save the sheet as csv",
    ".xls": "save the sheet as csv",
    ".pkl": "a pickle can run code when it is read: save it as parquet or npz",
    ".pickle": "a pickle can run code when it is read: save it as parquet or npz",
    ".pt": "a torch file can run code when it is read: save the tensors with numpy.savez",
    ".pth": "a torch file can run code when it is read: save the tensors with numpy.savez",
    ".npy": "save inputs and labels together with numpy.savez",
    ".h5": "save the arrays with numpy.savez",
    ".mat": "save the arrays with numpy.savez",
    ".zip": "unpack it and give the folder",
    ".tar": "unpack it and give the folder",
    ".gz": "unpack it and give what was in it",
    ".tgz": "unpack it and give the folder",
    ".bz2": "unpack it and give what was in it",
    ".zst": "unpack it and give what was in it",
    ".xz": "unpack it and give what was in it",
    ".7z": "unpack it and give the folder",
    ".ods": "save the sheet as csv",
    ".hdf5": "save the arrays with numpy.savez",
    ".txt": "if it is a table, call it .csv; of texts, make a table with a column for them",
    ".data": "if it is a table, call it .csv, with a first line that names the columns",
    ".dat": "if it is a table, call it .csv, with a first line that names the columns",
    "": "if it is a table, call it .csv",
}


def read_place(place: str, *, sample: bool = False) -> Source:
    """Read what is at a place.

    Args:
        place: a file, a folder, or ``hf:NAME[:CONFIG]``.
        sample: read only what is needed to see what there is; row counts then mean nothing.

    Raises:
        DataError: if there is nothing, or nothing that can be read.
    """
    if place.startswith(HUB):
        return read_hub(place)
    if not place.strip():
        raise DataError(f"the place of the data is an empty text; give {_FORMS}")
    try:
        path = Path(place).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # a name that no file can have, a user that is none
        raise DataError(f"there can be nothing at {shortened(place)}; give {_FORMS}") from error
    if is_folder:
        return _read_folder(path, place, sample=sample)
    if not is_file:
        what = "no regular file" if path.exists() else "nothing"
        raise DataError(f"there is {what} at {place}; give {_FORMS}")
    suffix = suffix_of(path)
    if suffix == ".npz":
        return read_arrays(path, place)
    if suffix in READERS:
        return Source(place, read_table(path, sample=sample), folder=path.parent, sample=sample)
    if image_folders.is_image(path.name):
        return image_folders.unlabelled_images(path.parent, [path.name], place)
    remedy = _REMEDIES.get(path.suffix.lower(), f"give {_FORMS}")
    raise DataError(f"{place} is not a file that can be read as examples; {remedy}")


def _is_part(entry: Path) -> bool:
    return entry.is_dir() and not entry.name.isdecimal() and entry.name.lower() in PARTS


def _read_folder(folder: Path, place: str, *, sample: bool) -> Source:
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        if is_saved(folder):
            return read_saved(folder, place)
        metadata = image_folders.metadata_file(folder)
        tables = tables_in(entry for entry in entries if entry.is_file())
        if metadata is None and len(tables) == 1 and image_folders.has_images(folder):
            metadata = tables[0]
        if metadata is not None:
            return image_folders.read_described(folder, metadata, place, sample=sample)
        if not tables and (folder / "data").is_dir():
            tables = tables_in((folder / "data").iterdir())
        if tables and not image_folders.has_images(folder):
            return read_tables(tables, place, sample=sample)
        parts = {entry: PARTS[entry.name.lower()] for entry in entries if _is_part(entry)}
        tables = tables_in(path for part in parts for path in part.iterdir() if path.is_file())
        if tables and not image_folders.has_images(folder):
            return read_tables(tables, place, parts=parts, sample=sample)
        if image_folders.has_images(folder):
            return image_folders.read_class_folders(folder, place)
    except OSError as error:
        raise DataError(f"{place} can't be read ({error.strerror or error}); look at its permissions") from error
    listed = some(sorted(entry.name for entry in entries)) or "nothing"
    raise DataError(f"the folder {place} has neither images nor tables (it has {listed}); give {_FORMS}")
