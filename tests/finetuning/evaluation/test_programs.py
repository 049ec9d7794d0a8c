import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.finetuning.evaluation import Outcome, exact_match, find_program, printed_answer, programs, run_program
from holdfast.finetuning.evaluation.system_calls import _CALLS, _OPENAT, filter_for, system_call_filter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are confined by Linux")


@pytest.fixture(params=["kernel", "hooks"])
def confinement(request, monkeypatch):
    """With the filter of system calls, and as on machines that have none."""
    if request.param == "hooks":
        monkeypatch.setattr(programs, "system_call_filter", lambda: None)


def stopped(program: str, *, timeout: float = 30.0, memory_mb: int = 1024) -> str:
    """Why a program came to nothing."""
    outcome = run_program(program, timeout=timeout, memory_mb=memory_mb)
    assert outcome.printed is None
    assert not outcome.ok
    assert outcome.why
    return outcome.why


def test_the_last_line_printed_is_the_answer():
    outcome = run_program("eggs = 16 - 3 - 4\nprint('working')\nprint(eggs * 2.0)\nprint()")
    assert outcome == Outcome("18.0", True, "")
    assert exact_match([printed_answer("18.0")], ["18"]).all()


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        (
            "from sympy import solve, symbols\nx, y = symbols('x y')\nprint(solve([x + y - 3, x - y - 1], [x, y]))",
            "x=2,y=1",
        ),
        ("import numpy as np\nprint(np.linalg.solve(np.array([[2.0, 0], [0, 4]]), np.ones(2)).tolist())", "1/2, 1/4"),
        ("import datetime, math, itertools, fractions\nprint(fractions.Fraction(3, 4))", "0.75"),
        ("if __name__ == '__main__':\n    print(open(__file__).read().count('e'))", "5"),
    ],
)
def test_a_program_may_compute_and_read(program, answer):
    outcome = run_program(program)
    assert outcome.ok, outcome.why
    assert exact_match([printed_answer(outcome.printed)], [answer]).all()


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "import time\nprint(1, flush=True)\ntime.sleep(60)",
        "import os, time\nos.close(1)\nos.close(2)\ntime.sleep(60)",
        "9**9**9**9",
    ],
)
def test_it_is_stopped_after_its_time(program):
    began = time.monotonic()
    assert stopped(program, timeout=0.5) == "it took too long"
    assert time.monotonic() - began < 10


@pytest.mark.usefixtures("confinement")
def test_it_cannot_start_processes():
    assert "os.fork" in stopped("import os\nwhile True: os.fork()")
    assert "subprocess.Popen" in stopped("import subprocess\nsubprocess.run(['echo', '5'])\nprint(5)")
    assert "os.system" in stopped("import os\nos.system('echo 5')\nprint(5)")


