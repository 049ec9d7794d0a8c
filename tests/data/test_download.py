import errno
import hashlib
import io
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pooch
import pytest
import requests

from holdfast.data import download, load
from holdfast.data.check import check_files
from holdfast.data.download import fetch
from holdfast.data.remote_files import RemoteFile
from holdfast.data.sets.text import multinli
from holdfast.errors import DataError
from tests.data.archive_files import archive, zipped

CONTENT = bytes(range(256)) * 4000
SHA = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()
CUT = 500_000


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is what some tests are about."""


@contextmanager
def serving(
    content: bytes = CONTENT,
    *,
    ranges: bool = True,
    chunked: bool = False,
    cut_at: int | None = None,
    code: int | None = None,
    skipped: int = 0,
    well_after: int | None = None,
    redirected: bool = False,
    slow: float = 0.0,
    endless: bool = False,
) -> Iterator[tuple[str, list[str]]]:
    """A real server on this machine; yields the file's address and the Range headers it was asked with.

    It sends `content` up to the byte `cut_at`, or only the error `code`; `skipped` bytes after those asked for; and
    does it well after the request number `well_after`. Asked for data.bin, a server that is `redirected` names another
    address of its own; a `slow` one stops for so many seconds in the middle; an `endless` one never ends.
    """
    asked: list[str] = []
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if chunked else "HTTP/1.0"

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            asked.append(wanted)
            ill = well_after is None or len(asked) <= well_after
            if redirected and self.path == "/data.bin":
                self.send_response(302)
                self.send_header("Location", "/elsewhere.bin")
                self.end_headers()
                return
            if code is not None and ill:
                self.send_error(code)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and ranges else 0
            start += skipped if start and ill else 0
            end = cut_at if ill else None
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                while endless:
                    self.wfile.write(b"%x\r\n" % len(content) + content + b"\r\n")
                self.wfile.write(b"%x\r\n" % len(content) + content[:end])
                self.close_connection = True
                return
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if slow and ill:
                self.wfile.write(content[start:CUT])
                self.wfile.flush()
                stopped.wait(slow)
                return
            self.wfile.write(content[start:end])

        def log_message(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/data.bin", asked
    finally:
        stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def on_this_machine_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(pooch.core, "time", SimpleNamespace(sleep=lambda seconds: None))  # between two attempts


def files_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_file_is_fetched_checked_and_reported(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    with serving() as (url, _):
        got = fetch(RemoteFile("a/data.bin", url, MD5, SHA, len(CONTENT)), tmp_path, lambda *event: seen.append(event))
    assert got == tmp_path / "a/data.bin"
    assert got.read_bytes() == CONTENT
    assert files_in(tmp_path) == ["a/data.bin"]
    assert seen[-1] == ("a/data.bin", len(CONTENT), len(CONTENT))
    assert [event[1] for event in seen] == sorted(event[1] for event in seen)


def test_a_present_file_is_not_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"mine")
    with serving() as (url, asked):
        assert fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path).read_bytes() == b"mine"
        assert fetch(RemoteFile("other.bin", url, also=("data.bin",)), tmp_path) == tmp_path / "data.bin"
    assert asked == []


def test_a_part_is_continued_where_it_stopped(tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    with serving() as (url, asked):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert asked == ["bytes=1000-"]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_chunked_transfer_that_breaks_off_is_not_taken_for_complete(tmp_path: Path) -> None:
    with serving(chunked=True, cut_at=CUT) as (url, _), pytest.raises(DataError, match="stopped too early"):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert files_in(tmp_path) == ["data.bin.part"]
    with serving() as (url, _):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_server_without_ranges_is_read_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(b"x" * 1000)
    with serving(ranges=False) as (url, asked):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert asked == ["bytes=1000-"]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_complete_part_needs_no_more_bytes(tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    with serving() as (url, _):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert files_in(tmp_path) == ["data.bin"]


def test_a_part_that_is_too_long_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT + b"more")
    with serving() as (url, asked):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert asked == [f"bytes={len(CONTENT) + 4}-", ""]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_part_of_another_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(b"x" * 1000)
    with serving() as (url, asked):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert asked == ["bytes=1000-", ""]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_bytes_that_do_not_follow_the_part_are_not_written_to_it(tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    with serving(skipped=7) as (url, asked):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert asked == ["bytes=1000-", ""]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_truncated_transfer_is_kept_as_a_part_and_then_finished(tmp_path: Path) -> None:
    with (
        serving(cut_at=CUT) as (url, _),
        pytest.raises(DataError, match="stopped too early; run again"),
    ):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert files_in(tmp_path) == ["data.bin.part"]
    kept = (tmp_path / "data.bin.part").stat().st_size
    assert CUT - 2**16 < kept <= CUT
    with serving() as (url, asked):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert asked == [f"bytes={kept}-"]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("trouble", [{"cut_at": CUT}, {"code": 503}])
def test_a_host_that_fails_once_is_asked_again(tmp_path: Path, trouble: dict[str, Any]) -> None:
    seen: list[tuple[str, int, int | None]] = []
    with serving(**trouble, well_after=1) as (url, asked):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path, lambda *event: seen.append(event))
    assert len(asked) == 2
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert files_in(tmp_path) == ["data.bin"]
    assert [event[1] for event in seen] == sorted(event[1] for event in seen)
    assert {event[2] for event in seen} == {len(CONTENT)}


def test_a_busy_host_costs_no_byte_of_the_part(tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    with serving(code=503) as (url, asked), pytest.raises(DataError, match=r"answered 503 .*; try again later"):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert len(asked) == 2
    assert (tmp_path / "data.bin.part").read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sha256": "0" * 64}, "sent has the sha256 sum .* instead of 0000"),
        ({"md5": "0" * 32}, "sent has the md5 sum .* instead of 0000"),
        ({"git_blob": "0" * 40}, "sent has the git sum .* instead of 0000"),
        ({"size": 17}, "sent has more than 17 bytes"),
        ({"size": 2_000_000}, "sent has 1024000 bytes instead of 2000000"),
    ],
)
def test_a_wrong_checksum_deletes_what_came(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    with serving() as (url, _), pytest.raises(DataError, match=said + ".*; it was deleted: try again") as caught:
        fetch(RemoteFile("data.bin", url, **wrong), tmp_path)
    assert url in str(caught.value)
    assert str(tmp_path / "data.bin") in str(caught.value)
    assert files_in(tmp_path) == []


def test_offline_names_the_address_and_the_place(tmp_path: Path) -> None:
    with serving() as (url, _):
        pass
    with pytest.raises(DataError) as caught:
        fetch(RemoteFile("raw/data.bin", url), tmp_path)
    assert url in str(caught.value)
    assert str(tmp_path / "raw/data.bin") in str(caught.value)
    assert "(Connection refused)" in str(caught.value)
    assert "by hand" in str(caught.value)
    assert files_in(tmp_path) == []


def test_an_http_error_is_named(tmp_path: Path) -> None:
    with serving(code=404) as (url, asked), pytest.raises(DataError, match=r"data.bin answered 404 .* by hand"):
        fetch(RemoteFile("data.bin", url), tmp_path)
    assert asked == [""]
    assert files_in(tmp_path) == []


def test_pooch_prints_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(pooch.get_logger(), "handlers", [logging.StreamHandler(printed)])
    with serving() as (url, _):
        fetch(RemoteFile("data.bin", url), tmp_path)
    assert printed.getvalue() == ""


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with serving() as (url, asked), pytest.raises(DataError, match=r"a/data.bin can't be written: .* HOLDFAST_DATA"):
        fetch(RemoteFile("a/data.bin", url), tmp_path)
    assert asked == []


def test_only_http_addresses_are_opened(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="isn't an http address"):
        fetch(RemoteFile("data.bin", "file:///etc/passwd"), tmp_path)
    with pytest.raises(DataError, match="can't be fetched automatically"):
        fetch(RemoteFile("data.bin"), tmp_path)


def test_a_full_disk_leaves_nothing_under_the_final_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(io.BytesIO):
        def write(self, block: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    opened = Path.open

    def full(path: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        return FullDisk() if path.suffix == ".part" and mode in {"wb", "ab"} else opened(path, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", full)
    with serving() as (url, _), pytest.raises(DataError, match="No space left on device; make room"):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert not (tmp_path / "data.bin").exists()


@pytest.mark.parametrize(
    "trouble",
    [{"code": 404}, {"code": 503}, {"cut_at": CUT}, {"content": CONTENT[:-1] + b"x"}, {"content": CONTENT[:-1]}, None],
    ids=["refused", "busy", "cut", "wrong byte", "short", "unreachable"],
)
def test_a_mirror_is_asked_where_the_first_address_fails(tmp_path: Path, trouble: dict[str, Any] | None) -> None:
    with serving(**trouble or {}) as (served, _), serving() as (mirror, asked):
        url = "http://127.0.0.1:9/data.bin" if trouble is None else served
        file = RemoteFile("data.bin", url, sha256=SHA, size=len(CONTENT), mirrors=(mirror,))
        assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert asked
    assert files_in(tmp_path) == ["data.bin"]


def test_a_mirror_is_not_asked_where_the_first_address_gives_the_file(tmp_path: Path) -> None:
    with serving() as (url, _), serving() as (mirror, asked):
        fetch(RemoteFile("data.bin", url, sha256=SHA, mirrors=(mirror,)), tmp_path)
    assert asked == []


def test_every_address_is_named_with_the_reason_in_one_sentence(tmp_path: Path) -> None:
    with serving(code=404) as (one, _), serving(b"other") as (two, _), serving(cut_at=CUT) as (three, _):
        dead = "http://127.0.0.1:9/data.bin"
        with pytest.raises(DataError) as caught:
            fetch(RemoteFile("data.bin", one, sha256=SHA, mirrors=(two, three, dead)), tmp_path)
    said = str(caught.value)
    assert f"{one} answered 404" in said
    assert f"what {two} sent has the sha256 sum" in said
    assert f"{three} stopped too early" in said
    assert f"can't reach {dead} (Connection refused)" in said
    assert said.endswith(f"; try again later, or put the file at {tmp_path / 'data.bin'} by hand")
    assert ". " not in said and said.count(";") == 1


def test_bytes_of_two_hosts_are_joined_only_where_a_sum_proves_the_whole(tmp_path: Path) -> None:
    other = bytes(reversed(CONTENT))
    with serving(cut_at=CUT) as (url, _), serving(other) as (mirror, asked):
        fetch(RemoteFile("data.bin", url, mirrors=(mirror,)), tmp_path)
    assert asked == [""]
    assert (tmp_path / "data.bin").read_bytes() == other
    (part,) = tmp_path.glob("*.part")
    assert CONTENT.startswith(part.read_bytes())
    with serving(cut_at=CUT) as (url, _), serving() as (mirror, asked):
        fetch(RemoteFile("proved.bin", url, sha256=SHA, mirrors=(mirror,)), tmp_path)
    assert asked[0].startswith("bytes=") and len(asked) == 1
    assert (tmp_path / "proved.bin").read_bytes() == CONTENT


def test_joined_bytes_that_a_sum_disproves_are_fetched_anew_from_the_mirror(tmp_path: Path) -> None:
    with serving(b"x" * len(CONTENT), cut_at=CUT) as (url, _), serving() as (mirror, asked):
        fetch(RemoteFile("data.bin", url, sha256=SHA, mirrors=(mirror,)), tmp_path)
    assert len(asked) == 2 and asked[1] == ""
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_without_a_sum_a_transfer_goes_on_at_the_same_address_only(tmp_path: Path) -> None:
    with serving(cut_at=CUT, well_after=2) as (url, asked):
        with pytest.raises(DataError, match="stopped too early"):
            fetch(RemoteFile("data.bin", url), tmp_path)
        fetch(RemoteFile("data.bin", url), tmp_path)
    assert asked[2].startswith("bytes=")
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_part_is_continued_through_a_redirection(tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    with serving(redirected=True) as (url, asked):
        fetch(RemoteFile("data.bin", url, sha256=SHA), tmp_path)
    assert asked == ["bytes=1000-", "bytes=1000-"]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("sha256", [None, SHA])
def test_a_redirection_to_an_open_line_is_followed_only_where_a_sum_guards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sha256: str | None
) -> None:
    get = requests.get
    monkeypatch.setattr(requests, "get", lambda url, **named: get(url.replace("https:", "http:"), **named))
    with serving() as (url, _):
        file = RemoteFile("data.bin", url.replace("http:", "https:"), sha256=sha256)
        if sha256 is None:
            with pytest.raises(DataError, match=r"leads to http:.*, where anybody on the way can change the bytes"):
                fetch(file, tmp_path)
            assert files_in(tmp_path) == []
        else:
            assert fetch(file, tmp_path).read_bytes() == CONTENT


def test_a_host_that_stops_talking_is_left_for_the_mirror(tmp_path: Path) -> None:
    with serving(slow=60) as (url, _), serving() as (mirror, _):
        file = RemoteFile("data.bin", url, sha256=SHA, mirrors=(mirror,))
        assert fetch(file, tmp_path, timeout=0.2).read_bytes() == CONTENT


def test_a_host_that_never_ends_is_stopped_at_the_stated_size(tmp_path: Path) -> None:
    with (
        serving(chunked=True, endless=True) as (url, _),
        pytest.raises(DataError, match="sent has more than 1024000 bytes"),
    ):
        fetch(RemoteFile("data.bin", url, size=len(CONTENT)), tmp_path)
    assert files_in(tmp_path) == []


def test_a_host_that_never_ends_is_stopped_without_a_stated_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_LARGEST", 3_000_000)
    with serving(chunked=True, endless=True) as (url, _), pytest.raises(DataError, match="more than 3000000 bytes"):
        fetch(RemoteFile("data.bin", url), tmp_path)
    assert files_in(tmp_path) == []


def test_a_file_of_a_git_repository_is_known_by_its_blob(tmp_path: Path) -> None:
    blob = hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT).hexdigest()
    with serving() as (url, _):
        assert fetch(RemoteFile("data.bin", url, git_blob=blob), tmp_path).read_bytes() == CONTENT


def test_without_a_published_sum_the_first_one_is_kept_and_compared_the_next_time(tmp_path: Path) -> None:
    with serving() as (url, _):
        fetch(RemoteFile("data.bin", url), tmp_path)
    assert (tmp_path / "data.bin.sha256").read_text() == f"{SHA}  data.bin\n"
    (tmp_path / "data.bin").unlink()
    with serving(b"changed") as (url, _), pytest.raises(DataError, match=r"isn't what came the first time .*\.sha256"):
        fetch(RemoteFile("data.bin", url), tmp_path)
    assert files_in(tmp_path) == ["data.bin.sha256"]
    with serving() as (url, _):
        fetch(RemoteFile("data.bin", url), tmp_path)
    assert (tmp_path / "data.bin.sha256").read_text() == f"{SHA}  data.bin\n"


def test_sums_that_can_not_be_kept_cost_nothing_but_a_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "remember", full)
    with serving() as (url, _):
        assert fetch(RemoteFile("data.bin", url), tmp_path).read_bytes() == CONTENT
    assert "can't be kept" in caplog.text


def test_an_archive_is_unpacked_and_removed(tmp_path: Path) -> None:
    content = archive({"birds/metadata.csv": b"y\n1\n"})
    with serving(content) as (url, _):
        got = fetch(RemoteFile("birds.tar.gz", url, unpacks_to="birds"), tmp_path)
    assert got == tmp_path / "birds"
    assert files_in(tmp_path) == ["birds.sha256", "birds.tar.gz.sha256", "birds/metadata.csv"]


def test_an_archive_put_there_by_hand_is_checked_unpacked_and_kept(tmp_path: Path) -> None:
    content = archive({"birds/metadata.csv": b"y\n1\n"})
    (tmp_path / "birds.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match="has the sha256 sum"):
        fetch(RemoteFile("birds.tar.gz", sha256=SHA, unpacks_to="birds"), tmp_path)
    fetch(RemoteFile("birds.tar.gz", sha256=hashlib.sha256(content).hexdigest(), unpacks_to="birds"), tmp_path)
    assert files_in(tmp_path) == ["birds.sha256", "birds.tar.gz", "birds/metadata.csv"]


def test_multinli_arrives_from_a_mirror_and_is_read(tmp_path: Path) -> None:
    line = b'{"gold_label": "neutral", "sentence1": "a", "sentence2": "no"}\n'
    members = {f"multinli_1.0/multinli_1.0_{part}.jsonl": line * 20 for part in multinli.PARTS}
    content = zipped({**members, "multinli_1.0/Icon\r": b"", "__MACOSX/._multinli_1.0": b"x"})
    split = ",gold_label,sentence2_has_negation,split\n" + "".join(f"{n},2,1,{n % 3}\n" for n in range(60))
    with serving(code=503) as (down, _), serving(content) as (zip_url, _), serving(split.encode()) as (csv_url, _):
        published = multinli.MultiNli.files
        files = (
            replace(published[0], url=down, mirrors=(zip_url,), sha256=sha256(content), size=len(content)),
            replace(published[1], url=csv_url, mirrors=(), git_blob=None),
        )
        for file in files:
            fetch(file, tmp_path)
    splits = load("multinli", tmp_path, check_counts=False)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [20, 20, 20]
    finding = check_files(files, tmp_path, "", lambda: "read")
    assert (finding.state, finding.what) == ("usable", "read; sums as they came")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
