"""Downloads from a server on this machine that can break in every way."""

from __future__ import annotations

import contextlib
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
    status: int = 200
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            if state.status != 200:
                self.send_error(state.status)
                return
            body = state.content
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            limit = state.hang_up_after.pop(0) if state.hang_up_after else len(body)
            with contextlib.suppress(ConnectionError):  # of a client that has had enough
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


def test_a_broken_connection_is_tried_again(server: Server, tmp_path: Path) -> None:
    server.hang_up_after = [300_000, 200_000]
    assert fetch(remote(server), tmp_path).read_bytes() == CONTENT
    assert len(server.asked) == 3


def test_nothing_is_left_of_a_download_that_failed(server: Server, tmp_path: Path) -> None:
    server.hang_up_after = [300_000]
    with pytest.raises(DataError, match=r"cannot fetch file.bin"):
        fetch(remote(server), tmp_path, tries=1)
    assert not list((tmp_path / "folder").iterdir())
    assert fetch(remote(server), tmp_path, tries=1).read_bytes() == CONTENT


def test_an_endless_answer_is_cut_off(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT * 50
    told: list[int] = []
    with pytest.raises(DataError, match="more than the expected 1,024,000 bytes"):
        fetch(remote(server), tmp_path, lambda name, done, total: told.append(done), tries=1)
    assert max(told) <= len(CONTENT)


def test_wrong_content_of_the_right_size(server: Server, tmp_path: Path) -> None:
    server.content = b"x" + CONTENT[1:]
    with pytest.raises(DataError, match=r"cannot fetch file.bin: .*MD5"):
        fetch(remote(server), tmp_path)
    assert not list((tmp_path / "folder").iterdir())  # nothing that looks complete


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x"], ids=["shorter", "longer"])
def test_wrong_size(content: bytes, server: Server, tmp_path: Path) -> None:
    server.content = content
    with pytest.raises(DataError, match=r"cannot fetch file.bin"):
        fetch(remote(server), tmp_path)
    assert not (tmp_path / "folder" / "file.bin").exists()


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
    with pytest.raises(DataError, match=r"refused.*by hand"):
        fetch(nowhere, tmp_path)


@pytest.mark.parametrize("show", [True, False, None])
def test_a_bar_is_seen_on_request(show: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    with download_bar(show) as report:
        report("file.bin", 500_000, 1_000_000)
        report("file.bin", 1_000_000, 1_000_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("file.bin" in err and "1.0/1.0 MB" in err) == (show is True)
