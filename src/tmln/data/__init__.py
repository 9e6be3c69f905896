"""Files on disk to arrays, without torch: the table of data sets, downloads, checked readers."""

from tmln.data.dataset import Arrays, DataSet, RemoteFile
from tmln.data.fetch import download_bar
from tmln.data.image_files import ImageFile, ImageFiles
from tmln.data.reading import BadData, BadDataWarning, DataError, data_root
from tmln.data.registry import DATA, check_data, get_data, list_data, locate, read_data

__all__ = [
    "DATA", "Arrays", "BadData", "BadDataWarning", "DataError", "DataSet", "ImageFile", "ImageFiles",
    "RemoteFile", "check_data", "data_root", "download_bar", "get_data", "list_data", "locate", "read_data",
]  # fmt: skip
