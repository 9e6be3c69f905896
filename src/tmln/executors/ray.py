"""Execute runs as tasks of a Ray cluster, an existing or a local one (``--executor ray``).

A task whose worker or machine is lost is submitted again, and its run goes on from its checkpoint.
Ray's own retries (``max_retries``) are not used: they take minutes to notice a machine that is cut
off from the network, and do not report to the command. A lost head ends the command; the same
command goes on once the cluster is there again.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import logging
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tmln.executors.interfaces import Outcome, RunRequest
from tmln.signals import saving

if TYPE_CHECKING:
    from tmln.executors.config import ExecutorConfig
    from tmln.executors.interfaces import OnMessage
    from tmln.experiments.store import Run

SCRATCH = "TMLN_SCRATCH"  # where a machine keeps runs that will be collected
OBJECT_STORE = 80 * 2**20  # bytes, near Ray's least: results are small, the rest is in the folder of runs
QUEUE = 1000  # tasks that Ray has at a time: enough for its autoscaler to see that machines are wanted
LOST_OR_KILLED = "tmln: the Ray cluster was lost or this command was killed; run the same command again, it goes on"
COLLECTED = 64  # the same with --collect: the command holds a lock for each
PAUSE = 0.5  # seconds between two progress messages of a run
CHECK = 2.0  # seconds between two checks that the head answers
PATIENCE = 5.0  # seconds for the head to answer
VISIBLE = 10.0  # seconds until a file of another machine must be visible on a shared disk
RESULT = "result.json"  # its presence means that a run is finished


@dataclass(frozen=True)
class RayTask:
    """A run and what it needs on another machine.

    ``token`` is a file in the folder of runs, by which a machine checks that its folder is the same
    one. With ``collect`` there is none, and ``files`` holds packed folders of runs by name.
    """

    name: str
    request: RunRequest
    data: str | None
    fetch: bool
    collect: bool
    token: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)


class RayExecutor:
    """Submits every run as one Ray task; tasks send progress messages through an actor."""

    shared = False

    def __init__(self, config: ExecutorConfig, cores: int) -> None:
        """Connect to Ray; ``cores`` are those of this machine."""
        self._ray = import_ray()
        self._config = config
        self.capacity = config.workers or (COLLECTED if config.collect else QUEUE)
        self._futures: dict[Any, str] = {}
        self._nodes: dict[str, str] = {}  # the machine of every task that has started
        self._runs: dict[str, Run] = {}  # with --collect, the locked run of every task
        self._ended: list[tuple[str, Outcome]] = []  # those that were not submitted
        self._tokens: dict[str, Path] = {}
        self._closes = not self._ray.is_initialized()
        self._lost, self._checked = False, time.monotonic()
        self._watcher: subprocess.Popen[bytes] | None = None
        if self._closes:
            threads = (config.threads or 1) * (config.workers or 0)
            connect(self._ray, config.address, max(cores, threads))
        try:
            self._watcher = None if config.address is None else start_watcher()
            self.cores = self._check_resources()
            self._head = config.address or ""
            if not self._head.rpartition(":")[2].isdigit():
                self._head = str(self._ray.get_runtime_context().gcs_address)
            self._remote = self._ray.remote(max_retries=0, num_gpus=config.gpus, **self._memory)(execute_task)
            here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                self._ray.get_runtime_context().get_node_id(), soft=False
            )  # a machine that is lost must not take the messages with it
            self._mailbox = self._ray.remote(num_cpus=0, scheduling_strategy=here)(Mailbox).remote()
            self._messages = self._mailbox.take.remote()
        except BaseException:
            self.close()
            raise

    @property
    def _memory(self) -> dict[str, int]:
        from tmln.experiments.memory_estimate import read_size

        return {"memory": read_size(self._config.memory)} if self._config.memory else {}

    def submit(self, name: str, request: RunRequest) -> None:
        """Submit a task; Ray begins it on a machine with as many free CPUs as it has threads."""
        config, token = self._config, ""
        files: dict[str, bytes] = {}
        if config.collect:
            outcome, files = self._lock_and_pack(name, request)
            if outcome is not None:
                self._ended.append((name, outcome))
                return
        else:
            token = self._make_token(Path(request.root))
        task = RayTask(name, request, os.environ.get("TMLN_DATA"), config.fetch, config.collect, token, files)
        self._futures[self._remote.options(num_cpus=request.threads).remote(task, self._mailbox)] = name

    def wait(self, seconds: float, on_message: OnMessage) -> None:
        """Pass on what tasks have sent.

        Raises:
            ValueError: if the head of the cluster does not answer.
        """
        ended, self._ended = self._ended, []
        futures = list(self._futures)
        if not futures and not ended:
            time.sleep(seconds)
        elif futures:
            self._ray.wait(futures, num_returns=1, timeout=0 if ended else seconds)
        ended += self._check_cluster()
        for name, message in self._take_messages():
            if name in self._futures.values():
                if isinstance(message, str):
                    self._nodes[name], message = message, "started"
                on_message(name, message)
        if futures:
            done, _ = self._ray.wait(futures, num_returns=len(futures), timeout=0)
            ended += [(name := self._futures.pop(f), self._read_outcome(f, self._runs.get(name))) for f in done]
        for name, outcome in ended:
            self._nodes.pop(name, None)
            if name in self._runs:
                self._runs.pop(name).lock.release()
            on_message(name, outcome)

    def stop(self) -> None:
        """Cancel all tasks: Ray sends SIGINT to those that run, which save and end."""
        for future in self._futures:
            self._ray.cancel(future)

    def close(self) -> None:
        """End all tasks without waiting; a cluster that was there before goes on."""
        if self._watcher is not None:
            self._watcher.communicate(b".")
            self._watcher = None
        for run in self._runs.values():
            run.lock.release()
        for token in self._tokens.values():
            with suppress(OSError):
                token.unlink(missing_ok=True)
        if self._lost:
            return
        with saving():  # on a busy machine this takes longer than a stopped program may
            for future in self._futures:
                self._ray.cancel(future, force=True)
            if self._closes:
                self._ray.shutdown()

    def count_neighbours(self, runs: int) -> int:
        """Return 0: every run measures the memory of its machine."""
        return 0

    def _check_resources(self) -> int:
        """Return the CPUs of the largest machine that a run fits on; an error if there is none."""
        config = self._config
        wanted = {"CPU": config.threads or 1, "GPU": config.gpus, **self._memory}
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        fitting = [node for node in nodes if all(node.get(key, 0) >= amount for key, amount in wanted.items())]
        if not fitting:
            largest = max(nodes, key=lambda node: [node.get(key, 0) for key in wanted])
            requested, there = (
                ", ".join(f"{source.get(key, 0):g} {key}" for key in wanted) for source in (wanted, largest)
            )
            raise ValueError(
                f"no machine of the Ray cluster has {requested}, as each run needs; the largest has {there}"
            )
        return int(max(node["CPU"] for node in fitting))

    def _check_cluster(self) -> list[tuple[str, Outcome]]:
        """Return the tasks of lost machines; raise a ValueError if the head is lost."""
        if time.monotonic() - self._checked < CHECK:
            return []
        try:
            reach(self._head)
        except ValueError as error:
            self._lost = True
            reason = str(error).partition(";")[0]
            raise ValueError(f"the Ray cluster was lost ({reason}); run the same command again, it goes on") from None
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        self._checked = time.monotonic()
        gone = {future: name for future, name in self._futures.items() if self._nodes.get(name, "") not in ("", *alive)}
        for future in gone:
            del self._futures[future]
        return [(name, Outcome("lost", error="its worker was lost with its machine")) for name in gone.values()]

    def _take_messages(self) -> list[tuple[str, Any]]:
        """Return what the actor has, without waiting for it on a busy machine."""
        if not self._ray.wait([self._messages], timeout=0)[0]:
            return []
        messages, self._messages = self._messages, self._mailbox.take.remote()
        return [(name, pickle.loads(data)) for name, data in self._ray.get(messages)]

    def _read_outcome(self, future: Any, run: Run | None) -> Outcome:
        """Return how a task ended; write the files that it sent into ``run``."""
        from tmln.experiments.lock import LockLost
        from tmln.writing import CannotWrite

        errors = self._ray.exceptions
        try:
            outcome, files = self._ray.get(future)
            if run is not None and files:
                run.lock.check()
                unpack(files, run.path)
            return outcome  # type: ignore[no-any-return]
        except LockLost as error:
            return Outcome("locked", error=str(error))
        except CannotWrite as error:
            return Outcome("disk_full" if error.everywhere else "failed", error=str(error), cause=error)
        except errors.TaskCancelledError:
            return Outcome("stopped", error="its task was cancelled")
        except errors.RayTaskError as error:  # before or after the run: tmln is not installed there, say
            return Outcome("failed", error=str(error).strip().splitlines()[-1])
        except errors.RayError as error:
            return Outcome("lost", error=f"its worker was lost ({first_line(error).partition('. ')[0].rstrip('.')})")

    def _make_token(self, root: Path) -> str:
        from tmln.writing import writing

        if str(root) not in self._tokens:
            self._tokens[str(root)] = token = root / f".command-{uuid.uuid4().hex}"
            with writing(token):
                token.touch()
        return self._tokens[str(root)].name

    def _lock_and_pack(self, name: str, request: RunRequest) -> tuple[Outcome | None, dict[str, bytes]]:
        """Lock a run that will be collected; return its files, or its outcome if it has one."""
        from tmln.experiments.config import run_id
        from tmln.experiments.lock import RunLocked
        from tmln.experiments.reference_runs import reference_config
        from tmln.experiments.store import Store
        from tmln.writing import CannotWrite

        try:
            run = Store(request.root).open(request.job.config)
            run.lock.acquire()
        except RunLocked as error:
            return Outcome("locked", error=str(error)), {}
        except CannotWrite as error:
            return Outcome("disk_full" if error.everywhere else "failed", error=str(error), cause=error), {}
        self._runs[name] = run
        if run.result is not None:
            return Outcome("finished", run.result), {}
        reference = reference_config(request.job.config, request.options.oracle)
        others = [] if reference is None else [run_id(reference)]
        packed = {other: pack(Path(request.root) / other, ("config.yaml", RESULT)) for other in others}
        return None, {**packed, run.name: pack(run.path)}


class Mailbox:
    """An actor that keeps the progress messages of tasks until the command takes them."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []

    def put(self, name: str, message: bytes) -> None:
        """Keep a pickled message: the actor need not import its class."""
        self.messages.append((name, message))

    def take(self) -> list[tuple[str, bytes]]:
        """Return the messages since the last call."""
        messages, self.messages = self.messages, []
        return messages


