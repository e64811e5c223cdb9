"""Loader: millrace's data pipeline as an iterable of batches."""
from __future__ import annotations

import atexit
import collections
import contextlib
import importlib.util
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from . import _core, _exit, causes, orders, recipes
from . import device as devices
from .arguments import flag, shown, whole
from .batch import Batch, Rest
from .collates import collate_of
from .device import Copies, Copy
from .errors import DataError, RunError, UsageError
from .installed import installed
from .op import Op
from .samplers import Sampler
from .samples import Fed

_RECIPES = installed("recipes")
_STATE_VERSION = 1
_LAST_EPOCH = 2**32 - 2
_MOST_RANKS = 2**31 - 1
_ONE_THREAD = "let one thread iterate, or make a loader for each thread"
_Row = tuple[int, int, int, str, str]  # of a Failure
_open_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()


class Failure(NamedTuple):
    """A sample that could not be read, decoded or augmented (loader.on_error=skip or replace)."""

    epoch: int
    position: int
    """Position in the epoch's order."""
    sample: int
    """Index in the data set."""
    name: str
    reason: str


class StepCost(NamedTuple):
    """The cost of one step of a loader's plan (Loader.profile)."""

    step: str
    """"fetch" for mr.Samples, "decode", "source" for data sets that hold pixels, "pass" for a traversal of the pixels, or
    the name of an op."""
    ops: list[str]
    """The ops that the step carries out together."""
    s_per_sample: float
    """Mean wall time per sample, in seconds."""

    def __str__(self) -> str:
        return f"{self.step:<24}{1e6 * self.s_per_sample:>10.1f} µs  {', '.join(self.ops)}".rstrip()


class Dataset:
    """The data set of a loader; len() counts the samples of all ranks together."""

    def __init__(self, engine: _core.Engine) -> None:
        self._engine = engine
        self.path = engine.path
        self.split = engine.split
        self.classes: list[str] = engine.classes
        """Names of the classes; a label is an index into this list."""
        self.fingerprint = engine.fingerprint
        """Hash of the samples' names and sizes and, for data in memory, contents."""

    def __len__(self) -> int:
        return self._engine.samples

    def name(self, index: int) -> str:
        """Returns the name of the sample at `index`. Raises UsageError if there is none."""
        if not 0 <= (number := whole("index", index, -2**63)) < len(self):
            raise UsageError(f"no sample {number}", f"the data set has {len(self)}")
        return self._engine.sample_name(number)


class _Sampler:
    """The object that frameworks expect as loader.sampler: it passes the epoch on."""

    def __init__(self, loader: Loader) -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)


