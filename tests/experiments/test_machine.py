"""What kind of machine it is: limits that are set on its instructions make it another kind."""

from __future__ import annotations

import pytest
import torch

from tmln.experiments.machine import instructions, machine


def test_what_decides_on_the_last_bits_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    plain = instructions()
    assert plain.split()[0] == torch.backends.cpu.get_cpu_capability().split()[0]
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert instructions() == f"{plain} ONEDNN_MAX_CPU_ISA=AVX2"
    assert machine()["instructions"] == instructions()
