"""Any object with a length and items as a data set: lists, Hugging Face data sets, LMDB, arrays, tables."""
from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import operator
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import causes
from .arguments import shown, whole
from .errors import DataError, UsageError
from .recipes import Source

_MODES = {"L": (1, 8), "RGB": (3, 8), "I;16": (1, 16), "F": (1, 32)}
"""Channels and bits of Pillow's modes that need no conversion."""
_DEEP = ("I", "F")  # how its modes of more than 8 bits begin
_ARRAYS = "uint8, uint16 or float32 of height x width (x channels)"
_FORMS = f"give encoded bytes, a path, a PIL image or an array: {_ARRAYS}"

Part = str | int | Callable[[Any], Any]
_Chunks = tuple[str, list[Any]]
"""A column's name, and its arrays as Arrow's C data interface hands them over."""
Path = str | os.PathLike[str]


class Fed(Source):
    """Base of the data sets in Python, which a recipe cannot name."""

    def overrides(self) -> list[str]:
        """Returns nothing."""
        return []

    def feed(self) -> Feed:
        """Returns what a loader asks for samples."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, eq=False)
class Samples(Fed):
    """Any object with __len__ and __getitem__, which is asked for one item at a time.

    An item has an image: encoded bytes, a path, a PIL image, or an array of height x width (x channels). A PIL image is
    taken as it is; encoded bytes and files are decoded by the workers and turned as EXIF says. Arrays of uint16 and of
    float32, those of other than 1 or 3 channels, and PIL images of the modes I;16 and F need decode.depth=16 or float.

    Args:
        source: the object. Of a Hugging Face Dataset the undecoded bytes are taken, and its formats and transforms
            left out; a pandas DataFrame is read by rows. A pyarrow.Table and a Dataset are read without Python.
        image: an item's part that is the image: its key or index, or a function of the item. By default the first part
            of an item that is a tuple or a list, and any other item itself; of a Dataset the only column of type Image.
        label: likewise the class, a whole number from 0 on. By default the second part, if `image` is left out too; of
            a Dataset the only column of type ClassLabel; otherwise every label is 0. A Table takes names of columns.

    Raises:
        UsageError: the source has no length or no items, or lacks such a part.
    """

    source: Any
    image: Part | None = None
    label: Part | None = None

    def feed(self) -> Feed:
        """Returns what a loader asks for samples."""
        source = self.source
        for wanted in ("__len__", "__getitem__"):
            if not hasattr(source, wanted):
                raise UsageError(f"mr.Samples({shown(source)}): a source needs __len__ and __getitem__",
                                 "a data set that can only be iterated over has no samples by index")
        if isinstance(source, Mapping):
            raise UsageError(f"mr.Samples of a dictionary with the keys {shown(list(source))}",
                             "choose a split, as in mr.Samples(data['train']), or give list(data.values())")
        for name in ("image", "label"):
            part = getattr(self, name)
            if part is not None and (isinstance(part, bool) or not (isinstance(part, (str, int)) or callable(part))):
                raise UsageError(f"{name}={shown(part)} is neither a key nor a function", f"write {name}='KEY'")
        datasets = sys.modules.get("datasets")
        if datasets is not None and isinstance(source, datasets.Dataset):
            return _hugging_face(source, self.image, self.label, datasets)
        pyarrow = sys.modules.get("pyarrow")
        if pyarrow is not None and isinstance(source, pyarrow.Table):
            return _arrow(source, self.image, self.label)
        return Feed(source, getattr(source, "iloc", source), self.image, self.label, [])


class Feed:
    """The samples of a source as the extension module asks for them.

    Attributes:
        title: what messages call the source.
        count: its length.
        classes: names of its classes; none: unknown.
        columns: name and Arrow arrays of images, labels (or None) and row numbers (or None); None: they are called for.
        group_rows: the rows of each group that group() loads; none: fetch() is called.
    """

    columns: tuple[_Chunks, _Chunks | None, _Chunks | None] | None = None
    group_rows: Sequence[int] = ()

    def __init__(self, source: Any, items: Any, image: Part | None, label: Part | None, classes: list[str]) -> None:
        self._source, self._items = source, items
        self._image, self._label = _getter(image), _getter(label)
        self.title = type(source).__name__
        self.classes = classes
        try:
            self.count = len(source)
        except Exception as error:  # whatever the object raises
            raise UsageError(f"mr.Samples: the length of {self.title}: {type(error).__name__}: {error}") from error
        if self.count == 0:
            raise UsageError(f"mr.Samples: {self.title} has no samples")

    def require_length(self) -> None:
        """Raises UsageError if the source has another length than when the loader was made."""
        if changed := self._changed_length():
            raise UsageError(*changed.split("\n"))

    def fetch(self, index: int) -> tuple[Any, int, int, int, int, int] | str:
        """Returns (data, height, width, channels, bits, label) of a sample, or why there is none and what to do.

        Height is 0 for encoded bytes and -1 for a path, as bytes; `data` is otherwise an array, or bytes of pixels, of
        8 or 16 bits or of 32 for floats.
        """
        try:
            item = self._items[index]
            return *_picture(self._image_of(item)), self._label_of(item)
        except BaseException as error:
            return self._failure(error)

    def label(self, index: int) -> int | str:
        """Returns a sample's label, or why there is none and what to do."""
        try:
            return self._label_of(self._items[index])
        except BaseException as error:
            return self._failure(error)

    def group(self, index: int) -> tuple[_Chunks, _Chunks | None] | str:
        """Returns the images and labels of a row group, or why there are none and what to do."""
        raise NotImplementedError

    def empty_group(self) -> tuple[_Chunks, _Chunks | None]:
        """Returns images and labels of a group without rows, which show the columns' types."""
        raise NotImplementedError

    @staticmethod
    def copy(memory: memoryview, array: Any) -> None:
        """Copies an array's pixels."""
        import numpy as np

        np.copyto(np.frombuffer(memory, array.dtype).reshape(array.shape), array)

    def _image_of(self, item: Any) -> Any:
        if self._image is not None:
            return self._image(item)
        return item[0] if isinstance(item, (tuple, list)) and item else item

    def _label_of(self, item: Any) -> int:
        if self._label is not None:
            label = self._label(item)
        elif self._image is None and isinstance(item, (tuple, list)) and len(item) > 1:
            label = item[1]
        else:
            return 0
        return whole("label", label, -2**63, hint="give the number of its class")

    def _changed_length(self) -> str:
        """Returns that the source has another length now, and what to do; empty: it has not."""
        now = len(self._source)
        if now == self.count:
            return ""
        return f"{self.title} has {now} samples, and had {self.count} when the loader was made\nmake a new loader"

    def _failure(self, error: BaseException) -> str:
        """Returns what a sample's error says. Passes Ctrl-C on."""
        if isinstance(error, KeyboardInterrupt) and threading.get_ident() == threading.main_thread().ident:
            raise error
        if isinstance(error, (UsageError, DataError)):
            return f"{error.what}\n{error.hint}"
        if isinstance(error, IndexError) and (changed := self._changed_length()):
            return changed
        return causes.failure("", error, "repair the source")


