"""Batch: what a loader hands out."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    from . import _core
    from .device import Rest


class Batch(tuple[Any, ...]):
    """A batch: the tuple (images, labels), with what else is known of it.

    The arrays own their memory: they stay valid and unchanged for as long as they are referenced, whatever the loader
    does. A batch that was rebuilt from its elements, as frameworks do to move it to a device, is the tuple alone; its
    other attributes raise AttributeError.

    Attributes:
        images: count x channels x height x width (output.layout=hwc: count x height x width x channels) of the type
            output.dtype; a torch.Tensor, or a numpy.ndarray with numpy=True.
        labels: count class ids, int64; or count x classes probabilities, float32, if the recipe mixes labels (mixup,
            cutmix).
    """

    _raw: _core.Batch | Rest  # the former is set by Engine.next()

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
        """The class ids as stored, int64, count; also where labels are mixed."""
        return self._raw.class_ids()

    @property
    def samples(self) -> Any:
        """The index of each sample in the data set, int64, count."""
        return self._raw.samples()

    @property
    def warps(self) -> Any:
        """Where pixels went: W, float32, count x 3 x 3, with x_out = W x_in in homogeneous coordinates.

        Positions are pixel centres: (0, 0) is the middle of the first pixel, of the upright input image (after its
        EXIF orientation) and of the output. NaN where no such map exists: after elastic, mixup, cutmix and filters of
        plugins, and with loader.mode=synthetic or cached. Pixel ops count as moving nothing.

        Raises:
            UsageError: the loader was made without warps=True.
        """
        warps = self._raw.warps()
        if warps is None:
            raise UsageError("this loader does not record warps", "make it with warps=True")
        return warps

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
