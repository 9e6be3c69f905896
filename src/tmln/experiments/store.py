"""A folder of runs, each named by the hash of its configuration, complete or not there.

``log.jsonl`` has one JSON object a line, each with its step. A line that a kill cut short, or that
a resumed run writes again, is removed.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tmln.experiments.files import (
    from_json,
    make_folder,
    open_regular,
    read_regular,
    refuse_link,
    refuse_links,
    to_json,
    write_whole,
)
from tmln.experiments.identity import is_named
from tmln.experiments.lock import RunLock
from tmln.experiments.result import NewerResult, Result, read_result, write_result
from tmln.writing import sync_path, write_all, writing

if TYPE_CHECKING:
    from tmln.experiments.config import RunConfig


LEFTOVER_AFTER = 3600.0  # seconds until the hidden folder of a process that was killed while making it is removed

log = logging.getLogger(__name__)


def append_line(path: Path, record: Mapping[str, Any], check: Callable[[], None] = lambda: None) -> None:
    """Append one line, in one write, if ``check`` does not raise; on a full disk nothing of it.

    ``check`` is called when the file is open: another process that took the run over meanwhile has
    put a new file in its place (see :func:`truncate_after`), and this one writes to the old file,
    which is not read.
    """
    if not isinstance(record.get("step"), int):
        raise ValueError(f"a line of the log has a whole number 'step', which {dict(record)} has not")
    line = f"{to_json(record)}\n".encode()
    with (
        writing(path),
        os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab", buffering=0) as file,
    ):
        check()
        before = os.fstat(file.fileno()).st_size
        try:
            write_all(file, line)
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read all whole lines; skip an unfinished last one, and warn of others that are no JSON."""
    return [record for _, record in _records(path) if record is not None]


def truncate_after(path: Path, step: int, size: int | None = None) -> None:
    """Drop every line past ``step``, and an unfinished last one; a resumed run writes them again.

    ``size`` is the log's size when the checkpoint was written: later lines of the same step are
    dropped, too. The log is a new file then, out of reach of a process that has the old one open.
    """
    if not path.exists():
        return
    end = 0
    for length, record in _records(path):
        if (record is not None and record["step"] > step) or (size is not None and end + length > size):
            break
        end += length
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        kept = file.read(end)
    write_whole(path, kept)


