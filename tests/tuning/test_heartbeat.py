"""Signs of life: they are given while a trial is at work, and only silence that was listened to counts."""

from __future__ import annotations

import threading

from tmln.tuning.heartbeat import BEAT, SILENT, Beating, Silences


class Heard:
    """A trial, as far as its heart goes; the database is away at the first beat."""

    def __init__(self) -> None:
        self.beats: list[object] = []
        self.twice = threading.Event()

    def set_user_attr(self, key: str, value: object) -> None:
        assert key == BEAT
        self.beats.append(value)
        if len(self.beats) == 1:
            raise ConnectionError
        self.twice.set()


def test_a_trial_at_work_is_heard_of_and_no_longer() -> None:
    trial = Heard()
    with Beating([trial], every=0.001):
        trial.twice.wait()
    many = len(trial.beats)
    assert trial.beats == list(range(1, many + 1))
    assert not any(thread.name == "heartbeat of trials" for thread in threading.enumerate())


def test_silence_counts_from_when_it_was_first_heard() -> None:
    now = 1e6
    silences = Silences(lambda: now)
    assert not silences.long(1, 7)
    now += SILENT
    assert not silences.long(1, 7)
    assert not silences.long(2, 7), "of another trial"
    now += 1
    assert silences.long(1, 7)
    assert not silences.long(2, 7)
    assert not silences.long(1, 8), "it has woken up"
    now += SILENT + 1
    assert silences.long(1, 8)
    assert silences.long(2, 7)
