"""The retention check for Hugging Face's Trainer: what fine-tuning costs on anchor sets, with any optimizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from torch import nn
from torch.utils.data import DataLoader

from tmln.curvature.likelihoods import LogLikelihood
from tmln.integrations.retention import Retention, Values, scores
from tmln.writing import writing

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error}; this needs transformers: pip install "tmln[transformers]"') from error

FILE = "retention.json"
Measure = Callable[[nn.Module, Iterable[Any]], Mapping[str, float]]


class RetentionCallback(TrainerCallback):  # type: ignore[misc]
    """Metrics on anchor sets before, after every epoch (or ``every`` so many steps) and after a training, as a table.

    ::

        check = RetentionCallback({"general": old_samples}, bounds={"accuracy": 0.02}, beyond="exit", page="kept.html")
        Trainer(model, args, train_dataset=new_samples, callbacks=[check]).train()

    Args:
        sets: data sets by name, made into batches by the training's collator or by ``collate``; or data loaders.
        bounds: by how much a metric may be worse than before: an accuracy may fall, a loss may rise.
        beyond: where it is, ``"stop"`` the training, or ``"exit"`` besides: the program ends with a status that is
            not zero, after the table was printed and the page written.
        measure: ``f(model, batches) -> {name: value}``; unless given, loss and accuracy of the labels.
        page: where to write the table as a page.

    "Before" is before the first training that this callback sees; ``retention`` holds all readings.
    """

    def __init__(
        self,
        sets: Mapping[str, Any],
        *,
        bounds: Mapping[str, float] | None = None,
        beyond: Literal["stop", "exit"] = "stop",
        every: int | None = None,
        measure: Measure | None = None,
        log_likelihood: str | LogLikelihood | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        batch_size: int = 32,
        page: str | PathLike[str] | None = None,
    ) -> None:
        if not sets:
            raise ValueError("no anchor set: give RetentionCallback({name: data set, ...})")
        if beyond not in ("stop", "exit"):
            raise ValueError(f"beyond={beyond!r}: 'stop' the training, or 'exit' the program")
        if every is not None and every < 1:
            raise ValueError(f"every={every}: steps from a reading to the next; give 1 or more, or None for epochs")
        for name, data in sets.items():
            if not isinstance(data, DataLoader) and not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
                raise TypeError(f"anchor set {name!r} is a {type(data).__name__}; give a data set or a DataLoader")
        self.sets, self.bounds, self.beyond, self.every = dict(sets), dict(bounds or {}), beyond, every
        self.measure: Measure = measure or (lambda model, batches: scores(model, batches, log_likelihood))
        self.collate, self.batch_size, self.page = collate, batch_size, page
        self.retention = Retention()
        self.broken: list[str] = []  # bounds, in words

    def on_train_begin(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """The first reading; a resumed training has that of its beginning."""
        kept = Path(args.output_dir) / f"checkpoint-{state.global_step}" / FILE
        if state.global_step and not self.retention.readings:
            if not kept.is_file():
                raise FileNotFoundError(f"no {kept}: what the model knew before the training is not known; start anew")
            self.retention = Retention(**json.loads(kept.read_text(encoding="utf-8")))
        if not self.retention.readings:
            self.retention.add("before", self._read(the))
            found = {metric for values in self.retention.readings[0].values() for metric in values}
            if unknown := [metric for metric in self.bounds if metric not in found]:
                raise ValueError(
                    f"no set has the metric {unknown[0]!r} of bounds; there are {', '.join(sorted(found))}"
                )

    def on_step_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        if self.every is not None and state.global_step % self.every == 0:
            self._note(f"step {state.global_step}", control, the)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        if self.every is None:
            self._note(f"epoch {state.epoch:g}", control, the)

    def on_save(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Beside the Trainer's own files."""
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}" / FILE
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(vars(self.retention)), encoding="utf-8")

    def on_train_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """The last reading, the table, the page, and the verdict."""
        self._note("after", control, the)
        print(self.retention)
        if self.page is not None:
            path = Path(self.page)
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.retention.page(self.broken), encoding="utf-8")
        if self.broken and self.beyond == "exit":
            raise SystemExit("forgotten more than is allowed: " + "; ".join(self.broken))

    def _note(self, moment: str, control: Any, the: Mapping[str, Any]) -> None:
        self.retention.add(moment, self._read(the))
        self.broken = self.retention.beyond(self.bounds)
        if self.broken:
            control.should_training_stop = True

    def _read(self, the: Mapping[str, Any]) -> dict[str, Values]:
        return {name: dict(self.measure(the["model"], self._batches(data, the))) for name, data in self.sets.items()}

    def _batches(self, data: Any, the: Mapping[str, Any]) -> Iterable[Any]:
        if isinstance(data, DataLoader):
            yield from data
            return
        collate = self.collate or the["train_dataloader"].collate_fn
        replaying: Any = getattr(collate, "data_collator", collate)  # the Trainer's own drops columns around it
        mixing = getattr(replaying, "mixing", None)
        for start in range(0, len(data), self.batch_size):
            rows = [data[k] for k in range(start, min(start + self.batch_size, len(data)))]
            if mixing:
                replaying.mixing = False  # an anchor set is measured without what is replayed
            try:
                batch = collate(rows)
            finally:
                if mixing:
                    replaying.mixing = True
            yield batch
