import os
import socket
import time
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.finetuning.evaluation import ProgramOutcome, exact_match, find_program, printed_answer, run_program
from holdfast.finetuning.evaluation.sandbox import Bubblewrap, find_sandbox


@pytest.fixture
def boxed_in():
    """A sandbox that works; skips with the reason where there is none."""
    try:
        return find_sandbox()
    except ConfigError as error:
        pytest.skip(str(error))


in_a_sandbox = pytest.mark.usefixtures("boxed_in")


def stopped(program: str, *, timeout: float = 30.0, memory_mb: int = 1024) -> str:
    """Why a program came to nothing."""
    outcome = run_program(program, timeout=timeout, memory_mb=memory_mb)
    assert outcome.printed is None
    assert not outcome.ok
    assert outcome.why
    return outcome.why


@in_a_sandbox
def test_the_last_line_printed_is_the_answer():
    outcome = run_program("eggs = 16 - 3 - 4\nprint('working')\nprint(eggs * 2.0)\nprint()")
    assert outcome == ProgramOutcome("18.0", True, "")
    assert exact_match([printed_answer("18.0")], ["18"]).all()


@in_a_sandbox
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


@in_a_sandbox
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


@in_a_sandbox
def test_it_cannot_write(tmp_path):
    for place in ("new", "program.py", "/new", "/tmp/new", "/dev/shm/new", "/usr/new", f"{tmp_path}/new"):
        assert "Error" in stopped(f"open({place!r}, 'a').write('x')\nprint(5)")
    assert not list(tmp_path.iterdir())


@in_a_sandbox
def test_it_sees_no_file_and_no_process_of_the_user(tmp_path):
    (tmp_path / "secret").write_text("hunter2")
    for act in (f"open('{tmp_path}/secret').read()", "open('/etc/passwd').read()", "__import__('os').listdir('/proc')"):
        assert "FileNotFoundError" in stopped(f"print({act})")
    assert "ProcessLookupError" in stopped(f"import os\nos.kill({os.getpid()}, 0)\nprint(5)")


@in_a_sandbox
def test_it_cannot_use_the_network():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        program = f"import socket\nsocket.create_connection(('127.0.0.1', {port})).send(b'5')\nprint(5)"
        assert "Error" in stopped(program)
        with pytest.raises(TimeoutError):
            server.accept()


def test_it_cannot_start_processes(boxed_in):
    if isinstance(boxed_in, Bubblewrap) and os.geteuid() == 0:
        pytest.skip("the kernel counts no processes of root")
    assert "Error" in stopped("import os\nfor _ in range(40): os.fork()\nprint(5)")


@in_a_sandbox
def test_what_it_started_ends_with_it(boxed_in):
    if isinstance(boxed_in, Bubblewrap) and os.geteuid() != 0:
        pytest.skip("it can't start anything")
    mark = f"holdfast-{os.getpid()}-left-behind"
    child = f"os.execv(sys.executable, ['{mark}', '-c', 'import time; time.sleep(60)'])"
    program = f"import os, sys\nif os.fork() == 0:\n    {child}\nwhile True: pass"
    assert stopped(program, timeout=1.0) == "it took too long"
    time.sleep(0.5)
    assert not any(mark.encode() in line for line in map(command_line, Path("/proc").glob("[0-9]*/cmdline")))


def command_line(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


@in_a_sandbox
def test_it_cannot_take_all_memory():
    assert "MemoryError" in stopped("held = bytearray(2**40)\nprint(5)")
    why = stopped("held = []\nwhile True: held.append(bytearray(2**20))", memory_mb=128)
    assert "MemoryError" in why or "SIGKILL" in why


@in_a_sandbox
def test_it_cannot_flood_us():
    assert "more than 65536 bytes" in stopped("while True: print('5' * 1000)")
    assert "more than 65536 bytes" in stopped("import sys\nwhile True: print('5' * 1000, file=sys.stderr)")


@in_a_sandbox
def test_it_sees_nothing_of_where_it_is_run(monkeypatch):
    monkeypatch.setenv("HOLDFAST_SECRET", "hunter2")
    outcome = run_program("import os\nprint(sorted(os.environ), os.listdir(), os.getcwd(), sep='|')")
    environment, files, folder = outcome.printed.split("|")
    assert "HOLDFAST_SECRET" not in environment
    assert files == "['program.py']"
    assert folder == "/program"


@in_a_sandbox
def test_a_failure_says_why():
    assert run_program("print(1)\n1 / 0") == ProgramOutcome(None, False, "ZeroDivisionError: division by zero")
    assert run_program("x = 1").why == "it printed nothing"
    assert run_program("print(1") == ProgramOutcome(None, False, "SyntaxError: '(' was never closed")
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
