"""Tasks to streams: completeness checks, validation splits, boundaries, and heads of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tmln.data import BadData
from tmln.data.image_files import count_held_out
from tmln.seeds import seed_of
from tmln.streams.augment import Normalise
from tmln.streams.options import Options
from tmln.streams.samples import Samples, concat, select_classes
from tmln.streams.stream import Augment, Prepare, Stream, Task
from tmln.streams.train_test import TrainTestData


def give_heads(stream: Stream) -> Stream:
    """Return the stream with a head for each task, chosen by identity in training and tests.

    A head has the task's classes; visits to the same task share it. Where tasks have classes in
    common, as domains do, labels are numbered head after head, and named ``task/class``.
    """
    groups = list(dict.fromkeys((task.domain, task.classes) for task in stream))
    for task in stream:
        if strange := set(task.train.classes) - set(task.classes):
            raise ValueError(
                f"{stream.name}: {task.name} has training samples of class {min(strange)} of another task, and with "
                "heads=per-task a sample's head is its task's: leave out blurry"
            )
    if stream.extra_tests:
        raise ValueError(f"{stream.name} is tested on samples of no task, which have no head: leave out heads=per-task")
    labels = [label for _, classes in groups for label in classes]
    if len(set(labels)) == len(labels):
        return replace(stream, heads=tuple(classes for _, classes in groups))
    heads: dict[tuple[str | None, tuple[int, ...]], tuple[int, ...]] = {}
    names: list[str] = []
    for group in groups:
        domain, classes = group
        heads[group] = tuple(range(len(names), len(names) + len(classes)))
        title = domain or f"head {len(heads)}"
        names += [f"{title}/{stream.class_names[label]}" for label in classes]
    tasks = tuple(_number_labels(task, heads[task.domain, task.classes]) for task in stream)
    return replace(stream, tasks=tasks, class_names=tuple(names), heads=tuple(heads.values()))


def _number_labels(task: Task, head: tuple[int, ...]) -> Task:
    """Return the task with its classes numbered as in its head."""
    table = torch.full((max(task.classes) + 1,), -1)
    table[list(task.classes)] = torch.tensor(head)

    def renumber(samples: Samples) -> Samples:
        return Samples(samples.source, table[samples.y], samples.rows)

    validation = None if task.validation is None else renumber(task.validation)
    return replace(task, train=renumber(task.train), test=renumber(task.test), classes=head, validation=validation)


def blur(tasks: Sequence[Task], fraction: float, seed: int) -> tuple[Task, ...]:
    """Move ``fraction`` of each task's training samples, drawn at random, to the other tasks.

    Every sample still appears exactly once in the stream; test sets and ``classes`` do not change.
    """
    if fraction == 0.0 or len(tasks) == 1:
        return tuple(tasks)
    generator = torch.Generator().manual_seed(seed)
    parts = [[task.train] for task in tasks]
    for index, task in enumerate(tasks):
        shuffled = torch.randperm(len(task.train), generator=generator)
        straying = round(fraction * len(task.train))
        parts[index][0] = task.train.subset(shuffled[straying:].sort().values)
        others = [(index + away) % len(tasks) for away in range(1, len(tasks))]
        for place, other in enumerate(others):
            parts[other].append(task.train.subset(shuffled[:straying][place :: len(others)].sort().values))
    return tuple(replace(task, train=concat(part)) for task, part in zip(tasks, parts, strict=True))


def repeat(tasks: Sequence[Task], times: int) -> tuple[Task, ...]:
    """Repeat the sequence; each visit has its own 1/times of every class's training samples."""
    if times == 1:
        return tuple(tasks)
    visits = []
    for visit in range(times):
        for task in tasks:
            by_class = task.train.y.argsort(stable=True)
            mine = by_class[visit::times].sort().values
            if len(mine) == 0:
                raise ValueError(f"task {task.name!r} has {len(task.train)} samples: too few for {times} visits")
            visits.append(replace(task, name=f"{task.name} visit {visit + 1}", train=task.train.subset(mine)))
    return tuple(visits)


