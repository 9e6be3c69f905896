"""Where a search is kept: SQLite in a file, or any database that Optuna takes by URL."""

from __future__ import annotations

import importlib
import random
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

PATIENCE = 10  # seconds for a database server to answer
TRIES = 5  # processes that begin together on an empty database make its tables in each other's way


def open_study(url: str, name: str, directions: Sequence[str]) -> Any:
    """The study of this name, made if need be."""
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise ImportError("tmln tune needs optuna: pip install 'tmln[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    server = url.startswith(("postgres", "mysql", "mariadb"))
    # asked before use whether the line still stands: runs take hours, and servers and routers hang up
    options = {"connect_args": {"connect_timeout": PATIENCE}, "pool_pre_ping": True} if server else {}
    with in_one_line(url):
        try:
            storage = _storage(optuna, url, options)
        except ImportError as error:
            driver = getattr(error.__cause__ or error.__context__, "name", None) or "a driver"
            package = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary"}.get(driver, driver)
            raise ImportError(f"the database {_shown(url)} needs {driver}: pip install {package}") from None
        return optuna.create_study(storage=storage, study_name=name, directions=list(directions), load_if_exists=True)


def _storage(optuna: Any, url: str, options: dict[str, Any]) -> Any:
    errors = importlib.import_module("sqlalchemy.exc")
    for left in reversed(range(TRIES)):
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=options)
        except (errors.IntegrityError, errors.ProgrammingError, errors.OperationalError) as error:
            made = isinstance(error, errors.IntegrityError) or "already exists" in str(error)
            if not (made and left):
                raise
            time.sleep(random.random())
    raise AssertionError


@contextmanager
def in_one_line(url: str) -> Iterator[None]:
    """Whatever is wrong with the database is one line, without its password."""
    errors = importlib.import_module("sqlalchemy.exc")
    internal = importlib.import_module("optuna.exceptions").StorageInternalError
    shown = _shown(url)
    try:
        yield
    except errors.ArgumentError:
        raise ValueError(
            f"{shown!r} is no database URL; write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME"
        ) from None
    except (errors.SQLAlchemyError, internal) as error:
        cause = error.__cause__ if isinstance(error, internal) else error
        text = str(getattr(cause, "orig", None) or cause).strip().splitlines()[0]
        raise ValueError(f"the database {shown} cannot be reached or written: {text}") from None


def _shown(url: str) -> str:
    return re.sub(r"(//[^:/@]*):[^@]*@", r"\1:...@", url)
