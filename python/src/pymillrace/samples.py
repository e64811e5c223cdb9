"""Any object with a length and items as a data set: lists, Hugging Face data sets, LMDB, arrays, tables."""
from __future__ import annotations

import dataclasses
import operator
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from . import causes
from .arguments import shown, whole
from .errors import DataError, UsageError
from .recipes import Source

_DEPTHS = {"L": 1, "RGB": 3}  # channels of Pillow's modes that need no conversion
_DEEP = ("I", "F")  # how its modes of more than 8 bits begin
_FORMS = "give encoded bytes, a path, a PIL image or a uint8 array of height x width (x 1 or 3)"

Part = str | int | Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Samples(Source):
    """Any object with __len__ and __getitem__, which is asked for one item at a time.

    An item has an image: encoded bytes, a path, a PIL image, or a uint8 array of height x width or height x width x 1
    or 3. A PIL image is taken as it is; encoded bytes and files are decoded by the workers and turned as EXIF says.

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

    def overrides(self) -> list[str]:
        """Returns nothing: a recipe cannot name an object."""
        return []

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
        columns: name and Arrow arrays of images, labels (or None) and row numbers (or None); None: fetch() is called.
    """

    columns: tuple[tuple[str, list[Any]], tuple[str, list[Any]] | None, tuple[str, list[Any]] | None] | None = None

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

    def fetch(self, index: int) -> tuple[Any, int, int, int, int] | str:
        """Returns (data, height, width, channels, label) of a sample, or why there is none and what to do.

        Height is 0 for encoded bytes and -1 for a path, as bytes; `data` is otherwise an array, or bytes of pixels.
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

    @staticmethod
    def copy(memory: memoryview, array: Any) -> None:
        """Copies an array's pixels."""
        import numpy as np

        np.copyto(np.frombuffer(memory, np.uint8).reshape(array.shape), array)

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
        if isinstance(error, UsageError):
            return f"{error.what}\n{error.hint}"
        if isinstance(error, IndexError) and (changed := self._changed_length()):
            return changed
        return causes.failure("", error, "repair the source")


def _getter(part: Part | None) -> Callable[[Any], Any] | None:
    return part if part is None or callable(part) else operator.itemgetter(part)


def _picture(image: Any) -> tuple[Any, int, int, int]:
    """Returns data, height, width and channels of an image in any of its forms; see Feed.fetch()."""
    if isinstance(image, bytes):
        return image, 0, 0, 0
    if isinstance(image, Mapping) and "bytes" in image:  # as Hugging Face stores an image
        return _picture(image["bytes"] if image["bytes"] is not None else image.get("path"))
    if isinstance(image, (str, os.PathLike)):
        return os.fsencode(image), -1, 0, 0
    if isinstance(image, (bytearray, memoryview)):
        return bytes(image), 0, 0, 0
    numpy, pillow = sys.modules.get("numpy"), sys.modules.get("PIL.Image")
    if numpy is not None and isinstance(image, numpy.ndarray):
        return _pixels(image, numpy)
    if pillow is not None and isinstance(image, pillow.Image):
        if image.mode.startswith(_DEEP):
            raise UsageError(f"the image is a PIL image of mode {image.mode}", "convert it to 8 bits per channel")
        if image.mode not in _DEPTHS:
            image = image.convert("RGB")
        return image.tobytes(), image.height, image.width, _DEPTHS[image.mode]
    raise UsageError(f"the image is an object of type {type(image).__name__}", _FORMS)


def _pixels(array: Any, numpy: Any) -> tuple[Any, int, int, int]:
    """Returns data, height, width and channels of an array: pixels, or encoded bytes if it has one axis."""
    if array.dtype == numpy.uint8:
        if array.ndim == 1:
            return array.tobytes(), 0, 0, 0
        shape = (*array.shape, 1) if array.ndim == 2 else array.shape
        if len(shape) == 3 and min(shape) > 0 and shape[2] in (1, 3):
            return array, *shape
    raise UsageError(f"the image is an array of {array.dtype} with the shape {array.shape}",
                     "give uint8 of height x width, or of height x width x 1 or 3")


class _Columns(Feed):
    """Columns of an Arrow table, from which the extension module reads without Python."""

    def __init__(self, source: Any, table: Any, image: Any, label: Any, classes: list[str], rows: Any) -> None:
        super().__init__(source, source, image, label, classes)
        self.columns = (_chunks(image, table.column(image)),
                        None if label is None else _chunks(label, table.column(label)),
                        None if rows is None else _chunks("of row numbers", rows))


def _chunks(name: str, column: Any) -> tuple[str, list[Any]]:
    """Returns the arrays of a column as Arrow's C data interface hands them over, once they are found sound."""
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
            raise UsageError(f"mr.Samples of a Table: {name}={shown(part)}", f"name one of the columns {', '.join(names)}")
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
