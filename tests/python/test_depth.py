"""Tests of images with more than 8 bits or other than 1 or 3 channels (decode.depth), beside torchvision and NumPy."""
import itertools
import pathlib
import struct
import zlib
from collections.abc import Iterator

import numpy as np
import pymillrace as mr
import pytest

HEIGHT, WIDTH = 37, 53
RANDOM = np.random.default_rng(5)
FLOATS = RANDOM.normal(0.4, 2, (HEIGHT, WIDTH, 5)).astype(np.float32)
WIDE = RANDOM.integers(0, 65536, (HEIGHT, WIDTH, 3), dtype=np.uint16)


def batches(source: object, ops: list[object], *keys: str, batch: int = 1) -> Iterator[np.ndarray]:
    loader = mr.Loader(source, ops, "loader.shuffle=none", *keys, batch=batch, numpy=True)
    return (images.images.copy() for images in loader)


def one(source: object, ops: list[object], *keys: str) -> np.ndarray:
    """Returns the only image as channels x height x width."""
    return next(batches(source, ops, *keys))[0]


def planes(array: np.ndarray) -> np.ndarray:
    return np.moveaxis(array if array.ndim == 3 else array[..., None], -1, 0)


# Against torchvision, on the same floats.


def _cases() -> list[tuple[str, object, object]]:
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    nearest = pytest.importorskip("torchvision.transforms").InterpolationMode.NEAREST
    bilinear = pytest.importorskip("torchvision.transforms").InterpolationMode.BILINEAR
    fill = 51 / 255
    pad = [3, 4, 5, 6]
    return [
        ("as it is", [], lambda t: t),
        ("resize, antialias", [mr.Resize([20, 31])], lambda t: functional.resize(t, [20, 31], antialias=True)),
        ("resize, larger", [mr.Resize([60, 71])], lambda t: functional.resize(t, [60, 71], antialias=True)),
        ("resize, two taps", [mr.Resize([20, 31], antialias=False)],
         lambda t: functional.resize(t, [20, 31], antialias=False)),
        ("center_crop", [mr.CenterCrop([20, 31])], lambda t: functional.center_crop(t, [20, 31])),
        ("hflip", [mr.HFlip(p=1)], functional.horizontal_flip),
        ("vflip", [mr.VFlip(p=1)], functional.vertical_flip),
        *((f"pad, {mode}", [mr.Pad(pad, padding_mode=mode, fill=51)],
           lambda t, mode=mode: functional.pad(t, pad, fill=fill if mode == "constant" else 0, padding_mode=mode))
          for mode in ("constant", "edge", "reflect", "symmetric")),
        ("rotation", [mr.RandomRotation([25, 25], interpolation="bilinear")],
         lambda t: functional.rotate(t, 25, interpolation=bilinear)),
        ("affine", [mr.Affine(degrees=-20, translate=[4, -3], scale=1.3, shear=[10, 0], interpolation="bilinear")],
         lambda t: functional.affine(t, -20, [4, -3], 1.3, [10, 0], interpolation=bilinear)),
        ("affine, nearest", [mr.Affine(degrees=31, translate=[4, -3], scale=0.9, shear=[0, 0], interpolation="nearest")],
         lambda t: functional.affine(t, 31, [4, -3], 0.9, [0, 0], interpolation=nearest)),
    ]


def test_geometry_equals_torchvision(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    lines = []
    for name, ops, theirs in _cases():
        ours = one(mr.Samples([FLOATS]), ops, "decode.depth=float")
        expected = theirs(torch.from_numpy(planes(FLOATS).copy())).numpy()
        assert ours.shape == expected.shape, name
        apart = np.max(np.abs(ours - expected))
        lines.append(f"{name}: {apart:.1e}")
        assert apart < 1e-4, lines[-1]
    with capsys.disabled():
        print("\n" + "\n".join(lines))


# Files.


def tiff(array: np.ndarray, planar: bool = False, deflate: bool = False, rows: int = 8, extra: list[int] | None = None,
         order: str = "<") -> bytes:
    """Returns a TIFF of height x width x bands in strips of `rows` rows; `extra` are the kinds of its extra samples."""
    height, width, bands = array.shape
    parts, offsets, data = [], [], b""
    for plane in (np.moveaxis(array, -1, 0) if planar else [array]):
        for top in range(0, height, rows):
            strip = np.ascontiguousarray(plane[top:top + rows]).astype(array.dtype.newbyteorder(order)).tobytes()
            parts.append(zlib.compress(strip) if deflate else strip)
    for part in parts:
        offsets.append(8 + len(data))
        data += part + b"\0" * (len(part) % 2)
    bits = 8 * array.dtype.itemsize
    tags = [(256, 4, [width]), (257, 4, [height]), (258, 3, [bits] * bands), (259, 3, [8 if deflate else 1]),
            (262, 3, [2 if bands >= 3 else 1]), (273, 4, offsets), (277, 3, [bands]), (278, 4, [rows]),
            (279, 4, [len(part) for part in parts]), (284, 3, [2 if planar else 1])]
    if extra:
        tags.append((338, 3, extra))
    tags.append((339, 3, [3 if array.dtype.kind == "f" else 1] * bands))
    directory, at = struct.pack(order + "H", len(tags)), 8 + len(data) + 2 + 12 * len(tags) + 4
    tail = b""
    for tag, kind, values in tags:
        packed = b"".join(struct.pack(order + "HI"[kind == 4], value) for value in values)
        directory += struct.pack(order + "HHI", tag, kind, len(values))
        if len(packed) <= 4:
            directory += packed.ljust(4, b"\0")
        else:
            directory += struct.pack(order + "I", at + len(tail))
            tail += packed + b"\0" * (len(packed) % 2)
    start = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8 + len(data))
    return start + data + directory + b"\0" * 4 + tail


