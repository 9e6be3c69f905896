"""The judges themselves: each sees what it is there for, on cases made by hand."""

from __future__ import annotations

import copy
import errno
import importlib
import json
import logging
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.torture import __main__ as command
from benchmarks.torture import fuzz, meaning, table
from benchmarks.torture.crowd import apart
from benchmarks.torture.damage import KINDS, judge, regions
from benchmarks.torture.disk import unclear_error
from benchmarks.torture.operations import Operation, Place
from benchmarks.torture.reached import RunConfig, Store, make_model, module
from benchmarks.torture.readers import CORPUS, READERS, seeds, wrong
from benchmarks.torture.runner import Row, torture
from benchmarks.torture.scene import EVERY, Scene, Seen, compare, config_of, newest
from benchmarks.torture.table import FAULTS, Fault
from benchmarks.torture.verdict import Verdict, different, lost, unclear
from benchmarks.torture.warm import Ended, Tell, call
from benchmarks.torture.words import Said, fault_of

WHOLE = Seen({"acc": 0.5, "weights_sha256": "a"}, b'{"step": 1}\n', {(5, 1): "x"})


def test_verdicts_add_up() -> None:
    found = Verdict(3) + lost("a") + different("b") + unclear("c")
    assert (found.injected, found.lost, found.different, found.unclear) == (3, 1, 1, 1)
    assert found.notes == ("lost: a", "different: b", "unclear: c")
    assert Verdict(7).sound
    assert not any(one.sound for one in (lost(""), different(""), unclear("")))


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (WHOLE, (0, 0)),
        (Seen(None, WHOLE.log, WHOLE.tensors), (1, 0)),
        (Seen({"acc": 0.5, "weights_sha256": "b"}, WHOLE.log, WHOLE.tensors), (0, 1)),
        (Seen(WHOLE.result, b'{"step": 2}\n', WHOLE.tensors), (0, 1)),
        (Seen(WHOLE.result, WHOLE.log, {(5, 1): "y"}), (0, 1)),
        (Seen(WHOLE.result, WHOLE.log, {}), (0, 1)),
    ],
)
def test_one_bit_is_seen(got: Seen, expected: tuple[int, int]) -> None:
    found = compare(WHOLE, got, "a run")
    assert (found.lost, found.different) == expected


@pytest.mark.parametrize("steps", [0, EVERY - 1])
def test_a_run_with_few_steps_need_not_have_the_same_checkpoints(steps: int) -> None:
    whole = Seen({**(WHOLE.result or {}), "steps": steps}, WHOLE.log, {(4, 4): "x"})
    assert compare(whole, Seen(whole.result, whole.log, {}), "a run").different == 0
    assert compare(whole, Seen(whole.result, whole.log, {(4, 4): "y"}), "a run").different == 1
    assert compare(whole, Seen(whole.result, b"other", {}), "a run").different == 1


def test_work_that_is_done_again_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, kept={"whole er": WHOLE})
    monkeypatch.setattr(Seen, "of", classmethod(lambda cls, root, method: WHOLE))
    assert scene.gone_on(Ended(0, "", 6), tmp_path, "er", 5, "").sound
    assert scene.gone_on(Ended(0, "", 0), tmp_path, "er", 5, "").sound, "there was nothing left to do"
    assert scene.gone_on(Ended(0, "", 5), tmp_path, "er", 5, "").lost == 1
    assert scene.gone_on(Ended(2, "tmln: no", None), tmp_path, "er", 5, "").lost == 1


def test_what_a_kill_left_half_removed_is_no_checkpoint(tmp_path: Path) -> None:
    run = Store(tmp_path).open(config_of("er"))
    assert newest(tmp_path, "er") == 0
    for name in ("00000001-step-5", ".old-00000002-step-10", ".writing-00000003"):
        (run.checkpoints / name).mkdir(parents=True)
    assert newest(tmp_path, "er") == 5


FAILED = Operation("open", "/runs/a/.result.json.writing-77")


