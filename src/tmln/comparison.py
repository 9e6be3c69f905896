"""Compare methods from Python: one call that runs, resumes and tabulates, and results as pandas."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tmln.analysis.read import attach_references
from tmln.analysis.read import read_results as read
from tmln.analysis.rows import Row, group_rows
from tmln.analysis.summary_text import write_summary
from tmln.analysis.tables import row_lines
from tmln.analysis.text_table import grid_markdown
from tmln.experiments.result import Oracle, Result

if TYPE_CHECKING:
    import pandas

    from tmln.experiments.config import RunConfig
    from tmln.methods.recipes import Recipe
    from tmln.streams import Stream


@dataclass(frozen=True)
class RunResults(Sequence[Result]):
    """Finished runs; printed, they are a table for each benchmark with its summary.

    >>> len(RunResults(()))
    0
    """

    results: Sequence[Result]

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: Any) -> Any:
        return self.results[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    @property
    def rows(self) -> list[Row]:
        """Return one row for each configuration: label, metrics by seed, summaries."""
        return group_rows(self.results)

    def __str__(self) -> str:
        from tmln.analysis.rows import group_by_table

        tables = group_by_table(self.rows).items()
        return "\n\n".join(
            f"{name}\n\n{grid_markdown(row_lines(rows))}\n{write_summary(rows)}" for name, rows in tables
        )

    def to_pandas(self) -> pandas.DataFrame:
        """Return one line for each run: benchmark, row, method, seed, and metrics as fractions."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas") from error
        lines = [
            {
                "benchmark": row.title,
                "row": row.label,
                "method": result.method,
                "seed": result.seed,
                "name": result.name,
                "diverged": result.diverged,
                **result.metrics,
            }
            for row in self.rows
            for result in sorted(row.results, key=lambda result: result.seed)
        ]
        return pandas.DataFrame(lines)


def read_results(path: str | os.PathLike[str], oracle: Oracle | None = None) -> RunResults:
    """Read the finished runs of a folder, or of a published file.

    >>> read_results("runs").to_pandas()         # doctest: +SKIP
    """
    return RunResults(read(Path(path), oracle)[0])


def compare(
    data: str | Stream,
    methods: Sequence[str | Recipe] | Mapping[str, str | Recipe],
    *,
    seeds: int = 3,
    runs: str | os.PathLike[str] = "runs",
    settings: Mapping[str, Any] | None = None,
    oracle: Oracle = "prefix",
    workers: int | None = None,
    **config: Any,
) -> RunResults:
    """Train several methods on one benchmark and return their results; finished runs are reused.

    >>> stream = tmln.streams.from_arrays(x, y, tasks=2)              # doctest: +SKIP
    >>> print(tmln.compare(stream, ["naive", "er"], epochs=2))        # doctest: +SKIP

    Args:
        data: A benchmark by name, as of ``tmln compare --benchmark``, or a stream, as of
            :func:`tmln.streams.from_arrays` or :func:`tmln.streams.stream_of_tasks`.
        methods: Names of methods; a mapping gives rows names of their own.
        seeds: Runs of each method, under seeds from 0 on.
        runs: The folder of runs.
        settings: Of components, as ``{"replay.capacity": 200}``; a method that lacks one goes
            without it.
        oracle: The reference of intransigence; ``none`` leaves it out.
        workers: Processes; by default as many as fit. A stream runs in this process.
        **config: Further fields of :class:`tmln.experiments.config.RunConfig`: ``epochs``, ``lr``,
            ``batch_size``, ``model``, ``benchmark_options``, or components, by name or as classes.
    """
    from tmln.executors.config import ExecutorConfig
    from tmln.executors.execute import execute
    from tmln.executors.plan import plan
    from tmln.experiments.launch import RunOptions
    from tmln.experiments.store import Store

    if seeds < 1:
        raise ValueError(f"seeds is at least 1, not {seeds}")
    in_memory = not isinstance(data, str)
    if in_memory:
        from tmln.streams.own_benchmark import keep_stream

        config = {**config, "benchmark_options": {"fingerprint": keep_stream(data)}}  # type: ignore[arg-type]
    benchmark = "own:memory" if in_memory else str(data)
    named = methods if isinstance(methods, Mapping) else {str(name): name for name in methods}
    configs = [
        one.with_setting("seed", one.seed + k)
        for name, method in named.items()
        for one in [_make_config(benchmark, name, method, settings or {}, config)]
        for k in range(seeds)
    ]
    store, jobs = Store(runs), plan(configs, oracle)
    where = ExecutorConfig(executor="serial") if in_memory else ExecutorConfig(workers=workers)
    failures = execute(store, jobs, RunOptions(oracle), where)
    if failures:
        first = failures[0]
        raise RuntimeError(f"{len(failures)} of {len(jobs)} runs failed; {first.job.label}: {first.error}")
    found = [store.find_result(job.config) for job in jobs if not job.reference]
    wanted = None if oracle == "none" else oracle
    references = [store.find_result(job.config) for job in jobs if job.reference]
    every = attach_references([result for result in (*found, *references) if result is not None], wanted)
    requested = {result.name for result in found if result is not None}
    return RunResults([result for result in every if result.name in requested])


def _make_config(
    benchmark: str, name: str, method: str | Recipe, settings: Mapping[str, Any], config: Mapping[str, Any]
) -> RunConfig:
    """Return the configuration of one row, without settings that its components lack."""
    from tmln.experiments.config import RunConfig
    from tmln.methods.recipes import RECIPES, register

    if not isinstance(method, str):
        method = name if name in RECIPES and RECIPES[name] == method else register(name, method) and name
    base = RunConfig.of({"benchmark": benchmark, "method": method, **config})
    base = base if name == method else base.with_setting("name", name)
    return base.with_settings({key: value for key, value in settings.items() if not base.lacks(key)})
