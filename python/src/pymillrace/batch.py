"""Batch: what a loader hands out."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import DataError, UsageError

if TYPE_CHECKING:
    from . import _core


def _own(array: Any) -> Any:
    """Returns a copy of an array of PyTorch's or NumPy's."""
    return array.clone() if hasattr(array, "clone") else array.copy()


class Rest:
    """A batch without its arrays, in memory of its own: the other methods of pymillrace._core.Batch.

    Args:
        names: the samples' names, or what knows them; a pickled or deeply copied Rest has the names themselves.
    """

    def __init__(self, raw: _core.Batch, names: _core.Names | list[str]) -> None:
        self._names = names
        self._samples, self._class_ids = _own(raw.samples()), _own(raw.class_ids())
        warps = raw.warps()
        self._warps = None if warps is None else _own(warps)
        objects = raw.objects()
        self._objects = None if objects is None else tuple(None if one is None else _own(one) for one in objects)
        masks = raw.masks()
        self._masks = None if masks is None else _own(masks)
        self._image_ids = raw.image_ids()
        self._member_names = raw.member_names()
        self._targets: Any = None
        self._members: list[list[bytes | None]] = []
        self._refusals: dict[str, tuple[str, str]] = {}
        try:
            self._targets = raw.targets()
        except UsageError as error:  # an op mixes samples: said where targets are read
            self._refusals["targets"] = error.what, error.hint
        try:
            self._members = [raw.member(name) for name in range(len(self._member_names))]
        except UsageError as error:
            self._refusals["members"] = error.what, error.hint
        self.epoch, self.index, self.count = raw.epoch, raw.index, raw.count

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_names": self.names()}

    def class_ids(self) -> Any:
        return self._class_ids

    def samples(self) -> Any:
        return self._samples

    def warps(self) -> Any:
        return self._warps

    def objects(self) -> tuple[Any, ...] | None:
        return self._objects

    def masks(self) -> Any:
        return self._masks

    def image_ids(self) -> list[int]:
        return self._image_ids

    def _require(self, part: str) -> None:
        if part in self._refusals:
            raise UsageError(*self._refusals[part])

    def targets(self) -> Any:
        self._require("targets")
        return self._targets

    def member_names(self) -> list[str]:
        return self._member_names

    def member(self, name: int) -> list[bytes | None]:
        self._require("members")
        return self._members[name]

    def names(self) -> list[str]:
        return list(self._names) if isinstance(self._names, list) else self._names.of(self._samples.tolist())


class Boxes(NamedTuple):
    """The objects of a batch's samples that are left in their images, sample by sample."""

    values: Any
    """float32, n x 4, in pixels of the output: targets.format says which four numbers, targets.relative the unit."""
    offsets: Any
    """int64, count + 1: sample i has the rows offsets[i] to offsets[i + 1]."""
    class_ids: Any
    """int64, n: indices into Dataset.classes."""
    origins: Any
    """int64, n: index of each among the annotations of its image, in their order in the file."""
    samples: Any
    """int64, n: index of each one's image in the data set; not always that of its sample where an op mixes samples."""
    weights: Any
    """float32, n: share of its image in the sample: 1, or what mixup drew."""


