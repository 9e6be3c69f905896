"""Work in many small steps, cut so that each thread takes its own: torch's threads would meet at every single step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch

Item = TypeVar("Item")


def spread(do: Callable[[Item], None], items: Sequence[Item]) -> None:
    """``do`` every item, on as many threads as torch has, each item on one of them, in any order.

    What one item changes no other may touch. What one raises is raised here.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2:
        for item in items:
            do(item)
        return
    for _ in _crew(threads, os.getpid()).map(do, items):
        pass


@cache
def _crew(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads in which torch uses no others. They stay: to set the number anew costs torch milliseconds.

    They do not live on in a forked process, which needs its own.
    """
    ready = Barrier(threads)

    def begin() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # asked for the first time, a thread begins with the last number that anybody has set
        ready.wait()

    crew = ThreadPoolExecutor(threads, "tmln-curvature", begin)
    for _ in crew.map(int, range(threads)):
        pass
    torch.set_num_threads(threads)  # threads to come begin with it
    return crew
