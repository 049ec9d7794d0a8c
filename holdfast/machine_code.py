"""Loops that are compiled beforehand: to LLVM's language when they are written, to machine code where they run.

Numba at run time costs its import, a quarter of a second of processor time, and seconds for a loop that is not in its
cache. Where a loop is worth having in programs that end sooner, `compiled` makes text of it that is kept beside its
source, as generated code is; `loaded` turns the text into machine code for the processor at hand in 40 ms, with
llvmlite, which Numba needs anyway. Neither a compiler nor a file that can be exchanged later is on the user's side: the
text is part of the package, as its Python is.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PLATFORM = re.compile(r'^target (datalayout|triple) = ".*"\n', re.MULTILINE)
_SOURCE = re.compile(r"^; of (\S+) with SHA-256 ([0-9a-f]{64})$", re.MULTILINE)

Code = Callable[..., int]


def loaded(path: Path, arguments: Mapping[str, tuple[Any, ...]]) -> dict[str, Code] | None:
    """The functions of a file that `compiled` wrote.

    Args:
        path: the file.
        arguments: of each function that is wanted, the types that `ctypes` calls its arguments.

    Returns:
        Functions that give a whole number and don't hold Python's lock; None where llvmlite is another than this text
        is for, or the processor keeps the highest byte of a number first.
    """
    try:
        import llvmlite.binding as llvm  # noqa: PLC0415 - only where a loop is worth it

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly(path.read_text("utf-8"))
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
        )
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
    except (ImportError, RuntimeError):
        return None
    if sys.byteorder != "little":
        return None
    return {name: _function(engine, name, types) for name, types in arguments.items()}


def _function(engine: Any, name: str, types: tuple[Any, ...]) -> Code:
    """One function, whose result comes by its first pointer; the second is for errors, and loops have none."""
    native = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *types)(
        engine.get_function_address(name)
    )

    def call(*arguments: Any) -> int:
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        if native(ctypes.addressof(result), ctypes.addressof(error), *arguments):
            raise RuntimeError(f"{name} failed")
        return result.value

    call.__dict__["engine"] = engine  # the code goes with it
    return call


def compiled(source: Path, functions: Mapping[Callable[..., Any], Any]) -> str:
    """LLVM's text of functions, none of which may raise.

    Args:
        source: the file they stand in, whose checksum is noted.
        functions: each with the type that Numba calls its signature; all return int64.
    """
    import llvmlite.binding as llvm  # noqa: PLC0415
    from numba import njit  # noqa: PLC0415

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    whole = llvm.parse_assembly("")
    for function, signature in functions.items():
        made = njit(signature, error_model="numpy", boundscheck=False)(function)
        module = llvm.parse_assembly(made.inspect_llvm(made.signatures[0]))
        name = str(function.__name__)
        wanted = next(value for value in module.functions if re.match(rf"_ZN\d.*\d{name}B", value.name))
        for value in [*module.functions, *module.global_variables]:
            if value.name != wanted.name and not value.is_declaration:
                value.linkage = "internal"  # Numba's ways in from Python, which go below
        wanted.name = name
        passes = llvm.create_new_module_pass_manager()
        passes.add_global_dead_code_eliminate_pass()
        passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
        whole.link_in(module)
    made_by = " and ".join(f"{package} {version(package)}" for package in ("numba", "llvmlite"))
    return f"; Made by {made_by}\n; of {source.name} with SHA-256 {_checksum(source)}\n" + _PLATFORM.sub("", str(whole))


def is_of(path: Path, source: Path) -> bool:
    """Whether a file that `compiled` wrote was made of the source as it is now."""
    found = _SOURCE.search(path.read_text("utf-8"))
    return found is not None and found.groups() == (source.name, _checksum(source))


def _checksum(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()
