"""The same classes from another camera, by the command line: learned, judged by both cameras, exported."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from tmln.cli import app
from tmln.deploy.state_file import open_learner

KINDS = {"bars": (1, 0), "checks": (1, 1), "stripes": (0, 1)}  # along which sides the pattern goes
CAMERAS = {"old": ((40, 40, 40), (170, 170, 170)), "new": ((150, 110, 60), (60, 20, 10))}  # ground and pattern


def picture(name: str, camera: str, noise: np.random.RandomState, side: int = 24) -> Image.Image:
    """A made one; yours come from a camera."""
    rows, columns = KINDS[name]
    place = np.arange(side) // 3
    lit = (rows * place[:, None] + columns * place[None] + noise.randint(2)) % 2
    ground, pattern = (np.array(colour) for colour in CAMERAS[camera])
    pixels = np.where(lit[:, :, None] == 1, pattern, ground) + noise.randint(-25, 26, (side, side, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def shots(folder: Path, camera: str, count: int = 40) -> Path:
    """A folder for each class."""
    noise = np.random.RandomState(len(camera) + count)
    for name in KINDS:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            picture(name, camera, noise).save(folder / name / f"{number}.png")
    return folder


def tmln(*words: object) -> None:
    """What you would type."""
    print("$ tmln", *words)
    app([str(word) for word in words], standalone_mode=False)
    print()


def main() -> list[float]:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        state = root / "shop.tmln"
        tmln("learn", "--state", state, "--data", shots(root / "old camera", "old"), "--epochs", 15)
        tmln("learn", "--state", state, "--data", shots(root / "new camera", "new"), "--epochs", 15)
        tmln("evaluate", "--state", state, "--data", shots(root / "test", "new", 5))
        tmln("predict", "--state", state, root / "test" / "bars", "--top", 2)
        tmln("export", "--state", state, "-o", root / "labels.json")
        assert json.loads((root / "labels.json").read_text())["classes"] == sorted(KINDS)
        return [after for _, after in open_learner(state).retention.tasks().values()]


if __name__ == "__main__":
    main()
