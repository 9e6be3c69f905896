"""Downloads from a server on this machine that can break in every way."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tmln.data import DataError, RemoteFile, download_bar
from tmln.data.fetch import fetch

CONTENT = bytes(range(256)) * 4000  # a megabyte


@dataclass
class Server:
    """What it serves, how many bytes of each answer it sends before it hangs up, and what it was asked."""

    url: str = ""
    content: bytes = CONTENT
    hang_up_after: list[int] = field(default_factory=list)
    ranges: bool = True
    status: int = 200
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range", "")
            state.asked.append(asked)
            if state.status != 200:
                self.send_error(state.status)
                return
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and state.ranges else 0
            if start >= len(state.content):
                self.send_error(416)
                return
            body = state.content[start:]
            self.send_response(206 if start or (asked and state.ranges) else 200)
            if asked and state.ranges:
                self.send_header("Content-Range", f"bytes {start}-{len(state.content) - 1}/{len(state.content)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            limit = state.hang_up_after.pop(0) if state.hang_up_after else len(body)
            self.wfile.write(body[:limit])

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}/file.bin"
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


def remote(server: Server, content: bytes = CONTENT) -> RemoteFile:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return RemoteFile("file.bin", (server.url,), len(content), md5, "folder")


def test_whole(server: Server, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    path = fetch(remote(server), tmp_path, lambda *report: told.append(report))
    assert path == tmp_path / "folder" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == ["file.bin"]
    assert told[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert [report[1] for report in told] == sorted(report[1] for report in told)
    fetch(remote(server), tmp_path)
    assert len(server.asked) == 1  # what is there and sound is not fetched again


def test_goes_on_where_the_connection_broke(server: Server, tmp_path: Path) -> None:
    server.hang_up_after = [300_000, 200_000]
    assert fetch(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=0-", "bytes=300000-", "bytes=500000-"]


def test_goes_on_in_another_run(server: Server, tmp_path: Path) -> None:
    server.hang_up_after = [300_000]
    with pytest.raises(DataError, match="try again to go on at byte 300,000"):
        fetch(remote(server), tmp_path, tries=1)
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["file.bin.part"]
    assert fetch(remote(server), tmp_path, tries=1).read_bytes() == CONTENT
    assert server.asked == ["bytes=0-", "bytes=300000-"]


def test_a_server_that_cannot_go_on(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.hang_up_after = [300_000]
    assert fetch(remote(server), tmp_path).read_bytes() == CONTENT
    assert len(server.asked) == 2


def test_wrong_content_of_the_right_size(server: Server, tmp_path: Path) -> None:
    server.content = b"x" + CONTENT[1:]
    with pytest.raises(DataError, match=r"file.bin.part: MD5 \w+, not \w+"):
        fetch(remote(server), tmp_path)
    assert not list((tmp_path / "folder").iterdir())  # nothing to go on from, nothing that looks complete


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x"], ids=["shorter", "longer"])
def test_wrong_size(content: bytes, server: Server, tmp_path: Path) -> None:
    server.content = content
    with pytest.raises(DataError, match=r"cannot fetch file.bin"):
        fetch(remote(server), tmp_path)
    assert not (tmp_path / "folder" / "file.bin").exists()


def test_a_part_that_is_too_long_or_whole(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "folder" / "file.bin.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT + b"x")
    assert fetch(remote(server), tmp_path).read_bytes() == CONTENT
    (tmp_path / "folder" / "file.bin").rename(part)
    assert fetch(remote(server), tmp_path).read_bytes() == CONTENT
    assert not part.exists()


def test_a_file_that_is_there_but_bad(server: Server, tmp_path: Path) -> None:
    path = fetch(remote(server), tmp_path)
    path.write_bytes(CONTENT[:-5])
    with pytest.raises(DataError, match=r"1,023,995 bytes, not 1,024,000: delete it"):
        fetch(remote(server), tmp_path)
    path.write_bytes(b"x" * len(CONTENT))
    with pytest.raises(DataError, match="MD5"):
        fetch(remote(server), tmp_path)


def test_a_second_address(server: Server, tmp_path: Path) -> None:
    dead = server.url.replace("file.bin", "")
    there = replace(remote(server), urls=("http://127.0.0.1:1/file.bin", dead))
    assert fetch(there, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("status", [404, 503])
def test_offline_or_gone_says_what_to_put_where(status: int, server: Server, tmp_path: Path) -> None:
    server.status = status
    with pytest.raises(DataError) as caught:
        fetch(remote(server), tmp_path)
    message = str(caught.value)
    assert server.url in message
    assert f"as {tmp_path / 'folder' / 'file.bin'} (1,024,000 bytes, MD5 {remote(server).md5})" in message
    nowhere = replace(remote(server), urls=("http://127.0.0.1:1/file.bin",))
    with pytest.raises(DataError, match=r"refused.*put by hand"):
        fetch(nowhere, tmp_path)


@pytest.mark.parametrize("show", [True, False, None])
def test_a_bar_is_seen_on_request(show: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    with download_bar(show) as report:
        report("file.bin", 500_000, 1_000_000)
        report("file.bin", 1_000_000, 1_000_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("file.bin" in err and "1.0/1.0 MB" in err) == (show is True)