def checksum(path: Path, size: int | None = None) -> int:
    """Return the CRC-32 of the first ``size`` bytes, or of all; that of nothing without a log.

    A damaged line can still be JSON with another number: only a checksum stored elsewhere shows it.
    """
    if not path.exists():
        return 0
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return zlib.crc32(file.read() if size is None else file.read(size))


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the length of each finished line and its record, None if it is damaged."""
    if not path.exists():
        return
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            record = _parse(line)
            if record is None:
                log.warning("%s: line %d is damaged and passed over", path, number)
            yield len(line), record


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = from_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


@dataclass(frozen=True)
class Entry:
    """A run in a listing.

    ``reason`` says what is wrong with a corrupt one, or why to doubt a finished one.
    """

    name: str
    path: Path
    state: Literal["finished", "unfinished", "corrupt"]
    config: Mapping[str, Any] | None = None
    result: Result | None = None
    reason: str = ""


class Run:
    """One run's folder, for the process that works on it."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path, self.config = path, config
        self.lock = RunLock(path / ".lock")

    @property
    def name(self) -> str:
        """The folder's name, which has the hash of the configuration."""
        return self.path.name

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoint"

    @property
    def tensorboard(self) -> Path:
        """The folder that TensorBoard reads."""
        return self.path / "tensorboard"

    @property
    def log(self) -> Path:
        """The log, a JSON object a line for each step that is logged."""
        return self.path / "log.jsonl"

    @property
    def result(self) -> Result | None:
        """The result of a finished run; a damaged one is reported, and computed again."""
        return _result(self.path)

    @property
    def finished(self) -> bool:
        """Whether its result is there, whole, and its own."""
        return self.result is not None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, which makes the run finished. The lock must be held."""
        self.lock.check()
        config = self.config.resolved()
        head = {key: config[key] for key in ("benchmark", "method", "seed")}
        write_result(self.path / "result.json", {**head, "config": config, **result})

    def append_log(self, record: Mapping[str, Any]) -> None:
        """Append a line with its ``step`` to the log.

        Raise if another process took the run over.
        """
        append_line(self.log, record, self.lock.check if self.lock.held else lambda: None)

    def read_log(self) -> list[dict[str, Any]]:
        """Read the lines of the log; warn if they are not those that the run finished with."""
        with suppress(ValueError):  # the result of a newer version, whose log can be read all the same
            result = self.result
            if result is not None and result.log_crc32 not in (-1, self.log_checksum):
                log.warning("%s does not match its checksum in result.json: it was damaged, or edited", self.log)
        return read_lines(self.log)

    @property
    def log_size(self) -> int:
        """Bytes of the log so far, which the checkpoint stores."""
        return self.log.stat().st_size if self.log.exists() else 0

    @property
    def log_checksum(self) -> int:
        """Checksum of the log so far, which checkpoint and result store."""
        return checksum(self.log)

    def truncate_log(self, step: int, size: int | None = None, crc: int | None = None) -> None:
        """Drop the lines that a run resumed at ``step`` (-1: at its beginning) writes again.

        Args:
            step: The step of the checkpoint.
            size: ``log_size`` when it was written; without it, lines of the step itself are kept.
            crc: ``log_checksum`` when it was written; a changed log is kept with a warning.
        """
        if crc is not None and checksum(self.log, size) != crc:
            log.warning(
                "%s is not what it was at step %d: it was damaged, or edited; the run goes on, its result does not "
                "depend on the log",
                self.log,
                step,
            )
        truncate_after(self.log, step, size)


class Store:
    """A folder of runs.

    >>> store = Store("runs")                    # doctest: +SKIP
    >>> run = store.open(config)                 # doctest: +SKIP
    >>> with run.lock:                           # doctest: +SKIP
    ...     if not run.finished:
    ...         run.finish(work(run))
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def find(self, config: RunConfig) -> Run | None:
        """Return the run of this configuration, or None."""
        run = self._run(config)
        refuse_link(run.path)
        return run if run.path.is_dir() else None

    def open(self, config: RunConfig) -> Run:
        """Return the run of this configuration.

        Make it, with its configuration, if it is missing.
        """
        run = self._run(config)
        if run.path.is_dir():
            refuse_links(run.path)
            if _config_of(run.path)[1]:  # damaged, or edited
                write_whole(run.path / "config.yaml", config.to_yaml())
            return run
        make_folder(self.root)
        self._sweep()
        making = self.root / f".making-{run.name}-{uuid.uuid4().hex[:8]}"
        with writing(run.path / "config.yaml"):
            try:
                making.mkdir()
                write_whole(making / "config.yaml", config.to_yaml())
                os.rename(making, run.path)
            except OSError:
                if not run.path.is_dir():  # else another process made it in the same moment
                    raise
            finally:
                shutil.rmtree(making, ignore_errors=True)
            sync_path(self.root)
        return run

    def result(self, name: str) -> Result | None:
        """Return the result of the run of this name, if it has finished."""
        refuse_link(self.root / name)
        return _result(self.root / name)

    def find_result(self, config: RunConfig) -> Result | None:
        """Return the result of the run of this configuration, if it has finished."""
        return self.result(self._run(config).name)

    def runs(self) -> Iterator[Entry]:
        """Yield every run, by name; none of them can make the listing fail."""
        for path in sorted(self.root.iterdir()) if self.root.is_dir() else ():
            if path.is_dir() and not path.name.startswith("."):
                yield _look(path)

    def _run(self, config: RunConfig) -> Run:
        from tmln.experiments.config import run_id

        return Run(self.root / run_id(config), config)

    def _sweep(self) -> None:
        for path in self.root.glob(".making-*"):
            with suppress(FileNotFoundError):  # made into a run in this moment
                if time.time() - path.stat().st_mtime > LEFTOVER_AFTER:
                    shutil.rmtree(path, ignore_errors=True)


def _result(path: Path) -> Result | None:
    try:
        return read_result(path / "result.json")
    except FileNotFoundError:
        return None
    except NewerResult as error:
        raise NewerResult(f"run {path}: {error}") from None
    except ValueError as error:
        log.warning("run %s counts as unfinished: %s", path, error)
        return None


def _look(path: Path) -> Entry:
    try:
        refuse_link(path)
        result = read_result(path / "result.json")
        return Entry(path.name, path, "finished", result.config, result, "" if result.checksum else "no checksum")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        return Entry(path.name, path, "corrupt", reason=str(error))
    config, reason = _config_of(path)
    return Entry(path.name, path, "corrupt" if reason else "unfinished", config, reason=reason)


def _config_of(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the configuration in config.yaml, or why it is not believed."""
    from tmln.experiments.yaml_reader import read_yaml  # showing finished runs needs no YAML

    try:
        config = read_yaml(read_regular(path / "config.yaml").decode())
    except FileNotFoundError:
        return None, "no config.yaml"
    except (OSError, ValueError) as error:
        return None, f"config.yaml cannot be read ({error})"
    if not isinstance(config, dict):
        return None, "config.yaml holds no configuration"
    if not is_named(config, path.name):
        return None, f"config.yaml is of another run, or damaged: it is not the one that {path.name!r} names"
    return config, ""
