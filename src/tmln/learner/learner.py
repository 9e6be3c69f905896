"""A model that learns one task after another, with any part of every family; the loop is in loop.py."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tmln.distributed.data_parallel import DataParallel
from tmln.distributed.process_group import SINGLE
from tmln.distributed.sharding import gather_state, is_sharded_model, load_model_weights
from tmln.learner.backward import Backward
from tmln.learner.checkpoint import load_file, save_file
from tmln.learner.epoch import Place
from tmln.learner.evaluate import Look, evaluate_tasks
from tmln.learner.export import export
from tmln.learner.fabric import check_compile, choose_precision, micro_batch_size, place_model
from tmln.learner.logit_mask import Scored
from tmln.learner.micro_batches import InPieces
from tmln.learner.mixed_precision import HALVES, Mixed, Precision, Scale
from tmln.learner.predict import Prediction, answers, predict
from tmln.learner.prepare_task import asked, take
from tmln.learner.retention import Kept, Retention
from tmln.learner.state import check_file, full_recipe, restore_on_error, restore_state, take_state
from tmln.learner.task_history import Record
from tmln.learner.task_lifecycle import learn_lesson, undo
from tmln.learner.transform_fingerprint import Augment, not_augmented, to_float
from tmln.lr_schedule import Schedule, ScheduleName
from tmln.methods import Answer, Component, Penalty, Replay, Step, Weights, prepare_inputs
from tmln.methods.recipes import FAMILIES, Recipe, find_recipe, make_components
from tmln.seeds import seed_of
from tmln.streams.samples import Samples
from tmln.suggest import did_you_mean

__all__ = ["Learner", "to_float"]

AT_A_TIME = 256  # samples in a pass at a task's end, unless micro_batch is less

# numbers that a saved file carries, and those that it carries where they are not these
OPTIONS = ("lr", "batch_size", "seed", "logit_mask", "compile", "micro_batch", "schedule", "warmup")
LATER = {"head": None, "keep": 1, "precision": "32", "batch_statistics": "global"}


class Learner:
    """Trains a model on one task after another.

    >>> learner = Learner(nn.Linear(4, 3), method="tmln", lr=0.01, batch_size=8)
    >>> x, y = torch.randn(32, 4), torch.randint(3, (32,))
    >>> learner.learn((x, y), epochs=2)
    >>> sorted(learner.evaluate((x, y)))
    ['accuracy', 'loss']

    Args:
        method: a recipe by name (``tmln list methods``), or a :class:`~tmln.methods.recipes.Recipe`.
        parts: a part of any family by name, in place of the recipe's: ``replay="er", penalty="ewc++", step="tmln",
            weights="average", answer="ncm"``, or one of your own, ``step="package.module:Class"``.
        settings: numbers of the parts, as ``{"step.damping": 0.2}``.
        augment, prepare: stored samples -> model inputs, in training and in testing; bytes become fractions unless
            given. ``augment`` gets a generator, so that a seed fixes a run.
        logit_mask: ``"seen"`` lets only the classes met so far compete, as if the head grew: in the loss, in every
            Fisher, importance, teacher and reference gradient, and in evaluation. ``scored`` is the model seen so.
        compile: the training pass goes through ``torch.compile``.
        micro_batch: samples that go through the model at a time; larger batches are passed in pieces, with the same
            result to rounding and the memory of a piece.
        schedule, warmup: how the rate goes within each task (:mod:`tmln.lr_schedule`): ``"constant"``, ``"cosine"`` or
            ``"linear"`` down to zero over the steps of ``learn()``, after ``warmup`` steps, or a share of them if less
            than 1, in which it rises.
        head: the name of the layer that grows when classes come, as ``"fc"``; found by itself unless several might be.
        keep: how many lessons can be undone; each takes a copy of the state, also in a saved file.
        fabric: a ``lightning.fabric.Fabric`` that was launched: every process makes the same calls with the same data,
            and passes its share of each batch; batch size and seed decide the result, not how many there are.
        precision: ``"bf16-mixed"`` or ``"16-mixed"`` for training passes under autocast; the Fabric's own unless given.
        accumulate: batches are passed in so many pieces, as ``micro_batch`` of that part of the batch size.
        batch_statistics: of several processes; ``"rank"``: batch norm normalises each one's share by itself.

    ``names`` are the classes by name, in the order in which they were met; an index never changes its meaning.
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
        **parts: str | None,
    ) -> None:
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
        recipe = find_recipe(method) if isinstance(method, str) else method
        for family, name in parts.items():
            if family not in FAMILIES:
                raise TypeError(
                    f"a Learner has no argument {family!r}{did_you_mean(family, [*FAMILIES, *OPTIONS, *LATER])}"
                )
            recipe = recipe if name is None else recipe.with_component(family, name)
        self.schedule, self.warmup, self.pace = schedule, warmup, Schedule(schedule, warmup)
        self.model, self.recipe = model, recipe.with_settings(settings or {})
        self.scored: nn.Module = Scored(model) if logit_mask == "seen" else model
        self.ranks, self.batch_statistics = place_model(model, fabric, self.recipe), batch_statistics
        check_compile(model, self.ranks, compile, batch_statistics == "global")
        self.precision: Precision = choose_precision(precision, fabric)
        self.backward = Backward(self.ranks, Scale() if self.precision == "16-mixed" else None)
        piece = micro_batch_size(batch_size, accumulate, self.ranks)
        micro_batch = piece if micro_batch is None else micro_batch
        self.compile, self.micro_batch = compile, micro_batch
        self.at_a_time = min(AT_A_TIME, micro_batch or AT_A_TIME)  # in passes that take no step
        self.forward = self._made_forward()
        self.last_batch = 0  # samples in the last step, replayed ones included
        self.lr, self.batch_size, self.seed, self.logit_mask = lr, batch_size, seed, logit_mask
        self.prepare = prepare or to_float
        self.augment: Augment = augment or partial(not_augmented, self.prepare)
        self.head, self.keep = head, keep
        self._make_parts()
        self.tasks = 0
        self.names: tuple[str, ...] = ()  # of the classes, by index; empty where they are numbers
        self.classes: tuple[int, ...] = ()  # met so far, ascending
        self.order, self.noise = (
            torch.Generator().manual_seed(seed_of(seed, use)) for use in ("order", "augmentation")
        )
        self.place: Place | None = None  # within a task; None between tasks
        self.initial = copy.deepcopy(model.state_dict()) if self.recipe.restarts_each_task else None
        self.history: list[Samples] = []
        self.record = Record()  # of the lessons so far
        self.previous: list[tuple[dict[str, Any], Record]] = []  # states that undo() goes back to, the newest last
        self.earlier: list[dict[int, tuple[int, float]]] | None = None  # within a lesson: what was right before it
        self.about: dict[str, Any] = {}  # plain values of the user's that a saved file carries along
        self.intake: dict[str, Any] | None = None  # what was done to stored samples, found at the first of them

    def learn(
        self,
        dataset: Any,
        epochs: int = 1,
        *,
        classes: Sequence[int] | Sequence[str] | None = None,
        boundary: bool = True,
        atomic: bool = True,
        on_step: Callable[[int, int, float], None] | None = None,
        name: str | None = None,
        hold_out: float | None = None,
        test: Any = None,
        max_forgetting: float | None = None,
        image_size: int | None = None,
    ) -> None:
        """One task, its boundary included. ``on_step(epoch, step, loss)`` is called after every step.

        ``dataset`` is ``(x, y)``, a data set, or a place: a folder of classes with pictures, or of domains with
        classes, or an ``.npz`` with ``x``, ``y`` and, for names, ``classes``. Pictures take the size of those before,
        or ``image_size``. ``classes=["ant", "owl"]`` names the labels 0 and 1 of this data; folders, and a data set
        with ``classes``, name their own. They are matched with the learner's ``names``, and new ones are appended: the
        head grows. Labels without names are the learner's own numbers, and may be new, too. Numbers in ``classes``
        say which are the task's.

        ``test``, or the share ``hold_out`` of each class (0.1 of a place, else none), is not trained on: by it
        :attr:`retention` judges this lesson and all later ones. At most 2000 such samples are kept, an equal part for
        each lesson. If an earlier lesson loses more than ``max_forgetting`` (a share), :class:`Forgot` is raised.

        ``boundary=False`` is for data that flows without tasks: the parts are never told of an end, which some need.
        On a learner that was restored in the middle of a task, the same call goes on with that task. If it fails (bad
        data, a loss that is no number, Ctrl-C), the learner is as before the call; ``atomic=False`` saves the copy of
        the state that this takes.
        """
        taken = take(self, dataset, classes, test, hold_out, image_size, name)
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {epochs}")
        if not len(taken.samples):
            raise ValueError("a task needs at least one sample, this one is empty")
        if not boundary:
            self._refuse_without_boundary()
        record = self.record
        with restore_on_error(self) if atomic else nullcontext() as before:
            learn_lesson(self, taken, epochs, boundary, on_step, max_forgetting)
        if before is not None and boundary and self.keep:
            self.previous = [*self.previous, (before, record)][-self.keep :]

    @property
    def retention(self) -> Retention:
        """What the last lesson gave and cost, of every lesson and class the accuracy before and after: a table."""
        lessons = self.record.lessons
        return Retention(tuple(Kept(*row) for row in self.record.rows), len(lessons[-1].new) if lessons else 0)

    def forget(self, dataset: Any, *, classes: Sequence[str] | None = None) -> None:
        """Remove samples from the head as if they had never been learned, exactly.

        For the answers ``stream-ncm``, ``slda`` and ``ranpac``; others raise ``ValueError``. Labels are matched as in
        :meth:`evaluate`.
        """
        samples = asked(self, dataset, classes)
        with self.weights.prediction_weights():
            self.answer.remove(
                (prepare_inputs(self.model, x, self.prepare), y) for x, y in samples.batches(self.at_a_time)
            )

    def undo(self) -> None:
        """Back to before the last lesson, to the bit; as many times as ``keep`` says."""
        undo(self)

    def predict(self, data: Any, top: int = 1) -> list[Prediction]:
        """The most probable class of each input: of tensors, arrays and data sets, of a picture, a folder, or several.

        >>> learner = Learner(nn.Linear(4, 2), batch_size=8)
        >>> learner.learn((torch.randn(32, 4), torch.arange(32) % 2), classes=["ant", "owl"])
        >>> [found.label in ("ant", "owl") for found in learner.predict(torch.randn(2, 4))]
        [True, True]
        """
        return predict(self, data, top)

    def answers(self, samples: Samples) -> Tensor:
        """The index of the class of each sample, as the weights that answer say."""
        return answers(self, samples)

    def export(self, path: str | PathLike[str]) -> None:
        """The model for programs without tmln: ``.safetensors``, ``.pt2``, ``.onnx``; ``.json`` are its labels."""
        export(self, path)

    def name_of(self, label: int) -> str:
        """The class's name, or its number."""
        return self.names[label] if label < len(self.names) else str(label)

    @property
    def by_family(self) -> dict[str, Component[Any]]:
        """The parts, by family."""
        return {family: getattr(self, family) for family in FAMILIES}

    @property
    def parts(self) -> tuple[Component[Any], ...]:
        """The parts, in the order of the families."""
        return tuple(self.by_family.values())

    @property
    def diagnostics(self) -> dict[str, float]:
        """What the parts found at the last boundary: ``{"step/active": 0.12, ...}``; empty for most methods."""
        named = self.by_family.items()
        return {f"{family}/{key}": value for family, part in named for key, value in part.diagnostics.items()}

    def _make_parts(self) -> None:
        for family, part in make_components(self.recipe, self.scored, self.lr, self.seed).items():
            setattr(self, family, part)

    def start(self, met: Iterable[int]) -> None:
        """A task with these classes is to begin: afresh, where the recipe says so."""
        if self.initial is not None:
            load_model_weights(self.model, self.initial)
            self._make_parts()
        self.place = Place(known=self.classes, order=self.order.get_state())
        self.meet({*self.classes, *met})

    def meet(self, classes: Iterable[int]) -> None:
        """From now on these are the classes met so far."""
        self.classes = tuple(sorted(classes))
        if isinstance(self.scored, Scored):
            self.scored.open(self.classes)

    def _refuse_without_boundary(self) -> None:
        bound = [part for part in self.parts if part.needs_boundary]
        if bound or self.initial is not None:
            names = " and ".join(repr(part.name) for part in bound) or "starting afresh at every task"
            raise ValueError(
                f"{names} needs task boundaries: call learn() without boundary=False, or choose parts that do without "
                "(replay 'er' with replay.fill='online', 'der++', 'er-ace'; penalty 'none'; step 'sgd', 'upgd', 'ocar')"
            )

    def in_pieces(self, rows: int | None) -> None:
        """From now on so many samples go through the model at a time, at most; None: all of a batch.

        With batch norm, whose batches are passed whole, that holds for the passes at a task's end and for tests.
        """
        normed = any(isinstance(module, _BatchNorm) for module in self.model.modules())
        self.micro_batch, self.at_a_time = None if normed else rows, min(AT_A_TIME, rows or AT_A_TIME)
        self.forward = self._made_forward()

    def _made_forward(self) -> nn.Module:
        forward: nn.Module = torch.compile(self.scored) if self.compile else self.scored  # type: ignore[assignment]
        forward = forward if self.precision == "32" else Mixed(forward, HALVES[self.precision])
        even = self.ranks if is_sharded_model(self.model) else SINGLE
        forward = forward if self.micro_batch is None else InPieces(forward, self.micro_batch, even)
        return forward if self.ranks.size == 1 else DataParallel(forward, self.ranks, self.batch_statistics == "global")

    def evaluate(self, dataset: Any, *, classes: Sequence[str] | None = None) -> dict[str, float]:
        """Accuracy (a fraction) and mean loss, in eval mode, over all classes or, masked, those met so far.

        The accuracy is that of the answer part; the loss is the cross entropy of the model's own output, whatever
        answers, so that it is the loss that training, landscapes and barriers have. Labels are matched by name as in
        :meth:`learn`; a class that was never learned is an error.
        """
        samples = asked(self, dataset, classes)
        (found,) = self.evaluate_tasks([(samples, None)])
        return found

    def evaluate_tasks(
        self, tests: Sequence[tuple[Samples, Sequence[int] | None]], look: Look | None = None
    ) -> list[dict[str, float]]:
        """Accuracy, loss, and accuracy among the task's own classes, of every (samples, classes): the weights that
        answer, in eval mode. Before a class was met, all compete. Both accuracies are of the answer part's scores, the
        loss is of the model's own output. ``look(index, scores, labels)`` sees every batch of what answers. Where
        classes are None, the accuracy among them is left out."""
        seen = self.classes or None if self.logit_mask == "seen" else None
        rows = 2 * self.at_a_time  # without gradients they take less
        with self.weights.prediction_weights():
            return evaluate_tasks(
                self.model,
                tests,
                self.prepare,
                open_classes=seen,
                batch_size=rows,
                scores=self.answer.scores,
                look=look,
                ranks=self.ranks,
            )

    def state_dict(self) -> dict[str, Any]:
        """All that the rest of a run depends on but the data: tensors, numbers and containers of them."""
        return take_state(self)

    def load_state_dict(self, state: Mapping[str, Any], history: Sequence[Any] = ()) -> None:
        """Go on exactly where ``state`` was taken. ``joint`` also needs its earlier tasks' data again: ``history``.

        A state that was trained on inputs made otherwise than ``prepare`` and ``augment`` make them is refused.
        """
        restore_state(self, state, history)

    def save(self, path: str | PathLike[str]) -> None:
        """Everything but the data and the model's code, in one file that can run no code when loaded.

        Of several processes all call it, and the first one writes.
        """
        options = {name: getattr(self, name) for name in OPTIONS}
        options |= {name: value for name, usual in LATER.items() if (value := getattr(self, name)) != usual}
        saved = {"recipe": full_recipe(self.recipe), "options": options, "state": self.state_dict()}
        before = [{"state": state, "record": record.plain()} for state, record in self.previous]
        content = {**saved, "record": self.record.plain(), "previous": before, "about": self.about}
        content = gather_state(content, self.ranks.rank)
        self.ranks.run_together(lambda: save_file(path, content) if self.ranks.rank == 0 else None)

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
            path: a file that :meth:`save` wrote. All that it says is checked before anything is built.
            model: a model of the same architecture; its head may have fewer rows.
            augment, prepare, fabric: as of the constructor; a file cannot hold functions.
            history: for ``joint``, the data of the tasks so far.
            allow_code: load components that are code (``package.module:Class``), which importing runs.
            memory_path: the folder with the files of a memory on disk, where it is another than the file names.
        """
        given: dict[str, Any] = {"augment": augment, "prepare": prepare, "history": history, "allow_code": allow_code}
        return cls.of(load_file(path), model, **given, memory_path=memory_path, fabric=fabric, what=str(path))

    @classmethod
    def of(
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
        learner.record = Record.of(saved.get("record"))  # files from before there were lessons have none
        learner.previous = [(one["state"], Record.of(one["record"])) for one in saved.get("previous", ())]
        learner.about = dict(saved.get("about", {}))
        return learner

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "forward"}  # compiled code stays here

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self.forward = self._made_forward()
