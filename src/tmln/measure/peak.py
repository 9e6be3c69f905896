"""The peak memory of one method's training, in a process of its own: nobody else's memory is in it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tmln.experiments.config import RunConfig

STEPS = 10  # OCAR's factors are renewed once in them


def peak_memory(config: RunConfig, threads: int) -> int:
    """Bytes of the whole process, Python and torch included, at most, in a second task and its boundary."""
    given = json.dumps({"config": config.model_dump(mode="json"), "threads": threads})
    child = subprocess.run([sys.executable, "-m", __name__], input=given, capture_output=True, text=True, check=False)
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"measuring the peak memory of {config.method} failed: {last}")
    return int(json.loads(child.stdout.splitlines()[-1])["peak_bytes"])


def _measure(config: RunConfig, threads: int) -> int:
    import torch

    from tmln.experiments.build import build
    from tmln.experiments.process_memory import keep_memory, peak_bytes, reset_peak
    from tmln.measure.timed_turn import take_turn

    torch.set_num_threads(threads)
    keep_memory()  # as every run does
    stream, learner = build(config)
    take_turn(learner, stream[0], STEPS)
    reset_peak()
    take_turn(learner, stream[min(1, len(stream) - 1)], STEPS)
    return peak_bytes()


def main() -> None:
    """A process of its own, so that its peak is the run's: configuration in, bytes out, as JSON."""
    given: dict[str, Any] = json.load(sys.stdin)
    print(json.dumps({"peak_bytes": _measure(RunConfig.of(given["config"]), given["threads"])}))


if __name__ == "__main__":
    main()