def _getter(part: Part | None) -> Callable[[Any], Any] | None:
    return part if part is None or callable(part) else operator.itemgetter(part)


def _picture(image: Any) -> tuple[Any, int, int, int, int]:
    """Returns data, height, width, channels and bits of an image in any of its forms; see Feed.fetch()."""
    if isinstance(image, bytes):
        return image, 0, 0, 0, 0
    if isinstance(image, Mapping) and "bytes" in image:  # as Hugging Face stores an image
        return _picture(image["bytes"] if image["bytes"] is not None else image.get("path"))
    if isinstance(image, (str, os.PathLike)):
        return os.fsencode(image), -1, 0, 0, 0
    if isinstance(image, (bytearray, memoryview)):
        return bytes(image), 0, 0, 0, 0
    numpy, pillow = sys.modules.get("numpy"), sys.modules.get("PIL.Image")
    if numpy is not None and isinstance(image, numpy.ndarray):
        return _pixels(image, numpy)
    if pillow is not None and isinstance(image, pillow.Image):
        if image.mode not in _MODES and image.mode.startswith(_DEEP):
            raise UsageError(f"the image is a PIL image of mode {image.mode}", "convert it to I;16 or F")
        if image.mode not in _MODES:
            image = image.convert("RGB")
        return image.tobytes(), image.height, image.width, *_MODES[image.mode]
    raise UsageError(f"the image is an object of type {type(image).__name__}", _FORMS)


