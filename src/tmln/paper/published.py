"""The numbers that the paper prints (Aguilar et al. 2026): mean and deviation, in percent."""

from __future__ import annotations

from dataclasses import dataclass

METRICS = ("acc", "fm", "int")


@dataclass(frozen=True)
class Printed:
    """A printed number with its deviation."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.std:.2f}"


Cells = dict[str, Printed]  # metric -> printed number; none for a dash


def _cells(numbers: list[str]) -> Cells:
    pairs = [numbers[k : k + 2] for k in range(0, len(numbers), 2)]
    return {m: Printed(float(a), float(b)) for m, (a, b) in zip(METRICS, pairs, strict=False) if a != "-"}


def _rows(block: str) -> dict[str, Cells]:
    lines = [line.split() for line in block.strip().splitlines()]
    return {name: _cells(numbers) for name, *numbers in lines}


def _grid(block: str) -> dict[str, dict[float, Cells]]:
    found: dict[str, dict[float, Cells]] = {}
    for name, value, *numbers in (line.split() for line in block.strip().splitlines()):
        found.setdefault(name, {})[float(value)] = _cells(numbers)
    return found


# Table 1: method, then ACC, FM and INT, each with its deviation
TABLE1: dict[str, dict[str, Cells]] = {
    "split-cifar100": _rows("""
        joint  94.39 0.14   -     -      -     -
        naive   7.78 0.40  66.53 2.40   21.67 2.55
        er      9.23 0.19  73.42 3.37   14.99 3.24
        ewc++   6.01 0.06  58.18 0.59   33.64 0.39
        rwalk  12.12 1.35  70.01 1.46   15.04 0.38
        upgd    8.50 1.32  53.12 1.91   34.77 3.38
        ocar    3.06 0.38  30.80 1.98   62.60 2.31
        tmln   17.63 0.34  48.29 3.12   29.11 2.74
    """),
    "core50": _rows("""
        joint  80.03 0.00   -     -      -     -
        naive  63.72 0.57  41.13 0.69   23.88 0.00
        er     77.36 1.50  23.89 1.68    1.57 0.11
        ewc++  76.94 0.52  16.44 0.76    9.51 0.32
        rwalk  67.76 0.68   4.25 0.96   32.32 0.20
        upgd   67.38 0.92  33.57 0.93    1.31 0.24
        ocar   41.15 0.55  10.18 0.65   50.22 0.30
        tmln   77.94 1.52  19.98 1.17    3.64 0.72
    """),
}

# Table 2, on Split CIFAR-10; "Standard SGD" is naive
TABLE2: dict[str, Cells] = _rows("""
    naive           19.04 0.15  89.89 1.26   0.00 0.48
    tmln-static     46.97 2.56  41.39 4.30  14.56 4.14
    tmln-euclidean  50.35 1.00  39.48 1.85  12.27 0.78
    tmln            51.55 0.56  40.32 3.67   9.94 3.66
