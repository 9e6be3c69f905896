"""The next batches, made by a thread while the model computes; torch releases Python's lock."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import TypeVar

T = TypeVar("T")


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


_END = object()


def prefetch(items: Iterable[T], depth: int = 2) -> Generator[T, None, None]:
    """Yield the same items in the same order, up to ``depth`` of them made ahead by a thread.

    With ``depth`` 0 nothing is made ahead. The items must draw from generators that nothing else
    uses, and an item that a run may resume from carries their state after it was made, because the
    generators are ahead of the consumer.
    """
    if depth == 0:
        yield from items
        return
    ready: queue.Queue[object] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(_END)
        except BaseException as error:  # raised in the consumer
            put(_Failure(error))

    worker = threading.Thread(target=work, name="tmln-prefetch", daemon=True)
    worker.start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, _Failure):
                raise item.error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        worker.join()