def execute_task(task: RayTask, mailbox: Any) -> tuple[Outcome, bytes]:
    """Execute a run on one of Ray's machines; return its outcome and the files to be collected."""
    from tmln.executors.run_job import run_job, throttle
    from tmln.experiments.lock import RunLocked
    from tmln.signals import asked_to_stop

    def send(message: Any) -> None:
        mailbox.put.remote(task.name, pickle.dumps(message))

    send(importlib.import_module("ray").get_runtime_context().get_node_id())  # a string
    if task.data is not None:
        os.environ.setdefault("TMLN_DATA", task.data)
    with asked_to_stop() as stop:
        try:
            if task.fetch:
                fetch_data(task.request)
            if not task.collect:
                check_folder(task)
                return run_job(task.request, throttle(send, PAUSE), stop), b""
            run = receive(task)
        except RunLocked as error:
            return Outcome("locked", error=str(error)), b""
        except (OSError, ValueError, ImportError) as error:
            return Outcome("failed", error=f"on {socket.gethostname()}: {error}"), b""
        outcome = run_job(replace(task.request, root=str(run.path.parent)), throttle(send, PAUSE), stop)
        files = pack(run.path) if outcome.state in ("finished", "stopped", "failed") else b""
        if outcome.state == "finished":
            shutil.rmtree(run.path, ignore_errors=True)
        return outcome, files