def _pixels(array: Any, numpy: Any) -> tuple[Any, int, int, int, int]:
    """Returns data, height, width, channels and bits of an array: pixels, or encoded bytes if it has one axis."""
    if array.dtype == numpy.uint8 and array.ndim == 1:
        return array.tobytes(), 0, 0, 0, 0
    if array.dtype in (numpy.uint8, numpy.uint16, numpy.float32):
        shape = (*array.shape, 1) if array.ndim == 2 else array.shape
        if len(shape) == 3 and min(shape) > 0:
            return array, *shape, 8 * array.dtype.itemsize
    raise UsageError(f"the image is an array of {array.dtype} with the shape {array.shape}", f"give {_ARRAYS}")


class _Columns(Feed):
    """Columns of an Arrow table, from which the extension module reads without Python."""

    def __init__(self, source: Any, table: Any, image: Any, label: Any, classes: list[str], rows: Any) -> None:
        super().__init__(source, source, image, label, classes)
        self.columns = (_chunks(image, table.column(image)),
                        None if label is None else _chunks(label, table.column(label)),
                        None if rows is None else _chunks("of row numbers", rows))


@dataclasses.dataclass(frozen=True, eq=False)
class Parquet(Fed):
    """Images and labels in columns of Parquet files, read by row groups.

    pyarrow decompresses row groups ahead of the workers, which read them without Python. Groups are in memory for as
    long as the order of samples needs them, which is about two windows of loader.shuffle=window:N; that or
    loader.shuffle=none has to be chosen. Needs pyarrow.

    Args:
        files: a file, a folder, of which all *.parquet are read in the order of their names, or a list of files.
        image: the column of images: encoded bytes, paths, or structs of `bytes` and `path`, as Hugging Face has them.
        label: the column of classes, whole numbers from 0 on; without one, every label is 0.

    Raises:
        UsageError: there are no such files or columns.
        DataError: a file is damaged.
    """

    files: Path | Sequence[Path]
    image: str
    label: str | None = None

    def feed(self) -> Feed:
        """Returns what a loader asks for samples."""
        if importlib.util.find_spec("pyarrow") is None:
            raise UsageError("mr.Parquet: pyarrow is not installed", "pip install pyarrow")
        return _RowGroups(_parquet_files(self.files), self.image, self.label)


def _parquet_files(files: Path | Sequence[Path]) -> list[str]:
    """Returns the files that are meant."""
    if not isinstance(files, (str, os.PathLike)):
        found = [os.fspath(file) for file in files]
    elif os.path.isdir(files):
        found = sorted(os.fspath(file) for file in pathlib.Path(files).glob("*.parquet"))
    else:
        found = [os.fspath(files)]
    if not found:
        raise UsageError(f"mr.Parquet({shown(files)}): no files", "name a file, or a folder with *.parquet")
    return found