def split_validation(tasks: Iterable[Task], fraction: float, seed: int, videos: Tensor | None) -> tuple[Task, ...]:
    """Set aside ``fraction`` of each class's training samples of each task for validation.

    ``videos`` is the video of every row. The draw depends on the class alone: a sample that is in
    several domains is set aside in all of them or in none.
    """
    if not fraction:
        return tuple(tasks)
    found = []
    for task in tasks:
        mine = None if videos is None else videos[task.train.rows]
        chosen = choose_validation(task.train.y, fraction, seed, mine)
        if not chosen.any():
            raise ValueError(
                f"task {task.name!r} has no class with two training samples, so none to validate on; "
                "leave benchmark.validation out or raise benchmark.per_class"
            )
        train, aside = (_where(task.train, role) for role in (~chosen, chosen))
        found.append(replace(task, train=train, validation=aside))
    return tuple(found)


def choose_validation(labels: Tensor, fraction: float, seed: int, videos: Tensor | None = None) -> Tensor:
    """Return a mask of the validation samples.

    Of n samples of a class, n * fraction are chosen (rounded half to even, at least 1, at most n -
    1): at random, or if samples are frames of ``videos``, the last of each video (possibly none,
    but then the last of the class), because neighbouring frames are nearly equal.
    """
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for label in torch.unique(labels).tolist():
        rows = (labels == label).nonzero().squeeze(1)
        if videos is None:
            generator = torch.Generator().manual_seed(seed_of(seed, f"validation of class {label}"))
            drawn = torch.randperm(len(rows), generator=generator)[: count_held_out(len(rows), fraction)]
            chosen[rows[drawn]] = True
            continue
        for video in torch.unique(videos[rows]).tolist():
            frames = rows[videos[rows] == video]
            chosen[_tail(frames, min(round(fraction * len(frames)), len(frames) - 1))] = True
        if not chosen[rows].any():
            chosen[_tail(rows, count_held_out(len(rows), fraction))] = True
    return chosen


def _tail(rows: Tensor, count: int) -> Tensor:
    return rows[len(rows) - count :]


def _where(samples: Samples, role: Tensor) -> Samples:
    return samples.subset(role.nonzero().squeeze(1))


def assemble(
    name: str,
    pool: TrainTestData,
    options: Options,
    tasks: Iterable[Task],
    metadata: Mapping[str, object],
    *,
    augment: Augment | None = None,
    prepare: Prepare | None = None,
    shape: tuple[int, ...] | None = None,
    extra_tests: Mapping[str, Samples] | None = None,
) -> Stream:
    """Make a stream of complete tasks, with the validation split and boundaries of the options."""
    with BadData(name, options.skip_bad) as bad:
        sound = check_tasks(tasks, pool.class_names, bad)
    sound = split_validation(sound, options.validation, options.seed, pool.videos)
    plain = Normalise(pool.mean, pool.std)
    stream = Stream(
        name,
        blur(repeat(sound, options.repeats), options.blurry, options.seed),
        pool.class_names,
        shape or pool.train.shape,
        augment or plain,
        prepare or plain,
        pool.mean,
        pool.std,
        extra_tests or {},
        metadata,
    )
    stream = stream if options.normalise else stream.as_pixels()
    return give_heads(stream) if options.heads == "per-task" else stream


def check_tasks(tasks: Iterable[Task], class_names: Sequence[str], bad: BadData) -> tuple[Task, ...]:
    """Report classes without training or test samples, and return the tasks without them."""
    checked = []
    for task in tasks:
        trained, is_test = set(task.train.classes), set(task.test.classes)
        classes = []
        for label in task.classes:
            where = f"{task.name}, class {class_names[label]!r}"
            if label not in trained:
                bad.add(where, "no training samples")
            elif label not in is_test:
                bad.add(where, "missing from the task's test set")
            else:
                classes.append(label)
        if len(classes) < len(task.classes):
            train, test = select_classes(task.train, classes), select_classes(task.test, classes)
            task = replace(task, train=train, test=test, classes=tuple(classes))
        if classes:
            checked.append(task)
        else:
            bad.add(task.name, "no class with training and test samples")
    return tuple(checked)
