"""What each scale runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tmln.experiments.config import RunConfig
from tmln.paper.items import ITEMS
from tmln.paper.published import PROTOCOL
from tmln.paper.scales import SCALES, TITLES, find_scale, missing_data, with_seeds
from tmln.streams import BENCHMARKS


@pytest.mark.parametrize("name", SCALES)
def test_every_run_of_a_scale_is_a_run(name: str) -> None:
    scale = SCALES[name]
    assert scale.setups.keys() == TITLES.keys()
    for item in ITEMS.values():
        for config in [*item.runs(scale), *(one.config for one in item.recordings(scale))]:
            assert config.benchmark in BENCHMARKS
            config.resolved()


def test_smoke_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_DATA", str(tmp_path))
    stands = SCALES["smoke"].setups.values()
    assert [stand.missing for stand in stands] == [None, None, None]
    assert all("not comparable" in stand.remark for stand in stands)
    assert missing_data("core50") == "core50"
    assert missing_data("split-cifar10") == "cifar10"


def test_full_is_the_papers_protocol() -> None:
    scale = SCALES["full"]
    for benchmark, (tasks, epochs, _, seeds) in PROTOCOL.items():
        full = scale.setup(benchmark).config("tmln").resolved()
        assert (full["epochs"], full["benchmark"], scale.seeds) == (epochs, benchmark, seeds)
        assert full["benchmark_options"]["tasks"] == (tasks or 5)
        assert full == RunConfig(benchmark=benchmark, method="tmln").resolved()
        assert "paper's protocol" in scale.setup(benchmark).remark


def test_cpu_is_the_real_images_and_says_that_it_is_not_the_protocol() -> None:
    stand = SCALES["cpu"].setup("split-cifar100")
    assert stand.benchmark == "split-cifar100"
    full = stand.config("er").resolved()
    assert (full["model"], full["epochs"], full["settings"]["replay.capacity"]) == ("convnet", 5, 500)
    assert "replay.capacity" not in stand.config("naive").resolved()["settings"]
    assert "not the paper's protocol" in stand.remark
    assert SCALES["cpu"].setup("core50").benchmark == "pacs"


def test_seeds_are_for_everything() -> None:
    scale = with_seeds(SCALES["smoke"], 7)
    assert (scale.seeds, scale.grid_seeds) == (7, 7)
    assert with_seeds(SCALES["smoke"], None) is SCALES["smoke"]


def test_an_unknown_scale_is_answered() -> None:
    with pytest.raises(ValueError, match="did you mean 'smoke'"):
        find_scale("smok")


def test_ewcpp_takes_exact_steps_at_the_papers_strength() -> None:
    settings = SCALES["smoke"].setup("core50").config("ewc++").resolved()["settings"]
    assert (settings["penalty.strength"], settings["penalty.proximal"]) == (10000.0, True)