class _RowGroups(Feed):
    """Row groups of Parquet files."""

    def __init__(self, files: list[str], image: str, label: str | None) -> None:
        self._columns = [image, *([] if label is None else [label])]
        self._types: list[Any] = []  # of the columns
        self._groups: list[tuple[str, Any, int]] = []  # file, its metadata, number in it
        rows: list[int] = []
        for file in files:
            metadata = self._metadata(file)
            for number in range(metadata.num_row_groups):
                if count := metadata.row_group(number).num_rows:
                    self._groups.append((file, metadata, number))
                    rows.append(count)
        if not rows:
            raise UsageError(f"mr.Parquet: {files[0]} has no rows" if len(files) == 1 else "mr.Parquet: no rows")
        super().__init__(range(sum(rows)), None, None, None, [])
        self.title = files[0] if len(files) == 1 else f"{len(files)} Parquet files"
        self.group_rows = rows

    def _metadata(self, file: str) -> Any:
        parquet = importlib.import_module("pyarrow.parquet")
        try:
            metadata = parquet.read_metadata(file)
            schema = metadata.schema.to_arrow_schema()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise UsageError(f"mr.Parquet: {file}: {reason}", "name files that can be read") from error
        except ValueError as error:
            raise DataError(f"mr.Parquet: {file}: {error}", "name Parquet files") from error
        for name, column in zip(("image", "label"), self._columns):
            if schema.names.count(column) != 1:
                raise UsageError(f"mr.Parquet: {file}: {name}={shown(column)} is no column",
                                 f"name one of {', '.join(schema.names)}")
        types = [schema.field(column).type for column in self._columns]
        if self._types not in ([], types):
            raise UsageError(f"mr.Parquet: {file}: its columns have other types than those of the files before",
                             "write the files with one schema")
        self._types = types
        return metadata

    def empty_group(self) -> tuple[_Chunks, _Chunks | None]:
        """Returns images and labels of a group without rows, which show the columns' types."""
        pyarrow = importlib.import_module("pyarrow")
        return self._parts([pyarrow.chunked_array([pyarrow.array([], type)]) for type in self._types])

    def _parts(self, columns: list[Any]) -> tuple[_Chunks, _Chunks | None]:
        chunks = [_chunks(name, column) for name, column in zip(self._columns, columns)]
        return chunks[0], chunks[1] if len(chunks) > 1 else None

    def group(self, index: int) -> tuple[_Chunks, _Chunks | None] | str:
        """Returns the images and labels of a row group, or why there are none and what to do."""
        parquet = importlib.import_module("pyarrow.parquet")
        file, metadata, number = self._groups[index]
        try:
            with parquet.ParquetFile(file, metadata=metadata) as opened:
                table = opened.read_row_group(number, self._columns)
            if table.num_rows != self.group_rows[index]:
                raise DataError(f"row group {number} of {file} has {table.num_rows} rows, and had "
                                f"{self.group_rows[index]} when the loader was made", "make a new loader")
            return self._parts([table.column(column) for column in self._columns])
        except BaseException as error:
            return self._failure(error)


def _chunks(name: str, column: Any) -> _Chunks:
    """Returns the arrays of a column, once they are found sound."""
    try:
        column.validate(full=True)
    except ValueError as error:
        raise DataError(f"mr.Samples: column {name}: {error}", "write the table again") from error
    return name, [chunk.__arrow_c_array__() for chunk in column.chunks]


def _arrow(table: Any, image: Part | None, label: Part | None) -> Feed:
    """Returns the samples of a pyarrow.Table."""
    names = table.column_names
    for name, part, known in (("image", image, names), ("label", label, [None, *names])):
        if part not in known:
            raise UsageError(f"mr.Samples of a Table: {name}={shown(part)} is not a column",
                             f"name one of the columns {', '.join(names)}")
    return _Columns(table, table, image, label, [], None)


def _hugging_face(source: Any, image: Part | None, label: Part | None, datasets: Any) -> Feed:
    """Returns the samples of a Hugging Face Dataset, whose images are left as they are stored."""
    features = source.features
    image = _column("image", image, datasets.Image, features)
    if label is not None or any(isinstance(one, datasets.ClassLabel) for one in features.values()):
        label = _column("label", label, datasets.ClassLabel, features)
    feature = features[label] if isinstance(label, str) else None
    classes = feature.names if isinstance(feature, datasets.ClassLabel) else []
    if not isinstance(image, str) or not isinstance(features[image], datasets.Image) or callable(label):
        return Feed(source, source, image, label, classes)
    # A Dataset that was shuffled or filtered has the rows of its table in another order.
    indices = source._indices
    return _Columns(source, source.data, image, label, classes, None if indices is None else indices.column(0))


def _column(name: str, given: Part | None, kind: Any, features: Any) -> Part:
    """Returns the column, or the function, that was given; or the only column of a type."""
    if given is None:
        found: list[str] = [column for column, feature in features.items() if isinstance(feature, kind)]
        if len(found) != 1:
            raise UsageError(f"mr.Samples: {len(found)} columns of type {kind.__name__} among {', '.join(features)}",
                             f"name the one: {name}='COLUMN'")
        return found[0]
    if not callable(given) and given not in features:
        raise UsageError(f"mr.Samples: {name}={shown(given)} is no column", f"name one of {', '.join(features)}")
    return given
