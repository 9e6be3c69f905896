"""Devices that are asked for: what is refused, and who Fabric takes this process for."""

from __future__ import annotations

import pytest

from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.launch import Devices
from tmln.methods.recipes import find_recipe


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strategy": "dpp"}, "unknown strategy 'dpp'; did you mean 'ddp'"),
        ({"accelerator": "tpu"}, "unknown accelerator 'tpu'"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Devices(2, **given).check()


def test_a_method_that_needs_whole_weights_is_refused_before_a_process_is_started() -> None:
    Devices(2, "ddp").check_method(find_recipe("ocar"))
    Devices(1, "fsdp").check_method(find_recipe("ocar"))  # one device has all of them
    Devices(2, "fsdp").check_method(find_recipe("tmln"))
    with pytest.raises(ValueError, match="step 'ocar' needs them whole"):
        Devices(2, "fsdp").check_method(find_recipe("ocar"))


def test_a_device_of_its_own_does_not_go_with_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_DEVICE", "cuda:1")
    with pytest.raises(ValueError, match="--device cuda:1 is one device"):
        Devices(2).fabric()


def test_torchrun_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Devices().asked
    said = {"TORCHELASTIC_RUN_ID": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert Devices().asked
    fabric = Devices(accelerator="cpu").fabric()
    assert (fabric.world_size, fabric.global_rank, fabric.local_rank) == (4, 3, 1)
    with pytest.raises(ValueError, match="torchrun started 2 processes here, but --devices is 3"):
        Devices(3, accelerator="cpu").fabric()


def test_slurm_says_which_one_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "2", "SLURM_PROCID": "3"}
    said |= {"SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "7"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    fabric = Devices(2, accelerator="cpu").fabric()
    assert (fabric.world_size, fabric.global_rank, fabric.local_rank) == (4, 3, 1)


def test_precision_is_of_the_configuration_and_old_names_stay() -> None:
    plain = RunConfig(benchmark="split-digits")
    assert run_id(plain.with_setting("precision", "32")) == run_id(plain)
    assert run_id(plain.with_setting("batch_statistics", "global")) == run_id(plain)
    assert "precision" not in plain.resolved()
    half = plain.with_setting("precision", "bf16-mixed")
    assert half.resolved()["precision"] == "bf16-mixed"
    assert run_id(half) != run_id(plain)
    with pytest.raises(ValueError, match="precision"):
        plain.with_setting("precision", "8")
