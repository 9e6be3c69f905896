"""Where a search is kept: SQLite in a file, or any database that Optuna takes by URL."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

PATIENCE = 10  # seconds for a database server to answer


def open_study(url: str, name: str, directions: Sequence[str]) -> Any:
    """The study of this name, made if need be."""
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise ImportError("tmln tune needs optuna: pip install 'tmln[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    server = url.startswith(("postgres", "mysql", "mariadb"))
    options = {"connect_args": {"connect_timeout": PATIENCE}} if server else {}
    with in_one_line(url):
        try:
            storage = optuna.storages.RDBStorage(url, engine_kwargs=options)
        except ImportError as error:
            driver = getattr(error.__cause__ or error.__context__, "name", None) or "a driver"
            package = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary"}.get(driver, driver)
            raise ImportError(f"the database {_shown(url)} needs {driver}: pip install {package}") from None
        return optuna.create_study(storage=storage, study_name=name, directions=list(directions), load_if_exists=True)


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