@pytest.mark.usefixtures("confinement")
def test_it_cannot_touch_files(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    for program in (
        "open('{}/new', 'w').write('x')",
        "open('{}/kept', 'a').write('x')",
        "open('new', 'w').write('x')",
        "import pathlib\npathlib.Path('{}/kept').unlink()",
        "import os\nos.rename('{0}/kept', '{0}/gone')",
        "import os\nos.truncate('{}/kept', 0)",
        "import os\nos.chmod('{}/kept', 0)",
        "import shutil\nshutil.rmtree('{}')",
    ):
        assert "PermissionError" in stopped(program.format(tmp_path) + "\nprint(5)")
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "as it was"


@pytest.mark.usefixtures("confinement")
def test_it_cannot_use_the_network():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        program = f"import socket\nsocket.create_connection(('127.0.0.1', {port})).send(b'5')\nprint(5)"
        assert "socket" in stopped(program)
        with pytest.raises(TimeoutError):
            server.accept()


def test_it_cannot_take_all_memory():
    assert "MemoryError" in stopped("held = bytearray(2**40)\nprint(5)")
    stopped("held = []\nwhile True: held.append(bytearray(2**20))", memory_mb=128)


def test_it_cannot_flood_us():
    assert "more than 65536 bytes" in stopped("while True: print('5' * 1000)")
    assert "more than 65536 bytes" in stopped("import sys\nwhile True: print('5' * 1000, file=sys.stderr)")


@pytest.mark.usefixtures("confinement")
def test_it_cannot_signal_others():
    assert "os.kill" in stopped(f"import os\nos.kill({os.getpid()}, 9)\nprint(5)")


WITHOUT_HOOKS = """
import os, runpy, socket, sys, _thread
runpy.run_path(sys.argv[1])["keep_only"](bytes.fromhex(sys.argv[2]))
for act in (
    os.fork,
    lambda: os.execv("/bin/true", ["true"]),
    lambda: os.kill(os.getpid(), 0),
    socket.socket,
    lambda: open("new", "w"),
    lambda: os.remove("kept"),
    lambda: os.mkfifo("new"),
    lambda: os.truncate("kept", 0),
):
    try:
        act()
    except OSError as error:
        print(error.errno)
    else:
        print("done")
try:
    _thread.start_new_thread(print, ("done",))
except RuntimeError:
    print(len(open("kept").read()))
"""


@pytest.mark.skipif(system_call_filter() is None, reason="no filter of system calls here")
def test_the_kernel_alone_refuses_too(tmp_path):
    (tmp_path / "kept").write_text("as it was")
    arguments = [str(Path(programs.__file__).with_name("confined.py")), system_call_filter().hex()]
    command = [sys.executable, "-S", "-c", WITHOUT_HOOKS, *arguments]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout.split() == ["38"] * 8 + ["9"], found.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_it_sees_nothing_of_where_it_is_run(monkeypatch):
    monkeypatch.setenv("HOLDFAST_SECRET", "hunter2")
    outcome = run_program("import os\nprint(sorted(os.environ), os.listdir(), os.getcwd(), sep='|')")
    environment, files, folder = outcome.printed.split("|")
    assert "HOLDFAST_SECRET" not in environment
    assert files == "['program.py']"
    assert not Path(folder).exists()


def test_a_failure_says_why():
    assert run_program("print(1)\n1 / 0") == Outcome(None, False, "ZeroDivisionError: division by zero")
    assert run_program("x = 1").why == "it printed nothing"
    assert run_program("print(1") == Outcome(None, False, "SyntaxError: '(' was never closed")
    assert run_program("import sys\nprint(5)\nsys.exit(3)").why == "it ended with status 3"
    assert run_program("print(input())").why.startswith("EOFError")
    assert run_program("print('\ud800')").ok
    with pytest.raises(ConfigError, match="above 0"):
        run_program("print(1)", timeout=0)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("Let's write it.\n```python\nprint(5)\n```\nDone.", "print(5)"),
        ("```\nprint(5)\n```", "print(5)"),
        ("```py\nprint(5)", "print(5)"),
        ("```python\nprint(5)\n```\nBetter:\n```python\nprint(6)\n```", "print(6)"),
        ("```python\nprint(5)\n```\nThis prints\n```\n5\n```", "print(5)"),
        ("a = 2\nprint(a)", "a = 2\nprint(a)"),
        ("print(5)\n\n### Instruction:\nAnother question.", "print(5)"),
        ("```python\nx = 5\n```", None),
        ("I would print(5) here, I think", None),
        ("print(5", None),
        ("The answer is 5.", None),
        ("", None),
    ],
)
def test_the_program_in_a_text(text, program):
    assert find_program(text) == program


@pytest.mark.parametrize(
    ("machine", "column", "header"),
    [("x86_64", 0, "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", 1, "asm-generic/unistd.h")],
)
def test_system_calls_have_the_numbers_of_the_kernel(machine, column, header):
    file = Path("/usr/include") / header
    if not file.exists():
        pytest.skip(f"no {file}")
    defined = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", file.read_text()))
    defined.setdefault("newfstatat", defined.get("fstatat"))
    for name, numbers in {**_CALLS, "openat": _OPENAT}.items():
        assert numbers[column] == (int(defined[name]) if numbers[column] is not None else None), name
    assert len(filter_for(machine)) % 8 == 0
    assert filter_for("riscv64") is None
