"""The tiny copies of data sets that data's own tests are made with."""

from tests.data.conftest import made_root, real_root, tiny_root

__all__ = ["made_root", "real_root", "tiny_root"]