@pytest.mark.parametrize(
    ("code", "said", "fault"),
    [
        (2, "tmln: /runs/a/result.json cannot be written (No space left on device); free some space\n", ""),
        (0, "all went well", ""),
        (2, "Traceback (most recent call last):\nSafetensorError: no\n", "a traceback"),
        (1, "tmln: result.json; free some space", "exit code 1"),
        (2, "tmln: result.json; free some space\ntmln: and more", "exit code 2, 2 lines"),
        (2, "tmln: [Errno 28] No space left on device: '/runs/a/.lock/00000001'", "does not name result.json"),
        (2, "tmln: [Errno 28] No space left on device: '/runs/a/result.json'", "names no remedy"),
        (2, "tmln: [Errno 28] No space left on device: '/free/space/result.json'", "names no remedy"),
    ],
)
def test_an_error_names_the_file_and_a_remedy_in_one_line(code: int, said: str, fault: str) -> None:
    found = unclear_error(Ended(code, said), FAILED, errno.ENOSPC)
    assert fault in found
    assert bool(found) == bool(fault)


@pytest.mark.parametrize(
    ("code", "errors", "fine"),
    [
        (0, "", True),
        (0, "warning: mind the gap\n", True),
        (2, "tmln: unknown setting 'a'\n", True),
        (2, "warning: mind the gap\ntmln: unknown setting 'a'\n", True),
        (2, "tmln: one\ntmln: two\n", False),
        (2, "tmln: 'a'\n", False),
        (1, "Traceback\n  File\nKeyError: 'a'\n", False),
        (0, "something\n", False),
        (2, "tmln: 'NoneType' object has no attribute 'x'\n", False),
        (2, "tmln: a whole number, not 'out of range'\n", True),
    ],
)
def test_an_answer_is_one_line_of_ones_own(code: int, errors: str, fine: bool) -> None:
    assert (fault_of(Said(code, errors)) == "") is fine


def test_two_at_work_at_once_are_seen() -> None:
    assert apart(["1 1", "1 2", "2 2", "2 3", ""], "").sound
    assert apart(["1 1", "2 1", "1 2"], "").different == 1
    assert apart([""], "").lost == 1


def test_every_byte_is_in_a_region() -> None:
    for size, count in ((10, 3), (3, 10), (1, 1)):
        found = regions(size, count)
        assert [byte for start, stop in found for byte in range(start, stop)] == list(range(size))


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_damage(kind: str) -> None:
    data, chance = b"seed: 1, method: er, more: 23", random.Random(0)
    assert all(KINDS[kind](data, start, stop, chance) != data for start, stop in regions(len(data), 7))


def test_what_reads_as_something_else_without_a_word_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "file"

    def reads(found: Any, error: Exception | None = None, said: str = "") -> Callable[[Path], Any]:
        def read(path: Path) -> Any:
            if said:
                logging.getLogger("tmln.experiments").warning(said)
            if error is not None:
                raise error
            return found

        return read

    def verdict(read: Callable[[Path], Any]) -> Verdict:
        return judge(read, file, b"x", "right", "earlier", "")

    assert verdict(reads("right")).sound
    assert verdict(reads("earlier", said="not whole")).sound
    assert verdict(reads("earlier")).different == 1
    assert verdict(reads("wrong")).different == 1
    assert verdict(reads("wrong", said="not whole")).different == 1
    assert verdict(reads(None, ValueError("it is damaged"))).sound
    assert verdict(reads(None, ValueError("two\nlines"))).unclear == 1
    assert verdict(reads(None, KeyError("x"))).unclear == 1