def png16(array: np.ndarray) -> bytes:
    """Returns a PNG of 16 bits per sample: gray, gray and alpha, RGB or RGBA."""
    height, width, samples = array.shape

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[samples], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def npy(array: np.ndarray) -> bytes:
    import io
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


SHORTS = RANDOM.integers(0, 65536, (HEIGHT, WIDTH, 6), dtype=np.uint16)
BYTES = RANDOM.integers(0, 256, (HEIGHT, WIDTH, 5), dtype=np.uint8)
FILES = {
    "PNG gray": (png16(SHORTS[..., :1]), SHORTS[..., :1]),
    "PNG gray and alpha": (png16(SHORTS[..., :2]), SHORTS[..., :1]),
    "PNG RGB": (png16(SHORTS[..., :3]), SHORTS[..., :3]),
    "PNG RGBA": (png16(SHORTS[..., :4]), SHORTS[..., :3]),
    "TIFF gray": (tiff(SHORTS[..., :1]), SHORTS[..., :1]),
    "TIFF RGB, deflate": (tiff(SHORTS[..., :3], deflate=True), SHORTS[..., :3]),
    "TIFF RGB, big-endian": (tiff(SHORTS[..., :3], order=">"), SHORTS[..., :3]),
    "TIFF RGB and alpha": (tiff(SHORTS[..., :4], extra=[2]), SHORTS[..., :3]),
    "TIFF RGB and infrared": (tiff(SHORTS[..., :4], extra=[0]), SHORTS[..., :4]),
    "TIFF, six bands apart": (tiff(SHORTS, planar=True, extra=[0, 0, 0]), SHORTS),
    "TIFF, five bands of 8 bits": (tiff(BYTES, extra=[0, 0], deflate=True), BYTES),
    "TIFF floats": (tiff(FLOATS[..., :1], order=">"), FLOATS[..., :1]),
    "TIFF, five bands of floats": (tiff(FLOATS, planar=True, deflate=True, extra=[0, 0]), FLOATS),
    "NumPy gray": (npy(SHORTS[..., 0]), SHORTS[..., :1]),
    "NumPy bytes": (npy(BYTES), BYTES),
    "NumPy floats": (npy(FLOATS), FLOATS),
    "array": (SHORTS, SHORTS),
    "array of floats": (FLOATS[..., 0], FLOATS[..., :1]),
}


def values(array: np.ndarray) -> np.ndarray:
    """Returns what a batch holds of an image, without normalisation: channels first."""
    full = {"u": np.float32(2 ** (8 * array.dtype.itemsize) - 1), "f": np.float32(1)}[array.dtype.kind]
    return planes(array.astype(np.float32) / full)


@pytest.mark.parametrize("name", FILES)
def test_files_keep_their_depth_and_channels(name: str) -> None:
    data, array = FILES[name]
    depth = "float" if array.dtype.kind == "f" else "16"
    np.testing.assert_array_equal(one(mr.Samples([data]), [], f"decode.depth={depth}"), values(array))
    part = one(mr.Samples([data]), [mr.Crop(left=7, top=5, width=11, height=9)], f"decode.depth={depth}")
    np.testing.assert_array_equal(part, values(array)[:, 5:14, 7:18])