""")

# Table 3, for Split CIFAR-100: method -> our setting -> the paper's symbol and value
TABLE3: dict[str, dict[str, tuple[str, float]]] = {
    "tmln": {"step.damping": ("lambda", 0.1), "step.trajectory": ("gamma", 1.0)},
    "er": {"replay.capacity": ("B", 500)},
    "ewc++": {"penalty.strength": ("lambda", 10000)},
    "rwalk": {"penalty.strength": ("lambda", 10), "penalty.alpha": ("alpha", 0.8), "penalty.interval": ("Delta t", 50)},
    "upgd": {"step.beta_utility": ("beta_utility", 0.99), "step.sigma": ("sigma", 0.1)},
    "ocar": {"step.damping": ("tau", 0.1)},
}
# what the text of section 4 says beside it: tasks (not said of Split CIFAR-10), epochs, network and
# runs
PROTOCOL: dict[str, tuple[int | None, int, str, int]] = {
    "split-cifar100": (10, 50, "simplified ResNet18", 5),
    "split-cifar10": (None, 20, "simplified ResNet18", 5),
    "core50": (8, 20, "MobileNetV2", 5),
}
MEMORY = 500  # samples, for ER, RWalk, OCAR and TMLN


@dataclass(frozen=True)
class PrintedCost:
    """A row of Table 4: one Tesla P100, batches of 128, Split CIFAR-100."""

    auxiliary: str  # in vectors of the size of the parameters (N), and Kronecker factors (K)
    peak_gb: float
    relative_time: float


TABLE4: dict[str, PrintedCost] = {
    "naive": PrintedCost("0", 1.04, 1.00),
    "er": PrintedCost("images, 6 MB", 1.94, 1.04),
    "ewc++": PrintedCost("N", 1.16, 1.34),
    "ocar": PrintedCost("K", 3.55, 16.86),
    "tmln": PrintedCost("2N", 2.07, 1.07),
}

# Table 5: the loss of task 1, then of task 2, each at the beginning, after task 1 and after task 2
TABLE5: dict[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "naive": ((2.9338, 1.3871, 24.5702), (11.1482, 12.1247, 6.3916)),
    "er": ((2.3030, 0.3775, 22.5264), (10.4751, 13.3639, 5.2835)),
    "tmln": ((2.4773, 1.1380, 9.0663), (8.7170, 10.6379, 1.0983)),
}

# Table 6, on Split CIFAR-10: method, the setting that varies, then as in Table 1
TABLE6_JOINT = Printed(75.98, 0.56)
TABLE6: dict[str, dict[float, Cells]] = _grid("""
    naive  0.001   19.04 0.25  92.15  1.94  -1.55  1.64
    naive  0.005   19.18 0.05  91.28  0.80  -0.74  0.89
    naive  0.01    19.04 0.15  89.89  1.26   0.00  0.48
    naive  0.05    16.78 3.39  86.77  1.70   5.09  4.93
    naive  0.1     12.14 3.70  84.00  0.69  13.92  4.13
    er     100     16.32 0.82  67.60  8.34  24.49  9.32
    er     200     19.39 0.18  82.03  1.20   7.56  1.72
    er     500     18.90 2.02  85.73  2.02   5.08  3.33
    er     1000    18.20 1.95  80.48  2.90  10.12  2.94
    er     2000    28.35 4.68  74.15  4.84   4.44  1.99
    ewc++  100     18.63 0.30  89.76  0.52   1.83  0.47
    ewc++  500     18.41 0.11  88.12  0.76   3.78  0.89
    ewc++  1000    17.45 0.20  83.31  1.27   9.54  1.03
    ewc++  5000    16.39 0.10  76.15  0.31  17.88  0.41
    ewc++  10000   15.66 0.12  73.38  0.94  21.59  0.81
    rwalk  100     39.46 3.25  61.56  5.08   3.88  1.37
    rwalk  500     38.75 2.50  61.09  3.55   5.31  1.53
    rwalk  1000    34.94 1.51  65.65  2.92   5.47  2.08
    rwalk  5000    32.42 1.61  61.22  2.15  13.00  0.66
    rwalk  10000   30.28 2.07  58.41  2.70  18.26  0.76
    upgd   0.9     15.21 1.97  81.72  1.77  10.13  4.05
    upgd   0.95    18.04 1.08  85.83  3.67   1.48  0.85
    upgd   0.99    18.21 0.55  87.94  2.29   0.47  1.50
    upgd   0.999   18.68 0.37  88.28  1.01   0.63  1.30
    upgd   0.9999  17.99 1.27  88.27  1.92   0.95  1.67
    ocar   0.0001  14.34 0.00  73.35  0.00  20.73  0.00
    ocar   0.001   13.45 0.00  68.49  0.00  26.50  0.00
    ocar   0.01    13.69 0.02  62.28  0.05  26.28  0.04
    ocar   1       14.71 0.00  72.95  0.00  20.75  0.00
    ocar   10      13.85 0.00  62.26  0.00  30.20  0.00
    tmln   0.01    47.11 0.93  36.34 10.67  19.49 11.18
    tmln   0.1     46.49 1.08  46.32  4.29   9.70  3.05
    tmln   1       51.55 1.00  40.32  3.67   9.94  3.66
    tmln   10      48.44 1.07  43.88  2.32   9.13  2.36
    tmln   100     40.91 2.69  53.18  4.09   7.33  1.96
""")
