"""A search on a real PostgreSQL server that four processes share, from an empty database on."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.tuning.test_search import BASE, SPACES
from tmln.tuning.search import Search

TRIALS, PROCESSES = 10, 4
FOUR = f"""
import json, multiprocessing, sys
from tests.tuning.test_search import BASE, SPACES, pretend
from tmln.tuning.search import Search

def search(number):
    found = Search(BASE, SPACES, {{"acc": True}}, sys.argv[1], shared=True)
    did = found.search({TRIALS}, 2, pretend)
    (best,) = found.best()
    return [[trial.number for trial in did], best.number, best.values[0], len(found.list_ended())]

# forked once all is imported: a process each, begun in the same moment, at the price of one
with multiprocessing.get_context("fork").Pool({PROCESSES}) as four:
    print(json.dumps(four.map(search, range({PROCESSES}), chunksize=1)))
"""


def program(name: str) -> str | None:
    """Debian keeps a server's programs out of the path."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(places[-1]) if places else None)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of an empty database; the server refuses to be root's, so it is given to another user then."""
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    if initdb is None or pg_ctl is None:
        if os.environ.get("CI"):
            pytest.fail("no PostgreSQL server: apt-get install postgresql")
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    pytest.importorskip("psycopg")
    user = next((u for u in ("postgres", "nobody") if _known(u)), None) if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="tmln-postgresql-"))
    if user is not None:
        shutil.chown(folder, user)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def call(*words: str) -> None:
        done = subprocess.run(
            words, user=user, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        )
        assert done.returncode == 0, done.stdout

    env = {**os.environ, "LC_ALL": "C"}
    data = str(folder / "data")
    call(initdb, "-D", data, "-U", "tmln", "-A", "trust", "-E", "UTF8", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    call(pg_ctl, "-D", data, "-w", "-t", "300", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql+psycopg://tmln@127.0.0.1:{port}/postgres"
    finally:
        call(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)


def _known(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


@pytest.mark.usefixtures("warm")
def test_four_processes_search_together(server: str) -> None:
    """None asks for more than there are to be, no trial is done twice, and all end with the same best."""
    done = subprocess.run([sys.executable, "-c", FOUR, server], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told) == PROCESSES
    numbers = [number for did, *_ in told for number in did]
    assert len(numbers) == len(set(numbers)) == TRIALS
    assert {tuple(rest) for _, *rest in told} == {tuple(told[0][1:])}
    with closing(Search(BASE, SPACES, {"acc": True}, server, shared=True)) as again:
        ended = again.list_ended()
        best = again.best()[0].number
    assert {trial.number for trial in ended} == set(numbers)
    assert told[0][1:] == [best, max(trial.values[0] for trial in ended if trial.values), TRIALS]