def test_jpeg_and_8_bits_are_fractions_too(tmp_path: pathlib.Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(BYTES[..., :3]).save(tmp_path / "a.png")
    np.testing.assert_array_equal(one(mr.Samples([tmp_path / "a.png"]), [], "decode.depth=16"), values(BYTES[..., :3]))
    image.fromarray(SHORTS[..., 0]).save(tmp_path / "b.tif")
    image.fromarray(FLOATS[..., 0]).save(tmp_path / "c.tif")
    pictures = [image.open(tmp_path / name) for name in ("b.tif", "c.tif")]
    found = list(batches(mr.Samples(pictures), [], "decode.depth=float"))
    np.testing.assert_array_equal(found[0][0], values(SHORTS[..., :1]))
    np.testing.assert_array_equal(found[1][0], values(FLOATS[..., :1]))


def folder(path: pathlib.Path, count: int = 24) -> pathlib.Path:
    for number in range(count):
        place = path / "train" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        array = RANDOM.integers(0, 65536, (30 + number % 5, 40 + number % 7, 4), dtype=np.uint16)
        (place / f"{number}.npy").write_bytes(npy(array))
        (place / f"t{number}.tif").write_bytes(tiff(array, deflate=number % 3 == 0, extra=[0]))
    return path


def test_any_workers_and_forms_of_a_set_give_the_same_bytes(tmp_path: pathlib.Path) -> None:
    ops = [mr.RandomResizedCrop(24), mr.HFlip(), mr.GaussianNoise(sigma=0.02), mr.RandomErasing(p=0.5)]
    source = mr.Folder(folder(tmp_path / "set"))
    expected = [batch.copy() for batch in batches(source, ops, "decode.depth=16", "loader.workers=0", batch=8)]
    assert len(expected) == 6 and expected[0].shape == (8, 4, 24, 24)
    assert not np.array_equal(expected[0][0], expected[0][1])
    for workers in (1, 3):
        found = list(batches(source, ops, "decode.depth=16", f"loader.workers={workers}", batch=8))
        np.testing.assert_array_equal(found, expected)
    # The second half of an epoch, after its state was kept.
    keys = ("decode.depth=16", "loader.shuffle=none")
    loader = mr.Loader(source, ops, *keys, batch=8, numpy=True)
    for _ in itertools.islice(loader, 3):
        state = loader.state_dict()
    resumed = mr.Loader(source, ops, *keys, batch=8, numpy=True)
    resumed.load_state_dict(state)
    np.testing.assert_array_equal([batch.images.copy() for batch in resumed], expected[3:])


@pytest.mark.parametrize(("data", "depth", "words"), [
    (npy(SHORTS), "8", "16 bits per value, and 8 bits are asked for"),
    (tiff(FLOATS[..., :1]), "8", "floats"),
    (tiff(FLOATS[..., :1]), "16", "floats"),
    (npy(SHORTS.astype(np.int32)), "16", "an array of '<i4'"),
    (npy(np.asfortranarray(SHORTS)), "16", "Fortran order"),
    (npy(SHORTS)[:-1], "16", "cut short"),
    (npy(np.zeros((2, 3, 4, 5), np.uint8)), "16", "an array of shape (2, 3, 4, 5)"),
    (npy(np.zeros((2, 3, 513), np.uint8)), "16", "an array of shape (2, 3, 513)"),
    (tiff(SHORTS)[:len(tiff(SHORTS)) // 2], "16", "tiff"),
])
def test_other_images_are_refused_in_one_line(data: bytes, depth: str, words: str) -> None:
    with pytest.raises(mr.Error) as refused:
        one(mr.Samples([data]), [], f"decode.depth={depth}")
    assert words in str(refused.value) and len(str(refused.value).splitlines()) <= 2


def test_tiles_far_larger_than_the_picture_take_no_memory() -> None:
    tags = [(256, 1), (257, 1), (258, 32), (259, 8), (262, 1), (277, 512), (322, 2048), (323, 1024), (324, 8), (325, 4),
            (339, 3)]
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    data = b"II*\0" + struct.pack("<I", 16) + bytes(8) + directory + bytes(4)
    with pytest.raises(mr.Error, match="larger than the picture"):  # a tile has 4 GiB
        one(mr.Samples([data]), [], "decode.depth=float")


def test_an_image_of_other_channels_is_one_bad_sample() -> None:
    keys = ("decode.depth=16", "loader.on_error=skip")
    crop = [mr.CenterCrop(8)]
    loader = mr.Loader(mr.Samples([SHORTS, SHORTS[..., :3], SHORTS]), crop, "loader.shuffle=none", *keys, batch=3,
                       numpy=True)
    batch = next(iter(loader))
    assert batch.images.shape == (2, 6, 8, 8)
    assert "3 channels, and the first image has 6" in loader.failures[0].reason


@pytest.mark.parametrize(("keys", "words"), [
    (["output.normalize=device"], "output.normalize=device with decode.depth=16"),
    (["output.mean=[0.1,0.2]"], "output.mean has 2 numbers for images of 6 channels"),
])
def test_keys_that_do_not_fit_are_refused(keys: list[str], words: str) -> None:
    with pytest.raises(mr.UsageError, match=words.replace("[", r"\[")):
        one(mr.Samples([SHORTS]), [], "decode.depth=16", *keys)


def test_arrays_beside_images_count_only_with_a_depth(tmp_path: pathlib.Path) -> None:
    image = pytest.importorskip("PIL.Image")
    place = tmp_path / "train" / "a"
    place.mkdir(parents=True)
    image.fromarray(BYTES[..., :3]).save(place / "0.png")
    (place / "0.npy").write_bytes(npy(BYTES[..., :3]))
    assert [len(list(batches(mr.Folder(tmp_path), [], f"decode.depth={depth}"))) for depth in ("8", "16")] == [1, 2]