def check_folder(task: RayTask) -> None:
    """Raise a ValueError unless the folder of runs here is that of the command."""
    token, end = Path(task.request.root) / task.token, time.monotonic() + VISIBLE
    while task.token and not token.exists():
        if time.monotonic() > end:
            raise ValueError(
                f"{task.request.root} is not the folder of the command: put --runs on a disk that all machines see "
                "under this path, or give --collect"
            )
        time.sleep(0.2)


def fetch_data(request: RunRequest) -> None:
    """Download the data set of a run if this machine lacks it, one process at a time."""
    from filelock import FileLock

    from tmln.data import data_root, get_data
    from tmln.experiments.files import make_folder
    from tmln.streams.benchmarks import find_benchmark

    name = find_benchmark(request.job.config.benchmark).data
    if name is not None:
        make_folder(data_root())
        with FileLock(data_root() / f".getting-{name}"):
            get_data(name)


def receive(task: RayTask) -> Run:
    """Unpack a run into this machine's own folder, unless a lost worker got further here."""
    from tmln.experiments.files import make_folder
    from tmln.experiments.store import Store

    place = Path(os.environ.get(SCRATCH) or Path.home() / ".cache" / "tmln" / "collected")
    root = place / hashlib.sha256(task.request.root.encode()).hexdigest()[:16]
    make_folder(root)
    run = Store(root).open(task.request.job.config)
    with run.lock:
        for name, files in task.files.items():
            if name != run.name:
                unpack(files, root / name)
            elif last_step(names_in(files)) > last_step(str(path) for path in run.checkpoints.rglob("*")):
                shutil.rmtree(run.checkpoints, ignore_errors=True)
                unpack(files, run.path)
    return run


