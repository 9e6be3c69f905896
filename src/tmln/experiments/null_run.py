"""A run as ranks other than the first have it: they compute all of it, and write nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.result import Result


class Unwritten:
    """In the place of a :class:`~tmln.experiments.store.Run`."""

    log_size = log_checksum = 0

    def __init__(self, config: RunConfig) -> None:
        self.config, self.name = config, run_id(config)
        self.result: Result | None = None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Kept in memory."""
        config = self.config.resolved()
        head = {key: config[key] for key in ("benchmark", "method", "seed")}
        self.result = Result.of({**head, "config": config, **result}, self.name)

    def append_log(self, record: Mapping[str, Any]) -> None:
        """The first rank does."""

    def truncate_log(self, step: int, size: int | None = None, crc: int | None = None) -> None:
        """The first rank does."""
