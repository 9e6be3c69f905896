"""A command as a person types it, in this process, which has imported torch: what it prints, and its exit code."""

from __future__ import annotations

import io
import logging
import signal
import sys
import threading
import warnings
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess

import pytest

from tmln.cli import main
from tmln.signals import SIGNALS


def typed(*words: str, **env: str) -> CompletedProcess[str]:
    """``tmln words``, errors that become a line included; what it sets for a whole process is put back."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    last = logging.StreamHandler(err)
    last.setLevel(logging.WARNING)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.resetwarnings()
        patched.setattr(sys, "argv", ["tmln", *words])
        patched.setattr(threading, "excepthook", threading.excepthook)
        patched.setattr(logging, "lastResort", last)
        patched.setattr(logging.getLogger(), "handlers", [])
        patched.setenv("TMLN_ALLOW_CODE", "")  # so that what the command makes of it is undone, too
        patched.delenv("TMLN_ALLOW_CODE")
        for name, value in {"COLUMNS": "300", **env}.items():
            patched.setenv(name, value)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return CompletedProcess(["tmln", *words], code, out.getvalue(), err.getvalue())
