"""What a page takes for granted: the model, the data and the folders that its code speaks of, as small as can be.

A scene is set before a block of its page, by number; what earlier blocks of the page made is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tmln
from tmln.deploy.learn import LearnRequest, learn_into

Names = dict[str, Any]
SIDE = 8
SHADES = {"bee": 0, "owl": 200, "ant": 100}


def pictures(folder: str, *names: str) -> None:
    """Ten small ones of each class, which is a shade."""
    from PIL import Image

    noise = np.random.RandomState(sum(map(ord, folder)))
    for name in names:
        Path(folder, name).mkdir(parents=True)
        for number in range(10):
            pixels = noise.randint(0, 30, (SIDE, SIDE, 3)) + SHADES[name]
            Image.fromarray(pixels.astype(np.uint8)).save(Path(folder, name, f"{number}.png"))


def network(outputs: int = 2, inputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))


def samples(count: int = 8) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3), torch.arange(count) % 2


def stepped(model: nn.Module) -> tmln.TMLN:
    """An optimizer that has something to consolidate."""
    optimizer = tmln.TMLN(model.parameters())
    x, y = samples()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    return optimizer


def loop() -> Names:
    """A loop's data: each task is a list of batches."""
    return {"model": network(), "tasks": [[samples()] * 3] * 2, "loss": nn.functional.cross_entropy}


def learner() -> Names:
    """A learner's data: each task is what to train on, and what to test on."""
    return {"tmln": tmln, "model": network(), "tasks": [(TensorDataset(*samples()), TensorDataset(*samples()))] * 2}


def devices() -> Names:
    """What a learner learns first."""
    return {"tmln": tmln, "model": network(), "week1": TensorDataset(*samples())}


def weeks() -> Names:
    """Two weeks of pictures, and some new ones."""
    for place in ("", "photos/"):
        pictures(f"{place}week1", "bee", "owl")
        pictures(f"{place}week2", "ant", "owl")
    pictures("photos/new", "owl")
    return {"tmln": tmln, "torch": torch, "model": network(2, 3 * SIDE * SIDE)}


def intents() -> Names:
    """A table of texts."""
    said = {"music": "play a song", "weather": "will it rain"}
    rows = [f"{text} {more},{label}" for label, text in said.items() for more in ("please", "now", "in rome", "today")]
    Path("intents.csv").write_text("\n".join(["text,label", *rows]))
    return {}


def learned_state() -> Names:
    """A state file that the command line made, and a third week."""
    pictures("week3", "bee", "owl")
    Path("shop.tmln").unlink()  # of the learner of Python above it
    learn_into("shop.tmln", "week1", LearnRequest(epochs=1))
    return {"tmln": tmln}


def two_photos() -> Names:
    """Two pictures of other sizes, beside the model that the page exported."""
    from PIL import Image

    for name, size in (("a.png", (20, 30)), ("b.jpg", (90, 40))):
        Image.new("RGB", size, "gray").save(Path("photos", name))
    return {}


def grown_head() -> Names:
    """A network with a head that is called fc, under TMLN."""
    model = nn.Sequential()
    model.add_module("fc", nn.Linear(512, 10))
    return {"model": model, "optimizer": tmln.TMLN(model.parameters())}


def batches() -> Names:
    """Batches of several forms."""
    fields = ("input_ids", "attention_mask", "labels")
    texts = {name: torch.ones(40, 5, dtype=torch.long) for name in fields}
    x, y = samples()
    return {"tmln": tmln, "x": x, "y": y, "mask": torch.ones(8), "batch": {"x": x, "label": y}, "loader": [texts]}


def fisher() -> Names:
    """One process plays them all."""
    model = network()
    given = {"model": model, "ddp_model": model, "batches": [samples()], "my_batches": [samples()]}
    return {**given, "tmln": tmln, "nn": nn, "torch": torch, "optimizer": stepped(model)}


def stream() -> Names:
    """A stream without tasks."""
    model = network()
    return {"tmln": tmln, "model": model, "stream": [samples()] * 3, "learn_from": lambda x, y: model(x).mean()}


def lightning() -> Names:
    """A module under TMLN, and a trainer that is silent."""
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.net(x)
            return found

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return tmln.TMLN(self.parameters())

    silent: Names = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    data = [DataLoader(TensorDataset(*samples()), batch_size=4)] * 2
    return {"model": Module(), "tasks": data, "Trainer": partial(pl.Trainer, accelerator="cpu", **silent)}


def trainer() -> Names:
    """A tiny BERT, texts of one length, and arguments at which nothing is written."""
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        Trainer,
        TrainingArguments,
        default_data_collator,
    )

    sizes = {
        "vocab_size": 12,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
    }
    texts = [
        {"input_ids": torch.tensor([k % 12] * 4), "attention_mask": torch.ones(4).long(), "labels": k % 2}
        for k in range(8)
    ]
    quiet = {
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return {
        "tmln": tmln,
        "Trainer": Trainer,
        "model": BertForSequenceClassification(BertConfig(**sizes)),
        "args": TrainingArguments("out", num_train_epochs=1, learning_rate=0.0, **quiet),
        "tasks": [texts] * 2,
        "tokenizer": None,
        "DataCollatorWithPadding": lambda tokenizer: default_data_collator,
        "old_samples": texts,
        "new_samples": texts,
    }


def wrapped() -> Names:
    """A loop of one's own whose optimizer is wrapped by nobody: what is not wrapped is what it is."""
    from tmln.integrations.memory import unwrapped

    memory, model = tmln.Reservoir(10), network()
    memory.add(*samples())
    return {"unwrapped": unwrapped, "optimizer": stepped(model), "network": model, "memory": memory}


SCENES: Mapping[str, Mapping[int, Callable[[], Names]]] = {
    "README.md": {2: weeks, 3: learner},
    "docs/devices.md": {0: devices},
    "docs/own_data.md": {0: weeks, 1: learned_state, 2: grown_head, 3: two_photos},
    "docs/memory.md": {0: batches},
    "docs/text.md": {0: intents},
    "docs/fisher.md": {0: fisher, 1: fisher},
    "docs/methods.md": {0: stream},
    "docs/integrations.md": {0: lightning, 1: trainer, 4: wrapped},
}
