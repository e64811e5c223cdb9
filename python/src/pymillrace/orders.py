"""Orders: which samples an epoch holds, as a sampler of the user's own says."""
from __future__ import annotations

import array
import itertools
import operator
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from . import _core
from .arguments import shown
from .errors import UsageError

_CHUNK = 2**16  # indices that are taken before they are checked
_MOST = 2**32  # samples of an epoch
_REPEATS = 16  # a sampler without a length may give each sample so often,
_ALWAYS = 10**7  # and so many indices in any case
_NO_ORDER = "give indices of samples: a list, an array, or an object with __iter__ such as PyTorch's samplers"


class Orders:
    """Takes an order from the sampler once per epoch, on the thread that iterates over the loader, for the engine.

    Args:
        sampler: an iterable of indices, with or without __len__ and set_epoch().
        world_size: number of ranks, which must have the same orders.

    Raises:
        UsageError: the object is no sampler, or divides the samples among ranks itself.
    """

    def __init__(self, sampler: Any, engine: _core.Engine, world_size: int) -> None:
        iterates = hasattr(type(sampler), "__iter__") or hasattr(type(sampler), "__getitem__")
        if not iterates or isinstance(sampler, (str, bytes, Mapping)):
            raise UsageError(f"sampler={shown(sampler)} does not give sample indices", _NO_ORDER)
        if isinstance(sampler, Iterator):
            raise UsageError(f"sampler={shown(sampler)} can be iterated over once, but every epoch needs an order",
                             "give a list of it, or an object whose __iter__ begins anew")
        try:
            ranks = sampler.num_replicas
        except Exception:  # whatever an object of the caller's raises: most have none
            ranks = 1
        if isinstance(ranks, int) and ranks > 1:
            raise UsageError(f"sampler={shown(sampler)} divides samples among {shown(ranks)} ranks, as the loader does",
                             "give the sampler of a single process, equal on every rank: each gets its part of a batch")
        self._sampler, self._engine, self._world_size = sampler, engine, world_size
        self._taken: dict[int, _core.Order | Exception] = {}
        self._ahead = engine.ahead
        self._ordered = 0  # batches from the epoch's start on that have an order
        self.digest: str | None = None
        """Digest of the epoch's order, once that has begun: an epoch goes on in the same order."""

    def batches(self, epoch: int) -> int:
        """Returns the batches of an epoch. Takes its order if the sampler has no length."""
        length = None
        if epoch not in self._taken:
            try:
                length = _length(self._sampler)
            except UsageError:
                raise
            except Exception as error:  # whatever an object of the caller's raises
                raise _failure("the sampler's __len__", error) from error
        return self._engine.batches_of(self._of(epoch).size if length is None else length)

    def begin(self, epoch: int, batch: int) -> None:
        """Gives the engine the order of an epoch that begins. Raises UsageError if it must be another one."""
        order = None
        try:
            order = self._of(epoch)
        finally:
            _compare(order, epoch, self._world_size)
        digest = f"{order.digest():016x}"
        if batch > 0 and digest != self.digest:
            raise UsageError(f"the sampler gives another order for epoch {epoch} than where the state was taken",
                             "seed it by set_epoch(epoch), or restore its own state before the loop")
        if batch >= (batches := self._engine.batches_of(order.size)):
            raise UsageError(f"the state names batch {batch} of epoch {epoch}: an epoch has {batches}")
        self._give(epoch, batch)
        self.digest = digest

    def extend(self, epoch: int, batch: int) -> None:
        """Gives the engine orders for the batches that may be made while `batch` of the epoch is waited for."""
        if batch + self._ahead >= self._ordered:
            self._give(epoch, batch)

    def _give(self, epoch: int, batch: int) -> None:
        """Gives the engine the order of an epoch, and those of the next ones as long as they have as many samples.

        What the sampler raises for these is kept for _of().
        """
        found = [self._of(epoch)]
        per_epoch = self._engine.batches_of(found[0].size)
        last = epoch + (batch + self._ahead) // per_epoch
        for at in range(epoch + 1, last + 1):
            if at not in self._taken:
                try:
                    self._taken[at] = self._take(at)
                except Exception as error:
                    self._taken[at] = error
            order = self._taken[at]
            if isinstance(order, Exception) or order.size != found[0].size:
                break
            found.append(order)
        self._engine.set_orders(epoch, found)  # raises while another thread is in next(), which goes on
        self._taken = {at: taken for at, taken in self._taken.items() if epoch <= at <= last + 1}
        self._ordered = len(found) * per_epoch

    def _of(self, epoch: int) -> _core.Order:
        """Returns the order of an epoch. Raises UsageError if there is none; the next call asks the sampler again."""
        taken = self._taken.get(epoch)
        if taken is None:
            self._taken[epoch] = taken = self._take(epoch)
        if isinstance(taken, Exception):
            del self._taken[epoch]
            raise taken
        return taken

    def _take(self, epoch: int) -> _core.Order:
        """Iterates over the sampler."""
        sampler, samples = self._sampler, self._engine.samples
        try:
            if callable(set_epoch := getattr(sampler, "set_epoch", None)):
                set_epoch(epoch)
            length = _length(sampler)
            order = _core.Order(samples, epoch, length or 0)
            most = max(_REPEATS * samples, _ALWAYS) if length is None else length
            # The elements of arrays and tensors are slow to take one by one.
            indices = iter(sampler.tolist() if hasattr(sampler, "tolist") else sampler)
            while order.size <= most and (chunk := list(itertools.islice(indices, _CHUNK))):
                order.extend(_numbers(chunk, order.size, epoch))
        except UsageError:
            raise
        except Exception as error:  # whatever an object of the caller's raises
            raise _failure(f"in epoch {epoch}, the sampler", error) from error
        if length is None and order.size > most:
            raise UsageError(f"the sampler gave more than {most} indices for epoch {epoch}, and has no __len__",
                             "give it one, if it ends at all")
        if length is not None and order.size != length:
            given = "more" if order.size > length else order.size
            raise UsageError(f"the sampler gave {given} indices for epoch {epoch}, "
                             f"and its __len__ says {length}", "let __len__ count the indices of an epoch")
        if order.size == 0:
            raise UsageError(f"the sampler gave no index for epoch {epoch}", "an epoch has at least one batch")
        return order