def pack(folder: Path, only: Iterable[str] | None = None) -> bytes:
    """Return the files of a run's folder (or ``only`` these) as a zip archive."""
    from tmln.experiments.files import refuse_links

    if not folder.is_dir():
        return b""
    refuse_links(folder)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            hidden = any(part.startswith(".") for part in name.parts)
            if path.is_file() and not path.is_symlink() and not hidden and (only is None or str(name) in only):
                archive.writestr(name.as_posix(), path.read_bytes())
    return data.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Write packed files into a folder, the result last: a kill leaves an unfinished run.

    Raises:
        ValueError: a name is hidden or points elsewhere, or the files are larger than the archive,
            which :func:`pack` does not compress.
    """
    from tmln.experiments.files import make_folder, write_whole

    if not data:
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if (size := sum(info.file_size for info in archive.infolist())) > len(data):
            raise ValueError(f"a packed run of {len(data)} bytes claims to hold {size}")
        for name in sorted(archive.namelist(), key=lambda name: name == RESULT):
            path = PurePosixPath(name)
            if path.is_absolute() or any(part.startswith(".") for part in path.parts):  # "..", ".lock"
                raise ValueError(f"{name!r} is no file of a run")
            make_folder((folder / path).parent)
            write_whole(folder / path, archive.read(name))  # zipfile verifies its CRC


def names_in(data: bytes) -> list[str]:
    """Return the names of packed files."""
    return zipfile.ZipFile(io.BytesIO(data)).namelist() if data else []


def last_step(names: Iterable[str]) -> int:
    """Return the last step of which these files include a checkpoint; -1 if there is none.

    >>> last_step(["log.jsonl", "checkpoint/2-step-30/x", "checkpoint/1-step-9/x"])
    30
    """
    found = (re.search(r"checkpoint/\d+-step-(\d+)/.", name) for name in names)
    return max((int(match[1]) for match in found if match), default=-1)


def import_ray() -> Any:
    """Import Ray without its usage statistics and warnings."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")  # reported by the display
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
        return ray
    except ImportError as error:
        raise ImportError("the ray executor needs ray: pip install 'tmln[ray]', or --executor local") from error


def start_watcher() -> subprocess.Popen[bytes]:
    """Start a process that prints a line if this one ends before it wrote a byte.

    Ray ends the process that speaks with a cluster when its head or this machine's raylet is lost,
    at times before the next check here, and without a word.
    """
    program = "import sys; sys.stdin.buffer.read(1) or sys.stderr.write(sys.argv[1])"
    words = [sys.executable, "-I", "-S", "-c", program, f"{LOST_OR_KILLED}\n"]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def connect(ray: Any, address: str | None, cpus: int) -> None:
    """Connect to the cluster at ``address``, or start a local one with so many CPUs."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray").setLevel(logging.ERROR)  # it logs before it has read its options
    if address is None:
        local = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        ray.init("local", _node_ip_address="127.0.0.1", **local, **options)
        return
    reach(address)  # Ray would try for more than a minute
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # a lost head is reported in one line
    try:
        ray.init(address, **options)
    except Exception as error:
        raise ValueError(f"no Ray cluster at {address!r}: {first_line(error)}") from None


def reach(address: str) -> None:
    """Raise a ValueError unless something answers at a cluster's address."""
    if address in ("auto", "local"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (host and colon and port.isdigit()):
        raise ValueError(f"a Ray address is HOST:PORT, ray://HOST:PORT or auto, not {address!r}")
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"no Ray cluster at {address!r} ({error}); start one with `ray start --head`, or leave --address out for "
            "a local one"
        ) from None


def first_line(error: Exception) -> str:
    """Return the first line of one of Ray's messages, which can fill a page."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