class _Batches:
    """An iterator over batches, which one thread at a time may use."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches, self._busy = batches, threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._busy.acquire(blocking=False):
            raise RunError("another thread uses this iterator", _ONE_THREAD)
        try:
            return next(self._batches)
        finally:
            self._busy.release()


class Loader:
    """Iterates over the batches of a recipe, one epoch per `for`.

    Batches are made on worker threads of this process, ahead of the loop, in an order that depends on the recipe's
    seed alone: any number of workers gives the same bytes, which are those that `millrace bench --hash` hashes.

    Args:
        arguments: a recipe (a TOML file or the name of a shipped one) and overrides as "key=value", as the program
            takes them: Loader("imagenet-rrc", "data.path=data/photos", "loader.workers=2"). Or a data set, a list of
            augmentations, and overrides: Loader(Folder("data/photos"), [RandomResizedCrop(224), HFlip()], batch=32).
            Samples(source) is a data set in Python.
        batch: with a data set: samples per batch and rank.
        normalize: with a data set: mean and standard deviation, as IMAGENET.
        sampler: which samples an epoch holds: WeightedRandomSampler, MPerClassSampler or RASampler; by default each
            once. Or any iterable of indices into the data set, as PyTorch's samplers, which is iterated over once per
            epoch on the thread of the loop, after its set_epoch(epoch) if it has one. Ranks share each batch, so such a
            sampler gives the order of all ranks, equally on each.
        rank: of this process; by default that of torch.distributed if it is initialised, else 0.
        world_size: number of processes that share each batch; by default likewise, else 1. loader.batch counts the
            samples of all of them together, loader.batch_per_rank those of one.
        numpy: hand out numpy.ndarray instead of torch.Tensor; PyTorch need not be installed.
        keys: two names; batches are then dictionaries of images and labels instead of a Batch.
        warps: record Batch.warps, by which boxes, masks and key points can follow the images. With keys, a third name
            takes them.
        collate: for data sets with boxes, the form of the batches. "torchvision": a list of images, and a list of
            dictionaries with boxes (left, top, right, bottom in pixels), labels (class ids from 1, as 0 is the
            background), image_id and, if there are any, keypoints. "ultralytics": a dictionary with img, cls, bboxes
            (centre, width, height as fractions), batch_idx and keypoints.
        function: called with each batch (with keys, its dictionary) on the thread that iterates; what it returns is
            handed out instead. `function_s` is the time that it takes. What it raises ends the `for`; its batch counts
            as handed out.
        device: "cuda" or "cuda:N": images and labels are tensors there, copied from page-locked memory while the loop
            works on the batch before. That memory is used again once the copy has ended, and never handed out;
            batch.samples, class_ids, warps and targets stay on the host. Tested with a stand-in for a device only.

    Raises:
        UsageError: a recipe or key is wrong, or the batch does not fit the data set or the ranks.
        DataError: the data set cannot be opened; later, a sample that failed (loader.on_error=fail). What an
            augmentation in Python or a source of samples raised is its __cause__, with the traceback.
        RunError: a thread cannot be started, or the loader is used in a forked child or by two threads.
    """

    def __init__(
        self,
        *arguments: str | recipes.Source | Sequence[Op | recipes.Normalize],
        batch: int | None = None,
        normalize: recipes.Normalize | None = None,
        sampler: Sampler | Iterable[int] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        numpy: bool = False,
        keys: Sequence[str] | None = None,
        warps: bool = False,
        collate: str | None = None,
        function: Callable[[Any], Any] | None = None,
        device: str | None = None,
        **unknown: NoReturn,
    ) -> None:
        refused: Mapping[str, Any] = unknown
        for name, value in refused.items():
            raise UsageError(f"Loader takes no {name}={shown(value)}", _hint_for(name, value, arguments))
        rank, world_size = _place(rank, world_size)
        numpy, warps = flag("numpy", numpy), flag("warps", warps)
        if function is not None and not callable(function):
            raise UsageError(f"function={shown(function)} is not a function", "give one that takes a batch")
        names = _names(keys, warps)
        words = _words(arguments, batch, normalize)
        self._collate = collate_of(collate, keys)
        if self._collate is not None:
            words += self._collate.overrides
        weights = None
        ordered = sampler is not None and not isinstance(sampler, Sampler)
        if isinstance(sampler, Sampler):
            words += sampler.overrides()
            weights = sampler.weights_of_samples()
        self._feed = arguments[0].feed() if arguments and isinstance(arguments[0], Fed) else None
        self._copies: Copies | None = None
        if device is None:
            self._engine = _core.Engine(words, rank, world_size, warps, weights, samples=self._feed, ordered=ordered)
        else:
            if numpy:
                raise UsageError("numpy=True with device=: arrays on a device are PyTorch's", "leave one of them out")
            _require("torch")
            self._copies = Copies(devices.open_device(device))
            with self._copies.device.current():
                self._engine = _core.Engine(words, rank, world_size, warps, weights, *self._copies.device.locks,
                                            samples=self._feed, ordered=ordered)
        _warn()
        self._orders = orders.Orders(sampler, self._engine, world_size) if ordered else None
        self._keys = names
        self._numpy = numpy
        self._function = function
        if numpy and self._engine.dtype == "bf16":
            raise UsageError("numpy=True with output.dtype=bf16: NumPy has no such type", "use f32 or f16")
        _require("numpy" if numpy else "torch")
        self._identity = self._engine.identity()
        self._epoch = 0
        self._batch = 0  # batches of that epoch that were handed out
        self._began = False  # a `for` has begun from that position
        self._ended = False  # and has run to its end
        self._current: list[int] | None = None  # identifies the latest iterator, and holds its thread
        self._process = os.getpid()
        self.rank = rank
        self.world_size = world_size
        self.dataset = Dataset(self._engine)
        """The data set, of all ranks together."""
        self.sampler = _Sampler(self)
        """Passes set_epoch() on to the loader."""
        self.function_s = 0.0
        """Seconds spent in function= so far."""
        self.failures: list[Failure] = []
        """Samples that failed, in the order of the batches; at most 1000 since the list was last emptied."""
        _open_loaders.add(self)

    def __len__(self) -> int:
        """The number of batches per epoch, the same on every rank and after a resumption.

        With a sampler of your own, that of the current epoch, or of the next one. Takes its order if the sampler has no
        __len__.
        """
        if self._orders is not None:
            return self._orders.batches(self._epoch)
        return self._engine.batches

    def __iter__(self) -> Iterator[Any]:
        """Begins an epoch: the one after the last, also if that was left early, or where a state was loaded.

        The epoch begins with its first batch: what set_epoch() or load_state_dict() says before counts.
        """
        return _Batches(self._host_batches() if self._copies is None else self._device_batches(self._copies))

    def _begin(self) -> list[int]:
        """Begins an epoch and ends the one under way. Returns an id for its iterator."""
        epoch, batch = (self._epoch + 1, 0) if self._began else (self._epoch, self._batch)
        causes.forget()
        if self._feed is not None:
            self._feed.require_length()
        if self._orders is not None:
            self._orders.begin(epoch, batch)
        self._engine.seek(epoch, batch)  # raises while another thread is in next(), which goes on
        self._epoch, self._batch = epoch, batch
        self._began, self._ended = True, False
        self._current = token = [threading.get_ident()]
        return token

    def _require_turn(self, token: list[int]) -> None:
        """Raises RunError if another thread has ended an iterator by a `for` of its own."""
        current = self._current
        if current is not None and current is not token and current != token:
            raise RunError("another thread has begun to iterate over this loader", _ONE_THREAD)

    def _host_batches(self) -> Iterator[Any]:
        token = self._begin()
        engine, numpy = self._engine, self._numpy
        own, epoch = self._orders, self._epoch
        failures: list[_Row] = []
        shaped = self._keys is not None or self._collate is not None or self._function is not None
        batches = engine.batches
        while self._current is token:
            if self._batch == batches:
                self._ended = True
                break
            if own is not None:
                own.extend(epoch, self._batch)
            try:
                batch = engine.next(Batch, numpy, failures)
            except DataError as error:
                raise error from causes.of(error)
            if self._current is not token:  # the position is another iterator's by now
                break
            self._batch += 1
            if failures or self._batch == batches:
                self._collect(failures)
            if shaped:
                batch = self._shape(batch)
            yield batch
            del batch  # the loop's variables alone keep the memory
        self._require_turn(token)

    def _device_batches(self, copies: Copies) -> Iterator[Any]:
        engine = self._engine
        under_way: collections.deque[Copy] = collections.deque()
        failures: list[_Row] = []
        with copies.device.current():
            token = self._begin()
        fetched, batches = self._batch, engine.batches
        own, epoch = self._orders, self._epoch
        while self._current is token:
            while fetched < batches and len(under_way) <= devices.AHEAD:
                if own is not None:
                    own.extend(epoch, fetched)
                with copies.device.current():
                    try:
                        source = engine.next(Batch, False, failures)
                    except DataError as error:
                        raise error from causes.of(error)
                    if failures:
                        self._collect(failures)
                    under_way.append(copies.start(tuple(source), Rest(source._raw, engine.names)))
                del source
                fetched += 1
            if not under_way:
                self._ended = True
                break
            copy = under_way.popleft()
            batch: Any = Batch(copies.hand_out(copy))
            batch._raw = copy.rest
            self._batch += 1
            if self._batch == batches:
                self._collect(failures)
            batch = self._shape(batch)
            del copy
            yield batch
            del batch
        self._require_turn(token)

    def _shape(self, batch: Any) -> Any:
        """Returns the value that the loop receives: the form that keys= or collate= names, the result of function=."""
        keys = self._keys
        if keys is not None:
            batch = dict(zip(keys, (*batch, batch.warps) if len(keys) == 3 else batch))
        if self._collate is not None:
            batch = self._collate.shape(batch)
        if self._function is None:
            return batch
        begin = time.perf_counter()
        try:
            return self._function(batch)
        finally:
            self.function_s += time.perf_counter() - begin

    def _collect(self, failures: list[_Row]) -> None:
        """Moves failures to the list of all, and emits the program's remarks as warnings."""
        self.failures.extend(Failure(*row) for row in failures)
        failures.clear()
        del self.failures[:-1000]
        _warn()

    @property
    def epoch(self) -> int:
        """The epoch, from 0: of the current `for`, or of the next one if that has ended."""
        return self._epoch + 1 if self._ended else self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Makes the next `for` run this epoch from its start.

        Right after load_state_dict(), the epoch that it has set keeps the position in it.
        """
        epoch = whole("epoch", epoch, 0, _LAST_EPOCH, "epochs count from 0")
        if not self._began and epoch == self._epoch:
            return
        self._epoch, self._batch = epoch, 0
        self._began = self._ended = False
        self._current = None

    def state_dict(self, trained: int | None = None) -> dict[str, Any]:
        """Returns the position from which a `for` continues after load_state_dict(). Takes no time.

        Args:
            trained: batches of the current epoch that the position counts; by default all that were handed out. A
                framework that fetches batches ahead gives the number that it has trained on.
        """
        batch = self._batch if trained is None else whole("trained", trained, -2**63)
        if not 0 <= batch <= self._batch:
            raise UsageError(f"trained={batch}: {self._batch} batches of this epoch were handed out")
        epoch = self._epoch
        if self._began and batch == self._engine.batches:
            epoch, batch = epoch + 1, 0
        state = {"version": _STATE_VERSION, "recipe": self._identity, "epoch": epoch, "batch": batch}
        if self._orders is not None:
            state["order"] = self._orders.digest if batch > 0 else None
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a position of state_dict(); the number of workers may differ.

        Raises:
            UsageError: the state comes from another recipe, data set or batch size, or is none.
        """
        if not isinstance(state, Mapping) or not {"version", "recipe", "epoch", "batch"} <= state.keys():
            raise UsageError(f"this is not the state of a pymillrace.Loader: {shown(state)}",
                             "give what state_dict() returned")
        version, recipe = whole("version", state["version"], 0), state["recipe"]
        epoch, batch = whole("epoch", state["epoch"], -2**63), whole("batch", state["batch"], -2**63)
        if version != _STATE_VERSION:
            raise UsageError(f"the loader's state has version {version}, but this pymillrace reads {_STATE_VERSION}")
        if not isinstance(recipe, str):
            raise UsageError(f"recipe={shown(recipe)} of a loader's state is not text", "give what state_dict() returned")
        if recipe != self._identity:
            raise UsageError(
                f"the state belongs to recipe {recipe}, and this loader has {self._identity}: its batches would differ",
                "use the same recipe, data set, seed and batch size",
            )
        order = state.get("order")
        if not isinstance(order, str | None) or (self._orders is not None and (order is None) == (batch > 0)):
            raise UsageError(f"order={shown(order)} of a loader's state", "give what state_dict() returned")
        # The length of an epoch with an order of its own is known once it begins.
        batches = batch + 1 if self._orders is not None else len(self)
        if not 0 <= epoch <= _LAST_EPOCH or not 0 <= batch < batches:
            raise UsageError(f"the state names batch {batch} of epoch {epoch}: an epoch has {batches}")
        if self._orders is not None:
            self._orders.digest = order
        self._epoch, self._batch = epoch, batch
        self._began = self._ended = False
        self._current = None

    def profile(self, samples: int = 64) -> list[StepCost]:
        """Returns the cost of each step of the plan, in the order in which they run.

        Runs `samples` samples of the data set, spread over it, on this thread. Ops that move pixels share a pass with
        their neighbours; an augmentation in Python has a step of its own, as has each other op that changes an image
        as a whole. Fetching from mr.Samples is a step too, with the time for Python's lock; other reading, and ops that
        mix neighbours, are left out.

        Raises:
            DataError: a sample cannot be decoded or augmented. What a function of yours raised is its __cause__.
        """
        samples = whole("samples", samples, 1, hint="at least one sample is needed")
        causes.forget()
        try:
            return [StepCost(*row) for row in self._engine.profile(samples)]
        except DataError as error:
            raise error from causes.of(error)

    def close(self) -> None:
        """Ends the worker threads and frees their memory; batches stay valid. A later `for` starts them again."""
        self._current = None
        if self._copies is not None:
            self._copies.close()
        self._engine.close()

    @property
    def batch_size(self) -> int:
        """Samples per batch of this rank; the last batch of an epoch may have fewer."""
        return self._engine.batch_size

    @property
    def num_workers(self) -> int:
        """Worker threads (loader.workers)."""
        return self._engine.workers

    @property
    def drop_last(self) -> bool:
        """Whether a last, short batch is left out (loader.drop_last)."""
        return self._engine.drop_last

    @property
    def extra_blocks(self) -> int:
        """Blocks of memory, one batch each, that were allocated because batches were kept."""
        return self._engine.extra_blocks

    def __repr__(self) -> str:
        return (
            f"<pymillrace.Loader {self._engine.recipe_name}: {len(self)} batches of {self.batch_size} "
            f"from {self.dataset.path or 'synthetic data'}, {self.num_workers} workers>"
        )


