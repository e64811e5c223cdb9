"""Which samples an epoch holds, by the names that PyTorch and others use."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from .arguments import flag, shown, whole
from .errors import UsageError


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Base of the samplers. Each epoch and each seed draws anew, equally for any workers and ranks."""

    def overrides(self) -> list[str]:
        """Returns the sampler as overrides of a recipe."""
        raise NotImplementedError

    def weights_of_samples(self) -> list[float] | None:
        """Returns a weight for each sample of the data set, if there are any."""
        return None


@dataclasses.dataclass(frozen=True)
class WeightedRandomSampler(Sampler):
    """Draws each sample by its weight, as PyTorch's sampler of this name.

    Args:
        weights: of each sample of the data set, 0 or more, relative to each other; by default every class is drawn
            equally often.
        num_samples: per epoch; by default as many as the data set has.
        replacement: False: no sample comes twice in an epoch.
    """

    weights: Iterable[float] | None = None
    num_samples: int | None = None
    replacement: bool = True

    def overrides(self) -> list[str]:
        """Returns the sampler as overrides of a recipe."""
        replacement = flag("replacement", self.replacement)
        words = ["sampler.kind=weighted", f"sampler.replacement={str(replacement).lower()}"]
        if self.num_samples is not None:
            words.append(f"sampler.samples={whole('num_samples', self.num_samples, 1)}")
        return words

    def weights_of_samples(self) -> list[float] | None:
        """Returns a weight for each sample of the data set, if there are any. Raises UsageError for other values."""
        if self.weights is None:
            return None
        try:
            return [float(weight) for weight in self.weights]
        except Exception:  # whatever an object of the caller's raises
            raise UsageError(f"weights={shown(self.weights)} are not numbers", "give one for each sample") from None


@dataclasses.dataclass(frozen=True)
class MPerClassSampler(Sampler):
    """Makes batches of several classes with `m` samples each, as pytorch-metric-learning's sampler of this name.

    Args:
        m: samples of each class in a batch, over all ranks. The batch is a multiple of it.
        length: samples per epoch; by default as many whole batches as the data set has samples for.
    """

    m: int
    length: int | None = None

    def overrides(self) -> list[str]:
        """Returns the sampler as overrides of a recipe."""
        words = ["sampler.kind=balanced", f"sampler.per_class={whole('m', self.m, 1)}"]
        if self.length is not None:
            words.append(f"sampler.samples={whole('length', self.length, 1)}")
        return words


@dataclasses.dataclass(frozen=True)
class RASampler(Sampler):
    """Repeats each sample in a row, augmented in another way each time, as DeiT's sampler of this name.

    Args:
        num_repeats: how often a sample comes. An epoch has as many samples as the data set.
    """

    num_repeats: int = 3

    def overrides(self) -> list[str]:
        """Returns the sampler as overrides of a recipe."""
        return ["sampler.kind=repeat", f"sampler.repeats={whole('num_repeats', self.num_repeats, 1)}"]
