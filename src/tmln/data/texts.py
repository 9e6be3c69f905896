"""Labelled texts: tables of one's own, CLINC150, Banking77, and the domains of O-LoRA."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmln.data.dataset import DataSet, RemoteFile
from tmln.data.image_files import count_held_out, pick_evenly
from tmln.data.reading import BadData, DataError, read_bounded

LIMIT = 1 << 30  # bytes of a file
INPUTS, LABELS = ("text", "sentence", "utterance"), ("label", "category", "intent")  # names of columns
HELD_OUT = 0.2  # of each class in a domain that has one file only


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts, each with a class, a role and a group, as images in :class:`~tmln.data.Arrays`.

    ``unknown`` are texts for tests that are of no class.
    """

    texts: Sequence[str]
    labels: NDArray[np.int64]
    is_test: NDArray[np.bool_]
    class_names: tuple[str, ...]
    groups: NDArray[np.int64] | None = None
    group_names: tuple[str, ...] = ()
    unknown: Sequence[str] = ()

    def counts(self) -> dict[str, int]:
        """Return the number of texts in each group, or of training, test and unknown texts."""
        if self.groups is not None:
            return dict(Counter(self.group_names[group] for group in self.groups.tolist()))
        roles = ["test" if test else "training" for test in self.is_test.tolist()]
        return dict(Counter([*roles, *["out of scope"] * len(self.unknown)]))


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    content = read_bounded(path, LIMIT)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error})") from error


def read_table(path: Path) -> tuple[list[str], list[str] | None]:
    """Return the texts of a CSV file with a header, and their labels where it has a column of them.

    The column of texts is called ``text``, ``sentence`` or ``utterance``, that of labels ``label``,
    ``category`` or ``intent``.
    """
    content = read_bounded(path, LIMIT)
    try:
        rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as CSV in UTF-8 ({error})") from error
    header = [name.strip().lower() for name in rows[0]] if rows else []
    text, label = (next((header.index(n) for n in names if n in header), None) for names in (INPUTS, LABELS))
    if text is None or len(rows) < 2:
        raise DataError(
            f"{path}: a table of texts begins with the line text,label, and has a line for each text; its first line "
            f"is {','.join(header)!r}, and {max(len(rows) - 1, 0)} follow"
        )
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(header):
            raise DataError(f"{path}: text {number} has {len(row)} columns, not {len(header)}: put it in quotes")
        if not row[text].strip():
            raise DataError(f"{path}: text {number} is empty: leave it out")
    return [row[text] for row in rows[1:]], None if label is None else [row[label].strip() for row in rows[1:]]