def _names(keys: Sequence[str] | None, warps: bool) -> tuple[str, ...] | None:
    """Returns the names of a batch's parts, or None if there are none."""
    if keys is None:
        return None
    names = tuple(keys) if isinstance(keys, Sequence) and not isinstance(keys, (str, bytes)) else ()
    if len(names) not in ((2, 3) if warps else (2,)) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"keys={shown(keys)} does not name images and labels", 'give two: keys=("image", "label")')
    if len(set(names)) < len(names):
        raise UsageError(f"keys={shown(keys)} gives two parts of a batch one name", "give each its own")
    return names


def _words(arguments: tuple[Any, ...], batch: int | None, normalize: recipes.Normalize | None) -> list[str]:
    """Returns the arguments of a Loader as the program takes them."""
    if arguments and isinstance(arguments[0], recipes.Source):
        source, rest = arguments[0], arguments[1:]
        chain: Any = []
        if rest and not isinstance(rest[0], str):
            chain, rest = rest[0], rest[1:]
        if not isinstance(chain, Sequence) or isinstance(chain, (bytes, bytearray)):
            raise UsageError(f"{shown(chain)} is not a list of augmentations", "give one, such as [mr.CenterCrop(224)]")
        if normalize is not None and not isinstance(normalize, recipes.Normalize):
            raise UsageError(f"normalize={shown(normalize)} is not an mr.Normalize",
                             "give mr.IMAGENET or mr.Normalize(mean, std)")
        if batch is not None:
            batch = whole("batch", batch, 1)
        for one in (source, *chain, *([] if normalize is None else [normalize])):
            _require_writable(one)
        words = [_plain(word) for word in recipes.overrides(source, chain, batch, normalize)]
        return words + [_recipe_file(word) for word in rest]
    if batch is not None or normalize is not None:
        raise UsageError("batch= and normalize= belong to a data set", 'a recipe takes "loader.batch=N" and "output.mean=M"')
    return [_recipe_file(word) for word in arguments]