def _compare(order: _core.Order | None, epoch: int, world_size: int) -> None:
    """Raises UsageError if ranks have different orders of an epoch. Without torch.distributed, compares nothing.

    Args:
        order: of this rank; None: the sampler failed.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    if torch.distributed.get_world_size() != world_size:
        return
    mine = None if order is None else (order.size, order.digest())
    ranks: list[tuple[int, int] | None] = [None] * world_size
    torch.distributed.all_gather_object(ranks, mine)
    if mine is None:
        return
    first = ranks[0]
    for rank, other in enumerate(ranks):
        if other is None or first is None:
            raise UsageError(f"the sampler of rank {rank} failed in epoch {epoch}", "see that rank's error")
        if other != first:
            raise UsageError(f"the sampler of rank {rank} gave another order for epoch {epoch} than that of rank 0"
                             + (f": {other[0]} indices, and not {first[0]}" if other[0] != first[0] else ""),
                             "seed it equally on every rank, for example in set_epoch(epoch)")


def _failure(which: str, error: Exception) -> UsageError:
    text = f"{type(error).__name__}: {error}".splitlines()[0][:200].encode(errors="replace").decode()
    return UsageError(f"{which} raised {text}")


def _length(sampler: Any) -> int | None:
    """Returns the length of a sampler, or None if it has none."""
    try:
        length = len(sampler)
    except (TypeError, NotImplementedError):  # as PyTorch's samplers without one raise
        return None
    if length > _MOST:
        raise UsageError(f"the sampler has {length} indices", f"an epoch has at most {_MOST} samples")
    return length


def _numbers(chunk: list[Any], position: int, epoch: int) -> bytes:
    """Returns whole numbers as bytes. Raises UsageError for anything else."""
    try:
        if not isinstance(chunk[0], bool):  # as in a mask
            return array.array("q", chunk).tobytes()
    except Exception:  # tensors raise what they like
        pass
    at = next((at for at, value in enumerate(chunk) if not _is_index(value)), 0)
    raise UsageError(f"the sampler's index {position + at} of epoch {epoch} is {shown(chunk[at])}, "
                     "which is not a sample index",
                     "give whole numbers from 0 on, one for each sample: the loader makes the batches")


def _is_index(value: Any) -> bool:
    try:
        return -2**63 <= operator.index(value) < 2**63
    except Exception:
        return False