class Members(Mapping[str, "list[bytes | None]"]):
    """Other members of a batch's samples than the images, as the archives hold them, by name.

    members["txt"] is a list of one `bytes` per sample, or None for a sample that has no such member.
    """

    def __init__(self, raw: _core.Batch | Rest) -> None:
        self._raw, self._members = raw, raw.member_names()

    def __getitem__(self, name: str) -> list[bytes | None]:
        if name not in self._members:
            raise KeyError(name)
        return self._raw.member(self._members.index(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def text(self, name: str) -> list[str | None]:
        """Returns the members of one name as text.

        Raises:
            DataError: a member is not UTF-8. The error names the sample.
        """
        texts: list[str | None] = []
        for place, member in enumerate(self[name]):
            try:
                texts.append(None if member is None else member.decode())
            except UnicodeDecodeError as error:
                raise DataError(f"{self._raw.names()[place]}: its member .{name} is not UTF-8 at byte {error.start}",
                                f'batch.members["{name}"] has its bytes') from None
        return texts


class Batch(tuple[Any, ...]):
    """A batch: the tuple (images, labels), with metadata as attributes.

    The arrays own their memory: they stay valid and unchanged for as long as they are referenced, whatever the loader
    does. A batch that was rebuilt from its elements, as frameworks do to move it to a device, is the tuple alone; its
    other attributes raise AttributeError. copy.copy() shares the arrays; copy.deepcopy() and pickle copy them and all
    attributes, so that the result needs neither the loader nor the data set.

    Attributes:
        images: count x channels x height x width (output.layout=hwc: count x height x width x channels) of the type
            output.dtype; a torch.Tensor, or a numpy.ndarray with numpy=True.
        labels: count class ids, int64; or count x classes probabilities, float32, if the recipe mixes labels (mixup,
            cutmix, mosaic).
    """

    _raw: _core.Batch | Rest  # the former is set by Engine.next()

    def __copy__(self) -> Batch:
        twin = type(self)(self)
        vars(twin).update(vars(self))
        return twin

    def __reduce__(self) -> tuple[Callable[..., Batch], tuple[Any, ...]]:
        raw = vars(self).get("_raw")
        return _rebuilt, (tuple(self), raw if raw is None or isinstance(raw, Rest) else Rest(raw, raw.names()))

    @property
    def images(self) -> Any:
        """The images."""
        return self[0]

    @property
    def labels(self) -> Any:
        """The class ids, or the probabilities of mixed labels."""
        return self[1]

    @property
    def class_ids(self) -> Any:
        """The class ids as stored, int64, count; unchanged by ops that mix labels."""
        return self._raw.class_ids()

    @property
    def samples(self) -> Any:
        """The index of each sample in the data set, int64, count."""
        return self._raw.samples()

    @property
    def warps(self) -> Any:
        """How augmentations moved pixels: W, float32, count x 3 x 3, with x_out = W x_in in homogeneous coordinates.

        Positions are pixel centres: (0, 0) is the middle of the first pixel, of the upright input image (after its
        EXIF orientation) and of the output. NaN where no such map exists: after elastic, mixup, cutmix, mosaic and filters of
        plugins, and with loader.mode=synthetic. Pixel ops count as moving nothing.

        Raises:
            UsageError: the loader was made without warps=True.
        """
        warps = self._raw.warps()
        if warps is None:
            raise UsageError("this loader does not record warps", "make it with warps=True")
        return warps

    @property
    def boxes(self) -> Boxes:
        """The boxes that are left after the augmentations, clipped to the output (targets.min_area, min_visibility).

        Raises:
            UsageError: the data set has no boxes.
        """
        return Boxes(*self._objects()[:6])

    @property
    def key_points(self) -> Any:
        """x, y and visibility of the boxes' key points, float32, n x points x 3, in the order of the boxes.

        Visibility is 0 for a point that is not labelled or outside of the output, whose x and y are then 0; 1 for a
        hidden one; 2 for a visible one.

        Raises:
            UsageError: the data set has no key points.
        """
        points = self._objects()[6]
        if points is None:
            raise UsageError("this data set has no key points", "read a COCO file whose annotations have keypoints")
        return points

    @property
    def instance_masks(self) -> Any:
        """The pixels of each object, uint8, n x height x width, 1 inside and 0 elsewhere, in the order of the boxes.

        Raises:
            UsageError: the data set has no outlines, or they were not asked for.
        """
        masks = self._objects()[7]
        if masks is None:
            raise UsageError("this data set has no masks of objects", "read a COCO set with data.instance_masks=true")
        return masks

    @property
    def has_instance_masks(self) -> bool:
        """Whether objects have masks."""
        return self._objects()[7] is not None

    @property
    def has_key_points(self) -> bool:
        """Whether the data set has key points."""
        return self._objects()[6] is not None

    @property
    def masks(self) -> Any:
        """The class id of each pixel of the images, uint8, count x height x width, moved along by the augmentations.

        255 means none, and stands where the output shows nothing of the image (targets.mask_fill).

        Raises:
            UsageError: the data set has no masks.
        """
        masks = self._raw.masks()
        if masks is None:
            raise UsageError("this data set has no masks", "name its masks: data.masks")
        return masks

    @property
    def image_ids(self) -> list[int]:
        """COCO's own id of each image, or its index in a YOLO set; empty without boxes."""
        return self._raw.image_ids()

    def _objects(self) -> tuple[Any, ...]:
        found = self._raw.objects()
        if found is None:
            raise UsageError("this data set has no boxes", "read a set with boxes: data.reader=coco or yolo")
        return found

    @property
    def targets(self) -> Any:
        """The manifest's `target` of each sample.

        Where all of the manifest's targets are lists of k numbers: an array of count x k, float32; where they are
        plain numbers: of count. Otherwise a list of count Python objects, as json.loads() gives them.

        Raises:
            UsageError: the data set has no targets.
        """
        found = self._raw.targets()
        if found is None:
            raise UsageError("this data set has no targets", "read a manifest that has the column or key target")
        return [json.loads(text) for text in found] if isinstance(found, list) else found

    @property
    def members(self) -> Members:
        """Other members of the samples than the images, by name (mr.Tar(..., members=...)).

        Raises:
            UsageError: no members were asked for.
        """
        members = Members(self._raw)
        if not members:
            raise UsageError("this loader hands out no members", "read archives with members: data.members=txt,json")
        return members

    @property
    def names(self) -> list[str]:
        """The name of each sample: a path, or a file and the position in it."""
        return self._raw.names()

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._raw.epoch

    @property
    def batch_index(self) -> int:
        """The index of the batch in its epoch, from 0."""
        return self._raw.index


def _rebuilt(arrays: tuple[Any, ...], rest: Rest | None) -> Batch:
    """Returns the batch that was pickled or deeply copied."""
    batch = Batch(arrays)
    if rest is not None:
        batch._raw = rest
    return batch