def _hint_for(name: str, value: Any, arguments: tuple[Any, ...]) -> str:
    """Returns what to write instead of an argument that other loaders take."""
    hint = _core.hint_for_key(name)
    key = hint.removeprefix("did you mean ").rstrip("?")
    if key == hint or " " in key:
        return hint
    if key == "loader.batch" and arguments and isinstance(arguments[0], recipes.Source):
        return f"did you mean batch={shown(value)}?"
    if key == "loader.shuffle" and isinstance(value, bool):
        value = "global" if value else "none"
    text = str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, (int, float, str)) else "..."
    return f'did you mean "{key}={text}", a string of its own?'


def _require_writable(part: Any) -> None:
    """Raises UsageError if a data set, an augmentation or Normalize cannot be written as words of a recipe."""
    try:
        if isinstance(part, Op):
            part.override()
        elif isinstance(part, (recipes.Source, recipes.Normalize)):
            part.overrides()
        else:
            repr(part)  # recipes.overrides() refuses it by that
    except UsageError:
        raise
    except Exception as error:  # whatever an object of the caller's raises
        raise UsageError(f"{shown(part)} cannot be written in a recipe: {error}",
                         "give numbers, names, or lists of them") from None


def _plain(word: str) -> str:
    """Returns the word. Raises UsageError for text that a recipe file cannot hold."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{shown(word)} is not UTF-8", "rename the file, or link to it by another name") from None
    if "\0" in word:
        raise UsageError(f"{shown(word)} contains a zero byte", "leave it out")
    return word


def _recipe_file(word: str) -> str:
    """Returns the file of a shipped recipe that `word` names, and any other word as it is."""
    if not isinstance(word, str):
        raise UsageError(f"{shown(word)} is neither a recipe nor an override",
                         'give strings, such as "loader.workers=2"')
    return word if _core.is_override(_plain(word)) else _core.find_recipe(word, str(_RECIPES))


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Returns rank and world size: those given, or those of torch.distributed."""
    if (rank is None) != (world_size is None):
        raise UsageError("rank and world_size belong together", "give both or neither")
    if rank is not None and world_size is not None:
        rank, world_size = whole("rank", rank, -2**63), whole("world_size", world_size, 1, _MOST_RANKS)
        if not 0 <= rank < world_size:
            raise UsageError(f"rank {rank} of {world_size} ranks: they count from 0 to {world_size - 1}")
        return rank, world_size
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    if os.environ.get("WORLD_SIZE", "1").strip() not in ("", "0", "1"):
        warnings.warn(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} is set, but torch.distributed is not initialised: every process "
            "will get whole batches. Make the loader after init_process_group(), or give rank and world_size.",
            RuntimeWarning,
            stacklevel=3,
        )
    return 0, 1


def _require(package: str) -> None:
    """Raises UsageError if a package that batches need is not installed; imports nothing."""
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        return
    other = "" if package == "numpy" else ", or give numpy=True"
    arrays = "arrays" if package == "numpy" else "tensors"
    raise UsageError(f"{package} is not installed, but batches are its {arrays}", f"pip install {package}{other}")


def _warn() -> None:
    """Passes the pipeline's remarks on."""
    for text in _core.take_remarks():
        warnings.warn(text, RuntimeWarning, stacklevel=4)


_exit.tell(_core)


@atexit.register
def _close_all() -> None:
    """Ends the threads before the interpreter does; a forked child has none."""
    _exit.begin()
    for loader in list(_open_loaders):
        if loader._process == os.getpid():
            with contextlib.suppress(RunError):  # a thread that did not come back in time uses it
                loader.close()
