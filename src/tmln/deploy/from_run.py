"""A run of the lab becomes a state: its learner as it was at the end, with the names of its classes."""

from __future__ import annotations

from pathlib import Path

from tmln.deploy.state_file import About
from tmln.experiments.build import build
from tmln.experiments.config import RunConfig
from tmln.experiments.files import read_own, refuse_links
from tmln.experiments.run import fingerprint
from tmln.experiments.store import Store
from tmln.learner import Learner
from tmln.learner.checkpoint import read_newest
from tmln.streams import Stream
from tmln.streams.augment import Normalise


def from_run(folder: str | Path) -> Learner:
    """The learner of a finished run. What its last checkpoint lacks is learned again, which gives the same bits;
    that they are the same is seen by the hash of the weights in its result."""
    folder = Path(folder).expanduser().resolve()
    refuse_links(folder)
    result = Store(folder.parent).result(folder.name)
    if result is None:
        raise ValueError(
            f"{folder}: no finished run; tmln run finishes it, tmln show {folder.parent} lists what there is"
        )
    config = RunConfig.from_yaml(read_own(folder / "config.yaml").decode())
    stream, learner = build(config)
    saved = read_newest(folder / "checkpoint")
    if saved is not None:
        history = [task.train for task in stream.tasks[: saved[0]["learner"]["tasks"]]]
        learner.load_state_dict(saved[0]["learner"], history if learner.recipe.joint else ())
    epochs = int(config.resolved()["epochs"])
    while learner.tasks < len(stream.tasks):
        task = stream.tasks[learner.tasks]
        learner.learn(task.train, epochs, classes=task.classes, atomic=False)
    expected = result.weights_sha256
    if expected and fingerprint(learner.model) != expected:
        raise RuntimeError(
            f"{folder}: learned again its weights are others than those of its result, as on another machine; "
            "run it again here"
        )
    learner.names = stream.class_names
    learner.about = {**_about(config, stream).plain(), "method": config.method}
    return learner


def _about(config: RunConfig, stream: Stream) -> About:
    if not isinstance(stream.prepare, Normalise):
        raise ValueError(f"benchmark {stream.name} prepares its inputs in its own way, which a state cannot hold")
    full = config.resolved()
    return About(full["model"], stream.shape, stream.classes, full["model_options"], stream.mean, stream.std)