def number_classes(labels: Sequence[str], names: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of every label in ``names``."""
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[label] for label in labels], np.int64)


def find_file(folder: Path, name: str, prefix: str) -> Path:
    """Return a file by its official name or, where data sets share a folder, with a prefix."""
    return folder / name if (folder / name).exists() else folder / f"{prefix}{name}"


def read_clinc150(folder: Path, bad: BadData) -> Texts:
    """Read the full version; the intents of a domain follow one another, domain by domain.

    The official validation texts are left out. The test set's out-of-scope texts are ``unknown``.
    """
    content, domains = (read_json(find_file(folder, f"{name}.json", "clinc150_")) for name in ("data_full", "domains"))
    try:
        names = tuple(intent for intents in domains.values() for intent in intents)
        parts = [[(str(text), intent) for text, intent in content[part]] for part in ("train", "test")]
        labels = number_classes([intent for part in parts for _, intent in part], names)
        unknown = [str(text) for text, _ in content["oos_test"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder}: not data_full.json and domains.json of CLINC150 ({error!r})") from error
    is_test = np.repeat([False, True], [len(part) for part in parts])
    return Texts([text for part in parts for text, _ in part], labels, is_test, names, unknown=unknown)


def read_banking77(folder: Path, bad: BadData) -> Texts:
    """Read train.csv and test.csv; classes are in the order of their names."""
    found = [read_table(find_file(folder, f"{name}.csv", "banking77_")) for name in ("train", "test")]
    labels = [label for _, part in found for label in part or ()]
    is_test = np.repeat([False, True], [len(texts) for texts, _ in found])
    if len(labels) != len(is_test):
        raise DataError(f"{folder}: train.csv and test.csv of Banking77 have the columns text,category")
    names = tuple(sorted(set(labels)))
    return Texts([text for texts, _ in found for text in texts], number_classes(labels, names), is_test, names)


# Folders of O-LoRA's benchmark, and its orders 1 to 6 (Wang et al. 2023, appendix).
DOMAINS = {
    "agnews": "TC/agnews", "amazon": "SC/amazon", "boolqa": "BoolQA/BoolQA", "cb": "NLI/CB", "copa": "COPA/COPA",
    "dbpedia": "TC/dbpedia", "imdb": "SC/IMDB", "mnli": "NLI/MNLI", "multirc": "MultiRC/MultiRC", "qqp": "QQP/QQP",
    "rte": "NLI/RTE", "sst2": "SC/SST-2", "wic": "WiC/WiC", "yahoo": "TC/yahoo", "yelp": "SC/yelp",
}  # fmt: skip
ORDERS = {
    "1": "dbpedia,amazon,yahoo,agnews",
    "2": "dbpedia,amazon,agnews,yahoo",
    "3": "yahoo,amazon,agnews,dbpedia",
    "4": "mnli,cb,wic,copa,qqp,boolqa,rte,imdb,yelp,amazon,sst2,dbpedia,agnews,multirc,yahoo",
    "5": "multirc,boolqa,wic,mnli,cb,copa,qqp,rte,imdb,sst2,dbpedia,agnews,yelp,amazon,yahoo",
    "6": "yelp,amazon,mnli,cb,copa,qqp,rte,imdb,sst2,dbpedia,agnews,yahoo,multirc,boolqa,wic",
}
AT_HAND = ("agnews", "amazon", "dbpedia", "yelp")
UNLABELLED = "-"  # the label of some of MNLI's texts


def read_domains(folder: Path, bad: BadData, names: Sequence[str] = AT_HAND) -> Texts:
    """Read domains of O-LoRA's benchmark, which are the groups.

    Of a domain with one of train.json and test.json, a share of each class is for tests, evenly
    spaced. Equal labels of several domains, as Amazon's and Yelp's, are one class.
    """
    texts: list[str] = []
    labels: list[str] = []
    tests: list[bool] = []
    classes: dict[str, None] = {}
    sizes = []
    for name in names:
        parts = {role: _read_domain(folder, name, role) for role in ("train", "test")}
        found = [(text, label, role == "test") for role, part in parts.items() for text, label in part or ()]
        if not found:
            raise DataError(f"{folder}: there is no {DOMAINS[name]}/train.json: name other domains, or copy it there")
        if None in parts.values():
            held = _choose_tests([label for _, label, _ in found])
            found = [(text, label, row in held) for row, (text, label, _) in enumerate(found)]
        sizes.append(len(found))
        texts += [text for text, _, _ in found]
        labels += [label for _, label, _ in found]
        tests += [test for _, _, test in found]
        classes.update(dict.fromkeys(sorted({label for _, label, _ in found})))
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return Texts(texts, number_classes(labels, tuple(classes)), np.array(tests), tuple(classes), groups, tuple(names))


def _read_domain(folder: Path, name: str, role: str) -> list[tuple[str, str]] | None:
    """Return texts and labels of a domain's file; None if it is not there."""
    path = folder / DOMAINS[name] / f"{role}.json"
    path = path if path.exists() else folder / f"{DOMAINS[name].replace('/', '_')}_{role}.json"
    if not path.exists():
        return None
    try:
        rows = [(str(row["sentence"]), str(row["label"])) for row in read_json(path)]
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: not a list of sentences with labels ({error!r})") from error
    return [(text, label) for text, label in rows if label != UNLABELLED]


def _choose_tests(labels: Sequence[str]) -> set[int]:
    """Return rows for tests, evenly spaced among those of each class."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, label in enumerate(labels):
        rows[label].append(row)
    return {
        mine[place] for mine in rows.values() for place in pick_evenly(len(mine), count_held_out(len(mine), HELD_OUT))
    }


def _remote(address: str, size: int, md5: str, folder: str) -> RemoteFile:
    return RemoteFile(address.rpartition("/")[2], (f"https://raw.githubusercontent.com/{address}",), size, md5, folder)


_CLINC, _BANKING = "clinc/oos-eval/master/data", "PolyAI-LDN/task-specific-datasets/master/banking_data"

CLINC150 = DataSet(
    "CLINC150",
    "19,500 requests to an assistant, 150 intents in 10 domains, and 1,000 of none",
    read_clinc150,
    {"training": 15_000, "test": 4_500, "out of scope": 1_000},
    (
        _remote(f"{_CLINC}/data_full.json", 2495390, "30c29dc6ab78edf3b5dfa640be204cde", "clinc150"),
        _remote(f"{_CLINC}/domains.json", 3818, "9beee9d0f36e07e914c1e3a626bdcb4a", "clinc150"),
    ),
    {"clinc150": ("data_full.json", "domains.json"), "text": ("clinc150_data_full.json", "clinc150_domains.json")},
    unit="texts",
)
BANKING77 = DataSet(
    "Banking77",
    "13,083 questions to a bank, 77 intents",
    read_banking77,
    {"training": 10_003, "test": 3_080},
    (
        _remote(f"{_BANKING}/train.csv", 839073, "cec64185f4197906aabce0781ef9a19b", "banking77"),
        _remote(f"{_BANKING}/test.csv", 239961, "8dcd9dc31b686c75ec1f24bf23c140cb", "banking77"),
    ),
    {"banking77": ("train.csv", "test.csv"), "text": ("banking77_train.csv", "banking77_test.csv")},
    unit="texts",
)
OLORA = DataSet(
    "O-LoRA's texts",
    "15 classification tasks on English texts, among them AG News, Amazon, DBpedia and Yelp",
    read_domains,
    {},
    layouts={
        **dict.fromkeys(("CL_Benchmark", "O-LoRA/CL_Benchmark"), ("SC/amazon/train.json", "TC/agnews/train.json")),
        "text/olora": ("SC_amazon_train.json", "TC_agnews_train.json"),
    },
    home="https://github.com/cmnfriend/O-LoRA (its folder CL_Benchmark)",
    unit="texts",
)
