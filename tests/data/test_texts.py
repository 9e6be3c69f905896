"""Texts on disk: tables, CLINC150, Banking77, O-LoRA's domains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data import made
from tmln.data import DATA, BadData, DataError, read_data
from tmln.data.registry import find
from tmln.data.texts import DOMAINS, ORDERS, Texts, read_domains, read_table

NOTHING_BAD = BadData("texts", skip=False)


def read(name: str, root: Path) -> Texts:
    found = read_data(name, NOTHING_BAD, root)
    assert isinstance(found, Texts)
    return found


def test_a_table_is_read_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "intents.csv"
    path.write_bytes('\ufeffid,Text,LABEL\r\n1,"Is it, ""now""?", time \r\n\r\n2,"two\nlines",break\r\n'.encode())
    assert read_table(path) == (['Is it, "now"?', "two\nlines"], ["time", "break"])
    path.write_text("sentence\nhello\n")
    assert read_table(path) == (["hello"], None)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "begins with the line text,label"),
        (b"text,label\n", "and 0 follow"),
        (b"image,label\na.png,cat\n", "its first line is 'image,label'"),
        (b"text,label\na,b\nc\n", "text 2 has 1 columns, not 2"),
        (b"text,label\na,b\n  ,c\n", "text 2 is empty"),
        (b'text,label\n"a,b\n', "cannot be read as CSV"),
        (b"text,label\n\xff\xfe,b\n", "cannot be read as CSV in UTF-8"),
    ],
)
def test_what_is_no_table_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "intents.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=why):
        read_table(path)


def test_intents_of_clinc150_come_domain_by_domain(made_root: Path) -> None:
    found = read("clinc150", made_root)
    assert found.class_names == tuple(f"intent_{number}" for number in range(150))
    assert found.counts() == {"training": 450, "test": 300, "out of scope": 7}
    first = found.texts[0]  # the file begins with the last domain
    assert first == "please do the intent_135 now train 0"
    assert found.labels[0] == 135
    assert found.unknown[0] == "nothing of that 0"
    assert all(f"{found.class_names[label]} now" in text for text, label in zip(found.texts, found.labels, strict=True))


def test_other_json_is_refused(tmp_path: Path) -> None:
    folder = made.make_clinc150(tmp_path)
    (folder / "data_full.json").write_text(json.dumps({"train": [["a"]]}))
    with pytest.raises(DataError, match=r"not data_full\.json and domains\.json of CLINC150"):
        read("clinc150", tmp_path)
    (folder / "data_full.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="cannot be read as JSON"):
        read("clinc150", tmp_path)


def test_categories_of_banking77(made_root: Path) -> None:
    found = read("banking77", made_root)
    assert found.class_names[:2] == ("category_00", "category_01")
    assert found.counts() == {"training": 231, "test": 154}
    assert found.texts[1] == 'my "card", number 0, and 1'


def test_domains_share_labels_and_hold_out_texts_where_a_file_is_missing(made_root: Path) -> None:
    found = read_domains(made_root / "CL_Benchmark", NOTHING_BAD, ("yelp", "amazon", "dbpedia"))
    assert found.class_names == ("negative", "positive", "Album", "Film", "Plant")
    assert found.group_names == ("yelp", "amazon", "dbpedia")
    assert found.counts() == {"yelp": 10, "amazon": 20, "dbpedia": 15}
    assert found.groups is not None
    for group, tests in ((0, 2), (1, 10), (2, 3)):  # one of five texts of each class; the file of tests; one of five
        assert found.is_test[found.groups == group].sum() == tests
    with pytest.raises(DataError, match=r"there is no TC/yahoo/train\.json"):
        read_domains(made_root / "CL_Benchmark", NOTHING_BAD, ("yahoo",))


def test_a_folder_shared_by_data_sets_is_found(tmp_path: Path) -> None:
    place = tmp_path / "text"
    place.mkdir()
    for name in ("clinc150", "banking77"):
        folder = {"clinc150": made.make_clinc150, "banking77": made.make_banking77}[name](tmp_path / "official")
        for file in folder.iterdir():
            file.rename(place / f"{name}_{file.name}")
    assert len(read("clinc150", tmp_path).texts) == 750
    assert len(read("banking77", tmp_path).texts) == 385
    (place / "olora").mkdir()
    for path in (made.make_olora(tmp_path / "official")).rglob("*.json"):
        path.rename(place / "olora" / f"{path.parent.parent.name}_{path.parent.name}_{path.name}")
    assert read("olora", tmp_path).counts() == {"agnews": 20, "amazon": 20, "dbpedia": 15, "yelp": 10}


def test_every_order_names_domains_once() -> None:
    for order in ORDERS.values():
        names = order.split(",")
        assert len(set(names)) == len(names)
        assert set(names) <= set(DOMAINS)
    assert {len(order.split(",")) for order in ORDERS.values()} == {4, 15}


@pytest.mark.parametrize("name", ["clinc150", "banking77", "olora"])
def test_real_texts(name: str, real_root: Path) -> None:
    if find(DATA[name], real_root) is None:
        pytest.skip(f"{name} is not under TMLN_DATA")
    found = read(name, real_root)
    assert all(text.strip() for text in found.texts)
    assert len(found.class_names) == {"clinc150": 150, "banking77": 77, "olora": 23}[name]