def test_readers_may_refuse_in_one_line_only(tmp_path: Path) -> None:
    def raises(error: Exception | None) -> Callable[[bytes, Path], None]:
        def read(data: bytes, folder: Path) -> None:
            if error is not None:
                raise error

        return read

    assert not wrong(raises(None), b"", tmp_path)
    assert not wrong(raises(ValueError("no")), b"", tmp_path)
    for error in (ValueError("a\nb"), ValueError(""), KeyError("a"), RecursionError("deep"), MemoryError()):
        assert wrong(raises(error), b"", tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_the_corpus_has_a_file_that_each_reader_takes(name: str, tmp_path: Path) -> None:
    """Else a fuzzer would never see the inside of it."""

    def taken(data: bytes, number: int) -> bool:
        folder = tmp_path / str(number)
        if name == "result":
            content = json.loads(data)
            assert content["benchmark"]
            return True  # its folder would have to be called as its configuration is
        folder.mkdir()
        try:
            READERS[name](data, folder)
        except ValueError:
            return False
        return True

    assert any(taken(data, number) for number, data in enumerate(seeds(name)))
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 100_000


def test_the_fuzzers_know_every_reader() -> None:
    assert tuple(READERS) == fuzz.NAMES


def test_a_place_is_inside_the_write() -> None:
    assert Place("a", 0, 0.0, 100).at == 0
    assert Place("a", 0, 0.999, 100).at == 99
    assert Place("a", 0, 1.0, 100).at == 99


# -- children and the runner -------------------------------------------------------------------------------------------


def speak(tell: Tell, text: str, code: int) -> str:
    print(text)
    if code:
        raise SystemExit(code)
    return text.upper()


def test_a_child_tells_how_it_ended() -> None:
    assert call(speak, "hello", 0) == Ended(0, "hello\n", "HELLO")
    assert call(speak, "hello", 2) == Ended(2, "hello\n", None)


def rows_of(trial: table.Trial, trials: int, until: float = float("inf")) -> Row:
    return torture("made", Fault("made", trial, (trials, 3), (1, 3)), Scene(Path()), until=until, cores=2)


def test_the_runner_counts_and_says_what_it_did_not_do() -> None:
    row = rows_of(lambda scene, index, each: Verdict(each) + (lost("x") if index == 1 else Verdict()), 4)
    assert (row.verdict.injected, row.verdict.lost, row.done, row.planned) == (12, 1, 4, 4)
    late = rows_of(lambda scene, index, each: Verdict(1), 4, until=0.0)
    assert (late.verdict.injected, late.done, late.planned) == (0, 0, 4)


def test_a_torture_that_fails_itself_is_a_loss() -> None:
    def fails(scene: Scene, index: int, each: int) -> Verdict:
        raise KeyError("a slip")

    row = rows_of(fails, 1)
    assert row.verdict.lost == 1
    assert "a slip" in row.verdict.notes[0]


@pytest.mark.parametrize(("verdict", "code"), [(Verdict(2), 0), (Verdict(2) + unclear("why"), 1)])
def test_the_command(
    verdict: Verdict, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(FAULTS, "kills", Fault("made up", lambda scene, index, each: verdict, (2, 1), (1, 1)))
    assert command.main(["--only", "kills", "--minutes", "1"]) == code
    captured = capsys.readouterr()
    row = [cell.strip() for line in captured.out.splitlines() if "made up" in line for cell in line.split("|")]
    assert row[1:-1] == ["made up", "4", "0", "0", "2" if code else "0"]
    assert ("unclear: why" in captured.err) == bool(code)
    assert command.main(["--only", "kills", "--minutes", "0"]) == 0
    captured = capsys.readouterr()
    assert "made up (0 of 2 trials)" in captured.out
    assert "time was up" in captured.err


# -- sealed files ------------------------------------------------------------------------------------------------------


def import_named(content: Any, folder: Path) -> None:
    for name in (value for inside, key in meaning.places(content) if isinstance(value := inside[key], str)):
        if name.partition(":")[0] == meaning.PLANTED:
            importlib.import_module(meaning.PLANTED)


def make_named(content: Any, folder: Path) -> None:
    for name in (value for inside, key in meaning.places(content) if isinstance(value := inside[key], str)):
        if meaning.OUTSIDE in name:
            Path(name).mkdir()


def take_named(content: Any, folder: Path) -> None:
    for size in (value for inside, key in meaning.places(content) if isinstance(value := inside[key], int)):
        if size > 2**31:
            raise MemoryError


@pytest.mark.parametrize(
    ("reader", "found"), [(import_named, "imported"), (make_named, "made a folder"), (take_named, "MemoryError")]
)
def test_a_reader_that_obeys_a_file_is_found(reader: Any, found: str, tmp_path: Path) -> None:
    """By the changes themselves, within a few hundred of them: names, folders and sizes are among the values."""
    (tmp_path / f"{meaning.PLANTED}.py").touch()
    chance, said = random.Random(0), ""
    sys.path.insert(0, str(tmp_path))
    try:
        for _ in range(500):
            content = copy.deepcopy(meaning.contents("result"))
            meaning.change(content, chance, tmp_path / meaning.OUTSIDE)
            if said := meaning.fault_of(reader, content, tmp_path):
                break
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop(meaning.PLANTED, None)
    assert found in said


# Every fault that sealed files of others once met: what was missing then is taken away, and the changes must meet it.
def trust_options() -> None:
    """Pass on the options of a state, whatever they name (28.6)."""
    learner, state = module("tmln.learner.learner"), module("tmln.learner.state")

    def check(saved: Any, what: str, *rest: Any) -> Any:
        recipe = state.Recipe.from_dict(saved["recipe"])
        recipe.check_code()
        given = SimpleNamespace(model_dump=lambda **_: saved["options"])
        return recipe, SimpleNamespace(options=given)

    vars(learner)["check_file"] = check


def trust_memory_paths() -> None:
    """Make the folder that a state names for its memory (28.7)."""
    vars(module("tmln.learner.state"))["_check_memory_folder"] = lambda *_: None


def follow_links() -> None:
    """Open what is in a memory folder through links (28.7)."""

    def open_any(path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_NONBLOCK, 0o666)  # a pipe would be waited for

    vars(module("tmln.methods.replay.disk_files"))["open_plain"] = open_any


def trust_configurations() -> None:
    """Export a run with the configuration that lies in its folder (28.7)."""
    RunConfig.model_copy = lambda self, **_: self  # type: ignore[method-assign]
    (name,) = (path.name for path in (meaning.FIXTURES / "finished").iterdir())
    vars(module("tmln.experiments.config"))["run_id"] = lambda config: name


def trust_layouts() -> None:
    """Make tensors of the shapes and strides that a state names (28.8)."""
    vars(module("tmln.learner.checkpoint"))["_check_layout"] = lambda *_: None


def trust_model_sizes() -> None:
    """Build the model that a state describes before its tensors are looked at (28.8)."""
    spec = module("tmln.deploy.state_file").ModelSpec
    spec._build_for = lambda self, tensors: make_model(self.model, self.shape, self.outputs, **self.options)


def trust_class_numbers() -> None:
    """Open as many classes as a state says (28.8)."""
    vars(module("tmln.learner.state"))["MAX_UNNAMED"] = 1 << 62
    vars(meaning)["SECONDS"] = 3  # a billion names take minutes


def trust_lengths() -> None:
    """Read a sparse file of any length (28.8)."""
    vars(module("tmln.learner.checkpoint"))["_check_length"] = lambda size: None


def trust_array_headers() -> None:
    """Let numpy make what a header says (28.8)."""
    vars(module("tmln.data.own_data"))["_check_header"] = lambda *_: None


def trust_archives() -> None:
    """Unpack an .npz of any size (28.8)."""
    vars(module("tmln.data.own_data"))["MIN_UNPACKED"] = 1 << 62


def trust_labels() -> None:
    """Learn labels of any number (28.8)."""
    vars(module("tmln.data.own_data"))["MAX_CLASSES"] = 1 << 62
    vars(module("tmln.streams.samples"))["MAX_CLASSES"] = 1 << 62


def trust_configured_sizes() -> None:
    """Build the model of a configuration without a look at the memory (28.8)."""
    vars(module("tmln.experiments.build"))["check_weights"] = lambda *_: None


def meet_old_fault(tell: Tell, trust: Callable[[], None], name: str, found: str) -> bool:
    """Return whether a few hundred changes meet a fault of this kind."""
    trust()
    return any(found in note for part in range(50) for note in meaning.tried(tell, name, 4, f"old {part}").notes)


@pytest.mark.parametrize(
    ("trust", "name", "found"),
    [
        (trust_options, "state", "imported"),
        (trust_memory_paths, "state", "made a folder"),
        (follow_links, "memory folder", "wrote into"),
        (trust_configurations, "run folder", ""),
        (trust_layouts, "state", "MiB"),
        (trust_layouts, "checkpoint", "MiB"),
        (trust_model_sizes, "deployed state", ""),
        (trust_class_numbers, "deployed state", ""),
        (trust_lengths, "checkpoint", "MiB"),
        (trust_array_headers, "npz", "MiB"),
        (trust_archives, "npz", "MiB"),
        (trust_labels, "npz", ""),
        (trust_configured_sizes, "configuration", ""),
    ],
)
def test_the_changes_by_meaning_meet_the_old_faults(trust: Callable[[], None], name: str, found: str) -> None:
    ended = call(meet_old_fault, trust, name, found)
    assert ended.value or ended.code == -signal.SIGALRM, ended.said[-300:]
