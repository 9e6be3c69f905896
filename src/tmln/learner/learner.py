"""The learner: a model that learns one task after another, with any component of every family."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from tmln.data.images import Fit
from tmln.distributed.sharding import gather_state
from tmln.learner.checkpoint import load_file, save_file
from tmln.learner.class_edits import combine_scores, is_closed, merge_classes, remove_classes, rename_class
from tmln.learner.evaluation import (
    Observer,
    Prediction,
    check_model,
    check_trainable,
    evaluate_tasks,
    explain_failure,
    predict,
    predict_labels,
)
from tmln.learner.export import export
from tmln.learner.forward import Precision, check_heads
from tmln.learner.frozen_features import find_stored
from tmln.learner.heads import grow_for
from tmln.learner.history import (
    KNOWN_SHARE,
    Forgot,
    Retention,
    SeenData,
    TaskRecord,
    choose_threshold,
    find_right,
    finish_record,
    measure_record,
    start_record,
)
from tmln.learner.loop import StreamPosition, TaskPosition, learn_task
from tmln.learner.state import check_file, full_recipe, restore_on_error, restore_state, take_state
from tmln.learner.task_data import (
    Augment,
    TaskData,
    read_task,
    read_test,
    record_transforms,
    skip_augmentation,
    to_float,
)
from tmln.learner.trained import Trained
from tmln.lr_schedule import Schedule, ScheduleName
from tmln.methods import (
    Answer,
    Component,
    Penalty,
    Replay,
    Step,
    Weights,
    copy_state,
    get_reference_weight,
    prepare_inputs,
)
from tmln.methods.recipes import FAMILIES, Recipe, find_recipe
from tmln.seeds import seed_of
from tmln.streams.samples import Samples
from tmln.suggest import did_you_mean

__all__ = ["Learner", "to_float"]

# Arguments that a saved file carries, and those that it carries where they are not the default.
OPTIONS = ("lr", "batch_size", "seed", "logit_mask", "compile", "micro_batch", "schedule", "warmup")
LATER_OPTIONS = {"head": None, "keep": 1, "precision": "32", "batch_statistics": "global", "heads": ()}


class Learner:
    """Trains a model on one task after another.

    >>> learner = Learner(nn.Linear(4, 3), method="tmln", lr=0.01, batch_size=8)
    >>> x, y = torch.randn(32, 4), torch.randint(3, (32,))
    >>> learner.learn((x, y), epochs=2)
    >>> sorted(learner.evaluate((x, y)))
    ['accuracy', 'loss']

    Args:
        model: the network, with an output for each class; the head grows when more classes come.
        method: a recipe by name (``tmln list methods``), or a
            :class:`~tmln.methods.recipes.Recipe`.
        settings: settings of components, as ``{"step.damping": 0.2}``.
        lr: the learning rate.
        batch_size: new samples of a step.
        seed: of everything that is drawn.
        augment: ``augment(x, generator)``, stored samples to model inputs in training; ``prepare``
            unless given.
        prepare: stored samples to model inputs in testing; bytes become fractions unless given.
        logit_mask: ``"seen"`` lets only the classes met so far compete, as if the head grew: in the
            loss, in every Fisher, importance, teacher and reference gradient, and in evaluation.
        compile: pass training batches through ``torch.compile``.
        micro_batch: samples that pass through the model at a time; larger batches are passed in
            pieces, with the same result to rounding and the memory of a piece.
        schedule: how the learning rate changes within each task (:mod:`tmln.lr_schedule`):
            ``"constant"``, ``"cosine"`` or ``"linear"`` down to zero over the steps of ``learn()``.
        warmup: steps in which the rate rises, or a share of the steps if less than 1.
        head: the name of the layer that grows when classes come, as ``"fc"``; found by itself
            unless several might be.
        keep: how many tasks can be undone; each takes a copy of the state, also in a saved file.
        fabric: a ``lightning.fabric.Fabric`` that was launched: every process makes the same calls
            with the same data, and passes its share of each batch; batch size and seed decide the
            result, not the number of processes.
        precision: ``"bf16-mixed"`` or ``"16-mixed"`` for training passes under autocast; the
            Fabric's own unless given.
        accumulate: pass batches in so many pieces, as ``micro_batch`` of that part of the batch
            size.
        heads: the classes of each head, ``[[0, 1], [2, 3]]``, where every task has its own: of each
            sample only its own head's classes compete, in training and in :meth:`evaluate`, and
            :meth:`predict` is told ``head``. Without, one head over all classes.
        batch_statistics: of several processes; ``"rank"``: batch norm normalises each one's share
            by itself.
        components: a component of any family in place of the recipe's, by name (``replay="er",
            penalty="ewc++", step="tmln", weights="average", answer="ncm"``) or as a class, your own
            included; ``step="package.module:Class"`` imports it.

    ``trained`` is what is trained, ``position`` where in the stream the learner is, ``seen`` what
    it remembers about data. ``names`` are the classes by name in the order in which they were met;
    an index never changes its meaning.
    """

    replay: Replay[Any]
    penalty: Penalty[Any]
    step: Step[Any]
    weights: Weights[Any]
    answer: Answer[Any]

    def __init__(
        self,
        model: nn.Module,
        method: str | Recipe = "tmln",
        *,
        settings: Mapping[str, Any] | None = None,
        lr: float = 0.01,
        batch_size: int = 128,
        seed: int = 0,
        augment: Augment | None = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
        logit_mask: Literal["none", "seen"] = "none",
        compile: bool = False,
        micro_batch: int | None = None,
        schedule: ScheduleName = "constant",
        warmup: float = 0.0,
        head: str | None = None,
        keep: int = 1,
        fabric: Any = None,
        precision: Precision | None = None,
        accumulate: int = 1,
        batch_statistics: Literal["global", "rank"] = "global",
        heads: Sequence[Sequence[int]] = (),
        **components: str | type[Component[Any]] | None,
    ) -> None:
        check_model(model)
        if not 0 < lr < math.inf:
            raise ValueError(f"lr must be positive and finite, got {lr}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if keep < 0:
            raise ValueError(f"keep must be at least 0, got {keep}")
        if logit_mask not in ("none", "seen"):
            raise ValueError(f"logit_mask must be 'none' or 'seen', got {logit_mask!r}")
        if batch_statistics not in ("global", "rank"):
            raise ValueError(f"batch_statistics must be 'global' or 'rank', got {batch_statistics!r}")
        if heads and logit_mask != "none":
            raise ValueError("heads mask the logits of other tasks already: leave out logit_mask='seen'")
        recipe = find_recipe(method) if isinstance(method, str) else method
        for family, name in components.items():
            if family not in FAMILIES:
                known = [*FAMILIES, *OPTIONS, *LATER_OPTIONS]
                raise TypeError(f"a Learner has no argument {family!r}{did_you_mean(family, known)}")
            recipe = recipe if name is None else recipe.with_component(family, name)
        self.lr, self.batch_size, self.seed, self.logit_mask = lr, batch_size, seed, logit_mask
        self.lr_schedule = Schedule(schedule, warmup)
        self.prepare = prepare or to_float
        self.augment: Augment = augment or partial(skip_augmentation, self.prepare)
        self.head, self.keep, self.heads = head, keep, check_heads(heads)
        self.last_batch = 0  # samples in the last step, replayed ones included
        self.last_loss: float | torch.Tensor = math.nan  # of the last step; a tensor where it was not read
        self.shown_loss = math.nan  # the last that was read
        self.about: dict[str, Any] = {}  # plain values of the user's that a saved file carries along
        self.trained = Trained(
            model,
            recipe.with_settings(settings or {}),
            lr,
            batch_size,
            seed,
            mask=logit_mask == "seen",
            heads=heads,
            compile=compile,
            micro_batch=micro_batch,
            accumulate=accumulate,
            fabric=fabric,
            precision=precision,
            batch_statistics=batch_statistics,
        )
        order, noise = (torch.Generator().manual_seed(seed_of(seed, use)) for use in ("order", "augmentation"))
        self.position = StreamPosition(order, noise)
        self.seen = SeenData()

    def __repr__(self) -> str:
        tasks = f"{self.tasks} task{'' if self.tasks == 1 else 's'}"
        device = get_reference_weight(self.model).device
        return f"Learner({self.recipe.describe()}, {len(self.classes)} classes in {tasks}, on {device})"

    def learn(
        self,
        dataset: Any,
        epochs: int = 1,
        *,
        classes: Sequence[int] | Sequence[str] | None = None,
        boundary: bool = True,
        atomic: bool = True,
        on_step: Callable[[int, int, float], None] | None = None,
        on_batch: Callable[[int, int, Tensor, Tensor], None] | None = None,
        name: str | None = None,
        hold_out: float | None = None,
        test: Any = None,
        max_forgetting: float | None = None,
        image_size: int | None = None,
        fit: Fit | None = None,
    ) -> None:
        """Learn one task, its boundary included.

        On a learner that was restored in the middle of a task, the same call goes on with that
        task. If it fails (bad data, a loss that is not finite, Ctrl-C), the learner is as before
        the call.

        Args:
            dataset: ``(x, y)``, where y may be names, a data set or loader, or a path: a folder of
                classes with pictures, or of domains with classes, or an ``.npz`` with ``x``, ``y``
                and, for names, ``classes``.
            epochs: passes over the data.
            classes: names of the labels 0, 1, ... of this data, ``["ant", "owl"]``; folders, and a
                data set with ``classes``, name their own. They are matched with the learner's
                ``names``, and new ones are appended: the head grows. Numbers say which classes are
                the task's.
            boundary: False for data that flows without tasks: components are never told of an end,
                which some need.
            atomic: False saves the copy of the state that a restored failure takes.
            on_step: called as ``on_step(epoch, step, loss)`` after every step.
            on_batch: called as ``on_batch(epoch, step, x, y)`` before every step, with the new
                samples as stored: to test on them before they are trained on.
            name: of the task, for :attr:`retention`; the folder's unless given.
            hold_out: the share of each class that is not trained on (0.1 of a path, else none). By
                it :attr:`retention` measures this task and all later ones; at most 2000 such
                samples are kept.
            test: samples to use in place of ``hold_out``.
            max_forgetting: if an earlier task loses more than this share, as far as its held-out
                samples can tell (a 95% interval), :class:`Forgot` is raised, and :meth:`accept`
                takes the task all the same.
            image_size: the size of pictures; that of those before unless given.
            fit: how a picture becomes a square: ``"pad"`` shows all of it with a border,
                ``"stretch"`` all of it without its proportions, ``"crop"`` the centre; ``"pad"``
                unless given, or as before.
        """
        task = read_task(self, dataset, classes, test, hold_out, image_size, name, fit)
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {epochs}")
        if not len(task.samples):
            raise ValueError("a task needs at least one sample, this one is empty")
        check_trainable(self)
        if not boundary:
            self._check_online()
        before = self.seen.record
        record = start_record(before, task.name, task.samples, task.held) if boundary else before
        try:
            with explain_failure(self, task.samples), restore_on_error(self) if atomic else nullcontext() as state:
                self._learn(task, record, epochs, boundary, on_step, on_batch, max_forgetting)
        except Forgot as error:
            self.seen.refused = error.refused if self.keep else None
            raise
        self.seen.refused = None
        if state is not None and boundary and self.keep:
            self.seen.previous = [*self.seen.previous, (state, before)][-self.keep :]

    def _learn(
        self,
        task: TaskData,
        record: TaskRecord,
        epochs: int,
        boundary: bool,
        on_step: Callable[[int, int, float], None] | None,
        on_batch: Callable[[int, int, Tensor, Tensor], None] | None,
        max_forgetting: float | None,
    ) -> None:
        known, within = self.classes, self.position.within
        if self.seen.transforms is None:
            self.seen.transforms = record_transforms(task.samples, self.prepare, self.augment, task.fit)
        if within is None:
            earlier = TaskRecord(record.tasks, record.held[:-1])
            self.seen.earlier = find_right(self, earlier) if record.has_held_out else None
            self.names = task.names
            labels = (*task.classes, *task.samples.classes)
            grow_for(self, task.samples, max(len(task.names), *(label + 1 for label in labels)))
        else:
            known = within.known
        learn_task(self, task.samples, task.classes, epochs, boundary, on_step, on_batch)
        if boundary:
            try:
                self.seen.record = finish_record(self, record, task.samples.classes, known, max_forgetting)
            except Forgot as error:
                self.seen.earlier = None
                error.refused = copy_state(take_state(self), torch.device("cpu")), error.record
                raise
            self.seen.earlier = None

    @property
    def retention(self) -> Retention:
        """The accuracy of every task and class before and after the last task, as a table."""
        record = self.seen.record
        unmeasured = tuple(map(self.name_of, record.find_unmeasured()))
        return Retention(record.rows, len(record.tasks[-1].new) if record.tasks else 0, record.intervals, unmeasured)

    def forget(self, dataset: Any, *, classes: Sequence[str] | None = None) -> None:
        """Remove samples from the head as if they had never been learned, exactly.

        For the answers ``stream-ncm``, ``slda`` and ``ranpac``; others raise ``ValueError``. Labels
        are matched as in :meth:`evaluate`.
        """
        batches = read_test(self, dataset, classes).batches(self.trained.rows_per_pass)
        self.seen.record = replace(self.seen.record, evidence=None)
        with self.weights.prediction_weights():
            self.answer.remove((prepare_inputs(self.model, x, self.prepare), y) for x, y in batches)

    def rename_class(self, old: str, new: str) -> None:
        """Give a class another name; :meth:`undo` takes it back."""
        rename_class(self, old, new)

    def merge_classes(self, sources: Sequence[str], target: str) -> None:
        """Make one class, ``target``, of several; :meth:`undo` takes it back.

        Stored samples follow. Sums of heads in closed form are added, which is exact; a trained
        head keeps its rows, and the class has the sum of their probabilities.
        """
        merge_classes(self, sources, target)

    def remove_classes(self, names: Sequence[str]) -> None:
        """Never predict these classes again, and drop their samples; :meth:`undo` takes it back.

        Sums of the classes are dropped. What the weights learned of them is still in there:
        :meth:`forget` subtracts samples from heads in closed form exactly.
        """
        remove_classes(self, names)

    def undo(self) -> None:
        """Go back to before the last task or change of classes; as often as ``keep`` says."""
        if not self.seen.previous:
            raise RuntimeError(
                "there is no task to undo: none was learned, all that are kept were undone (keep= says how many), or "
                "it was learned with atomic=False"
            )
        *rest, (state, record) = self.seen.previous
        restore_state(self, state, self.seen.history[: state["tasks"]])
        self.seen.record, self.seen.previous, self.seen.refused = record, rest, None

    def accept(self) -> None:
        """Take the task that :class:`Forgot` refused, as it was learned; :meth:`undo` goes back."""
        if self.seen.refused is None:
            raise RuntimeError("there is no refused task to accept: none was refused, or another was learned since")
        state, record = self.seen.refused
        if state["tasks"] != self.tasks + 1 or tuple(state["names"][: len(self.names)]) != self.names:
            raise RuntimeError("the classes or tasks changed since the task was refused: learn it again")
        before = copy_state(take_state(self), torch.device("cpu")), self.seen.record
        restore_state(self, state, self.seen.history[: state["tasks"]])
        self.seen.previous = [*self.seen.previous, before][-self.keep :] if self.keep else []
        self.seen.record, self.seen.refused = record, None

    def predict(
        self, data: Any, top: int = 1, head: int | None = None, skip_bad: bool = False, *, unknown: bool | float = False
    ) -> list[Prediction]:
        """Return the most probable classes of tensors, arrays, data sets, pictures or folders.

        ``head`` says which task the data are of, where every task has a head of its own. With
        ``unknown=True`` the label of what fits no class is ``"unknown"``: 95% of the held-out
        samples are kept. A number is another :meth:`unknown_threshold`. Files that cannot be read
        are an error, or with ``skip_bad`` left out with a warning.

        >>> learner = Learner(nn.Linear(4, 2), batch_size=8)
        >>> learner.learn((torch.randn(32, 4), torch.arange(32) % 2), classes=["ant", "owl"])
        >>> [found.label in ("ant", "owl") for found in learner.predict(torch.randn(2, 4))]
        [True, True]
        """
        if not self.classes:
            warnings.warn("nothing was learned yet: these predictions are the model's own", UserWarning, stacklevel=2)
        return predict(self, data, top, head, skip_bad, unknown)

    def unknown_threshold(self, keep: float = KNOWN_SHARE) -> float:
        """Return the least evidence that a share ``keep`` of the held-out samples has.

        The evidence is the largest score minus the mean score of the classes met. Samples are
        measured as they are held out of tasks; without any, ``ValueError`` is raised.
        """
        return choose_threshold(measure_record(self), keep)

    def predict_labels(self, samples: Samples) -> Tensor:
        """Return the index of the class of each sample, by the weights that predict."""
        return predict_labels(self, samples)

    def evaluate(self, dataset: Any, *, classes: Sequence[str] | None = None) -> dict[str, float]:
        """Return accuracy (a fraction) and mean loss, over all classes or, masked, those met.

        The accuracy is that of the answer component; the loss is the cross entropy of the model's
        own output, whatever answers, so that it is the loss that training, landscapes and barriers
        have. Labels are matched by name as in :meth:`learn`; a class that was never learned is an
        error.
        """
        samples = read_test(self, dataset, classes)
        with explain_failure(self, samples):
            (found,) = self.evaluate_tasks([(samples, None)])
        return found

    def evaluate_tasks(
        self, tests: Sequence[tuple[Samples, Sequence[int] | None]], look: Observer | None = None
    ) -> list[dict[str, float]]:
        """Return accuracy, loss, and accuracy among the task's own classes of every test.

        Before a class was met, all compete. Both accuracies are of the answer component's scores,
        the loss is of the model's own output. ``look(index, scores, labels)`` is called for every
        batch. Where classes are None, the accuracy among them is left out.
        """
        with self.weights.prediction_weights():
            return evaluate_tasks(
                self.model,
                tests,
                self.prepare,
                open_classes=self.open_classes,
                batch_size=2 * self.trained.rows_per_pass,  # without gradients they take less
                scores=self.score,
                look=look,
                ranks=self.trained.ranks,
                heads=self.heads,
            )

    def export(self, path: str | PathLike[str]) -> None:
        """Export the model (``.safetensors``, ``.pt2``, ``.onnx``) or its labels (``.json``)."""
        export(self, path)

    @property
    def model(self) -> nn.Module:
        """The network."""
        return self.trained.model

    @property
    def recipe(self) -> Recipe:
        """The components of the method by name, and their settings."""
        return self.trained.recipe

    @property
    def components(self) -> dict[str, Component[Any]]:
        """The components by family, in the order of the families."""
        return self.trained.components

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return the component of a family: ``learner.step``, or of a family of your own."""
            trained = vars(self).get("trained")
            if trained is not None and name in trained.components:
                return trained.components[name]
            raise AttributeError(f"a Learner has no {name!r}")

    @property
    def tasks(self) -> int:
        """The number of tasks learned."""
        return self.position.tasks

    @property
    def classes(self) -> tuple[int, ...]:
        """The classes met so far, ascending."""
        return self.position.classes

    @property
    def names(self) -> tuple[str, ...]:
        """The classes by name, by index; empty where they are numbers."""
        return self.position.names

    @names.setter
    def names(self, names: tuple[str, ...]) -> None:
        self.position.names = names

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes by name, each once, without those that were removed."""
        return tuple(name for label, name in enumerate(self.names) if not is_closed(self.names, label))

    @property
    def open_classes(self) -> tuple[int, ...] | None:
        """The classes that compete in evaluation; None: all."""
        if self.logit_mask == "seen":
            return self.classes or None
        if len(self.class_names) == len(self.names):
            return None
        return tuple(label for label in range(len(self.names)) if not is_closed(self.names, label))

    def score(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's output, and the answer's scores, in which merged classes are one."""
        stored = find_stored(self.trained.masked) if model is self.model else None
        output, scores = self.answer.scores(stored or model, x)
        return output, combine_scores(scores, self.names)

    def name_of(self, label: int) -> str:
        """Return the class's name, or its number as text."""
        return self.names[label] if label < len(self.names) else str(label)

    @property
    def diagnostics(self) -> dict[str, float]:
        """What components found at the last boundary: ``{"step/active": 0.12, ...}``."""
        named = self.components.items()
        return {f"{family}/{key}": value for family, component in named for key, value in component.diagnostics.items()}

    def start(self, classes: Iterable[int]) -> None:
        """Begin a task with these classes: at the first weights, where the recipe says so."""
        self.trained.restart()
        self.position.within = TaskPosition(known=self.classes, order=self.position.order.get_state())
        self.meet({*self.classes, *classes})

    def meet(self, classes: Iterable[int]) -> None:
        """Set the classes met so far."""
        self.position.classes = tuple(sorted(classes))
        self.trained.open_classes(self.position.classes)

    def _check_online(self) -> None:
        bound = [component for component in self.components.values() if component.needs_boundary]
        if bound or self.recipe.restarts_each_task:
            names = " and ".join(repr(component.name) for component in bound) or "starting afresh at every task"
            raise ValueError(
                f"{names} needs task boundaries: call learn() without boundary=False, or choose components that do "
                "without (replay 'er' with replay.fill='online', 'der++', 'er-ace'; penalty 'none'; step 'sgd', "
                "'upgd', 'ocar')"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return all that the rest of a run depends on but the data."""
        return take_state(self)

    def load_state_dict(self, state: Mapping[str, Any], history: Sequence[Any] = ()) -> None:
        """Go on exactly where ``state`` was taken. ``joint`` also needs earlier data: ``history``.

        A state that was trained on inputs made otherwise than ``prepare`` and ``augment`` make them
        is refused.
        """
        restore_state(self, state, history)

    def save(self, path: str | PathLike[str]) -> None:
        """Save everything but the data and the model's code; loading the file runs no code.

        Of several processes all call it, and the first one writes.
        """
        self.answer.prepare()
        options = {name: self._get_option(name) for name in (*OPTIONS, *LATER_OPTIONS)}
        content = {
            "recipe": full_recipe(self.recipe),
            "options": {k: v for k, v in options.items() if k in OPTIONS or v != LATER_OPTIONS[k]},
            "state": self.state_dict(),
            "record": self.seen.record.to_dict(),
            "previous": [{"state": state, "record": record.to_dict()} for state, record in self.seen.previous],
            "about": self.about,
        }
        if self.seen.refused is not None:
            state, record = self.seen.refused
            content["refused"] = {"state": state, "record": record.to_dict()}
        ranks = self.trained.ranks
        content = gather_state(content, ranks.rank)
        ranks.run_together(lambda: save_file(path, content) if ranks.rank == 0 else None)

    def _get_option(self, name: str) -> Any:
        if name in ("schedule", "warmup"):
            return getattr(self.lr_schedule, {"schedule": "rule"}.get(name, name))
        return getattr(self if name in vars(self) else self.trained, name)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        model: nn.Module,
        *,
        augment: Augment | None = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
        history: Sequence[Any] = (),
        allow_code: bool = False,
        memory_path: str | PathLike[str] | None = None,
        fabric: Any = None,
    ) -> Learner:
        """Load a learner that goes on exactly where the saved one stopped.

        Args:
            path: a file that :meth:`save` wrote. All that it says is checked before anything is
                built.
            model: a model of the same architecture; its head may have fewer rows.
            augment: as of the constructor; a file cannot hold functions.
            prepare: as of the constructor.
            history: for ``joint``, the data of the tasks so far.
            allow_code: load components that are code (``package.module:Class``), which importing
                runs.
            memory_path: the folder with the files of a memory on disk, where it is another than the
                file names.
            fabric: as of the constructor.
        """
        given: dict[str, Any] = {"augment": augment, "prepare": prepare, "history": history, "allow_code": allow_code}
        return cls.from_saved(load_file(path), model, **given, memory_path=memory_path, fabric=fabric, what=str(path))

    @classmethod
    def from_saved(
        cls,
        saved: Mapping[str, Any],
        model: nn.Module,
        *,
        augment: Augment | None = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
        history: Sequence[Any] = (),
        allow_code: bool = False,
        memory_path: str | PathLike[str] | None = None,
        fabric: Any = None,
        what: str = "the state",
    ) -> Learner:
        """Load as :meth:`load` from what :func:`tmln.learner.checkpoint.load_file` read."""
        recipe, file = check_file(saved, what, allow_code, None if memory_path is None else str(memory_path))
        options = file.options.model_dump(exclude_unset=True)
        learner = cls(model, recipe, augment=augment, prepare=prepare, fabric=fabric, **options)
        try:
            learner.load_state_dict(saved["state"], history)
        except ValueError:
            raise
        except Exception as error:  # whatever a component raises of a state that is not its own
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"{what} cannot be restored: {reason}") from error
        learner.seen.record = TaskRecord.from_dict(saved.get("record"))  # files of version 0.1 have none
        previous = saved.get("previous", ())
        learner.seen.previous = [(one["state"], TaskRecord.from_dict(one.get("record"))) for one in previous]
        if "refused" in saved:
            learner.seen.refused = saved["refused"]["state"], TaskRecord.from_dict(saved["refused"]["record"])
        learner.about = dict(saved.get("about", {}))
        return learner
