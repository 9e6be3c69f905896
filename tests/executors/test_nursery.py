"""Workers that are forks of one process: how each ends is known, whoever ends it, and whatever becomes of that one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.killing import PATIENCE, gone
from tmln.executors import processes as local
from tmln.executors.interfaces import Outcome
from tmln.executors.nursery import FORKS, Forked
from tmln.executors.processes import LocalPool

pytestmark = [pytest.mark.usefixtures("warm"), pytest.mark.skipif(not FORKS, reason="forks only on Linux")]


@pytest.fixture
def pool() -> Iterator[LocalPool]:
    pool = LocalPool(3, 3)
    pool.warm(3)
    yield pool
    pool.close()


def forks(pool: LocalPool) -> list[Forked]:
    found = [worker.process for worker in pool._workers]
    return [one for one in found if isinstance(one, Forked)]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def sockets(pid: int) -> set[str]:
    files = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return {name for name in files if name.startswith("socket:")}


def soon(true: Callable[[], bool]) -> bool:
    """Whether it ever is: a fork is there before it has done anything."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(OSError):  # a file that was closed just then
            if true():
                return True
        time.sleep(0.01)
    return False


def test_they_have_one_parent_a_session_each_and_no_file_of_the_others(pool: LocalPool) -> None:
    first, *others = pids = [one.pid for one in forks(pool)]
    assert len(set(pids)) == 3
    assert {parent_of(pid) for pid in pids} == {pool._workers[0].process._nursery.process.pid}  # type: ignore[attr-defined]
    assert soon(lambda: {os.getsid(pid) for pid in pids} == set(pids))
    assert soon(lambda: all(mine.isdisjoint(sockets(first)) for mine in map(sockets, others)))
    assert sockets(first)
    os.kill(first, signal.SIGKILL)
    assert forks(pool)[0].wait(60) == -signal.SIGKILL
    assert [one.poll() for one in forks(pool)[1:]] == [None, None]
    assert not any(gone(pid, 0.1) for pid in others)


def test_a_process_that_goes_on_is_waited_for_no_longer_than_asked(pool: LocalPool) -> None:
    one = forks(pool)[0]
    assert one.pid
    with pytest.raises(subprocess.TimeoutExpired):
        one.wait(0.05)
    one.terminate()
    assert one.wait(60) == -signal.SIGTERM
    one.kill()  # of no effect on what has ended


def test_the_nursery_ends_with_the_last_of_them(pool: LocalPool) -> None:
    nursery = forks(pool)[0]._nursery
    pids = [one.pid for one in forks(pool)]
    pool.close()
    assert nursery.process.returncode == 0
    assert all(gone(pid) for pid in pids)


def test_when_the_nursery_is_killed_the_others_go_on_and_their_end_is_seen(pool: LocalPool) -> None:
    one, other, _ = forks(pool)
    assert one.pid
    one._nursery.process.kill()
    one._nursery.process.wait()
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0.2)
    one.kill()
    assert one.wait(60) == 1  # nobody knows how
    assert other.poll() is None


def test_what_fails_to_load_is_said_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = local._launch
    monkeypatch.setattr(
        local,
        "_launch",
        lambda code, files, output: launch(f"sys.modules['tmln.executors.worker'] = None; {code}", files, output),
    )
    pool = LocalPool(2, 2)
    pool.warm(2)
    for worker in list(pool._workers):
        found = pool._read(worker)
        assert isinstance(found, Outcome)
        assert found.state == "lost"
        assert found.error.startswith("its process ended with exit code 1 (ModuleNotFoundError: ")
    pool.close()


def test_those_that_are_still_loading_are_ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = local._launch
    monkeypatch.setattr(
        local, "_launch", lambda code, files, output: launch(f"import time; time.sleep(600); {code}", files, output)
    )
    pool = LocalPool(2, 2)
    pool.warm(2)
    process = forks(pool)[0]._nursery.process
    pool.close()
    assert process.returncode == -signal.SIGKILL
