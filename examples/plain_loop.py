"""TMLN in a plain PyTorch loop: the optimizer, a memory, and the task's end are all it takes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import tmln
from tmln.streams import make_stream


def main(epochs: int = 10) -> list[float]:
    stream = make_stream("split-digits")  # five tasks of two digits; any data will do
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    optimizer = tmln.TMLN(model.parameters(), lr=0.01)
    memory = tmln.Reservoir(capacity=500)

    for task in stream:
        data, labels = stream.prepare(task.train.x), task.train.y
        for _ in range(epochs):
            for rows in torch.randperm(len(data)).split(32):
                x, y = data[rows], labels[rows]
                if memory:  # replay: as many old samples as new ones
                    old_x, old_y = memory.sample(len(x))
                    x, y = torch.cat([x, old_x]), torch.cat([y, old_y])
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        memory.add(data, labels)
        optimizer.consolidate(tmln.diagonal_fisher(model, memory.batches(128)))

    model.eval()
    with torch.no_grad():
        found = [float((model(stream.prepare(t.x)).argmax(1) == t.y).float().mean()) for t in stream.tests]
    print("accuracy on each task after the last:", ", ".join(f"{100 * value:.0f}%" for value in found))
    return found


if __name__ == "__main__":
    main()
