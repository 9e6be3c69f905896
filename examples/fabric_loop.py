"""TMLN in a loop with Lightning Fabric: the plain loop, and the optimizer itself at the task's end."""

import lightning.fabric
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import tmln
from tmln.integrations.memory import join_batches, unwrapped
from tmln.streams import make_stream


def main(epochs: int = 5) -> list[float]:
    torch.manual_seed(0)
    stream, memory = make_stream("split-digits"), tmln.Reservoir(capacity=500)
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    )
    fabric = lightning.fabric.Fabric(accelerator="cpu", devices=1)
    model, optimizer = fabric.setup(network, tmln.TMLN(network.parameters(), lr=0.01))
    for task in stream:
        data = TensorDataset(stream.prepare(task.train.x), task.train.y)
        for _ in range(epochs):
            for batch in fabric.setup_dataloaders(DataLoader(data, batch_size=32, shuffle=True)):
                x, y = join_batches(batch, memory.sample(len(batch[0]))) if memory else batch
                optimizer.zero_grad()
                fabric.backward(F.cross_entropy(model(x), y))
                optimizer.step()
        memory.add(list(data.tensors))
        unwrapped(optimizer).consolidate(tmln.diagonal_fisher(network, memory.batches(128)))
    found = [float((network(stream.prepare(t.x)).argmax(1) == t.y).float().mean()) for t in stream.tests]
    print("accuracy on each task after the last:", ", ".join(f"{100 * value:.0f}%" for value in found))
    return found


if __name__ == "__main__":
    main()
