"""A federation as a Flower app: what `flwr run` sends to SuperLink and SuperNodes.

The app is two lines of code per side and the configuration of `holdfast federate`; the code that runs is the installed
holdfast. Nodes therefore decide which version they trust, and the app that is sent can't bring another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError
from holdfast.files import plain_values, write_atomically

#: Keys of the app's run configuration.
OPTIONS, FEDERATION, RUN, CHARTER = "holdfast", "federation", "run", "charter"

_PYPROJECT = """[project]
name = "holdfast-federation"
version = "1.0.0"
description = "A federation of holdfast."
license = "Apache-2.0"

[tool.flwr.app]
publisher = "holdfast"

[tool.flwr.app.components]
serverapp = "holdfast_server:app"
clientapp = "holdfast_client:app"

[tool.flwr.app.config]
"""
_SIDE = """from holdfast.cli.commands.federation.apps import {make}

app = {make}()
"""


def app_files(options: Mapping[str, Any], **run_config: str) -> dict[str, bytes]:
    """The files of the app by name.

    Args:
        options: what `holdfast federate --print-config` prints.
        run_config: further keys of the run configuration; `flwr run --run-config` can override them.
    """
    config = {OPTIONS: json.dumps(plain_values(options)), **run_config}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in config.items()]
    return {
        "pyproject.toml": (_PYPROJECT + "".join(lines)).encode(),
        "holdfast_server.py": _SIDE.format(make="make_server_app").encode(),
        "holdfast_client.py": _SIDE.format(make="make_client_app").encode(),
    }


def write_app(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the app into a folder for `flwr run`.

    Raises:
        ConfigError: if there is something else in the folder.
    """
    strangers = sorted(path.name for path in folder.glob("*")) if folder.exists() else []
    if set(strangers) - set(files):
        raise ConfigError(f"{folder} has other files ({', '.join(strangers[:3])}); choose an empty folder for the app")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content)
