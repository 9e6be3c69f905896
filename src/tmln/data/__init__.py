"""Files on disk become arrays, without torch: what each data set is, where it comes from, how it is read with care."""

from tmln.data.bad_data import BadData, BadDataWarning, DataError
from tmln.data.dataset import Arrays, DataSet, RemoteFile
from tmln.data.fetch import download_bar
from tmln.data.files import data_root
from tmln.data.image_files import ImageFile, ImageFiles
from tmln.data.registry import DATA, check_data, get_data, list_data, locate, read_data

__all__ = [
    "DATA", "Arrays", "BadData", "BadDataWarning", "DataError", "DataSet", "ImageFile", "ImageFiles",
    "RemoteFile", "check_data", "data_root", "download_bar", "get_data", "list_data", "locate", "read_data",
]  # fmt: skip
