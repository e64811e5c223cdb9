"""Tests Batch.warps: dots that are planted in images land where the maps say."""
import struct

import numpy as np
import pymillrace as mr
import pytest

COUNT, WIDTH, HEIGHT = 48, 90, 70
RADIUS = 2.0  # of a dot, as the standard deviation of its brightness


@pytest.fixture(scope="module")
def dots(tmp_path_factory):
    """A data set of one bright dot per image; returns its folder and the dots' positions."""
    folder = tmp_path_factory.mktemp("dots")
    draw = np.random.default_rng(7)
    at = np.stack([draw.uniform(20, WIDTH - 20, COUNT), draw.uniform(20, HEIGHT - 20, COUNT)], 1)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    far = (x[None] - at[:, 0, None, None]) ** 2 + (y[None] - at[:, 1, None, None]) ** 2
    images = np.rint(255 * np.exp(-far / (2 * RADIUS**2))).astype(np.uint8)
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, COUNT, HEIGHT, WIDTH) + images.tobytes())
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, COUNT) + bytes(i % 10 for i in range(COUNT)))
    return folder, at


def make(dots, *ops, overrides=(), resample="once", **options):
    words = [f"resample={resample}", *(f"augment+={op}" for op in ops), *overrides]
    return mr.Loader("data.reader=idx", f"data.path={dots[0]}", "output.dtype=f32", "loader.batch=8", *words, numpy=True,
                     **{"warps": True, **options})


def landed(image):
    """Returns the centre of a dot's brightness and its sum."""
    y, x = np.mgrid[:image.shape[0], :image.shape[1]]
    total = image.sum()
    return np.array([(image * x).sum(), (image * y).sum()]) / max(total, 1e-9), total


CHAINS = {
    "nothing": [],
    "crop": ["crop{top=3,left=7,height=60,width=64}"],
    "random_crop": ["random_crop{size=[64,80],padding=6}"],
    "flips": ["hflip", "vflip"],
    "affine": ["random_affine{degrees=40,translate=[0.1,0.1],scale=[0.7,1.3],shear=[-10,10],interpolation=bilinear}"],
    "nearest": ["random_affine{degrees=40,scale=[0.9,1.3],interpolation=nearest}"],
    "perspective": ["random_perspective{distortion_scale=0.3,p=1}"],
    "rotate": ["random_rotation{degrees=90,interpolation=bilinear}"],
    "resize": ["resize{size=[140,45]}"],
    "rrc": ["random_resized_crop{size=64,scale=[0.4,1]}"],
    "chain": ["random_resized_crop{size=[60,80],scale=[0.6,1]}", "hflip", "gaussian_blur",
              "random_affine{degrees=20,interpolation=bilinear}", "random_perspective{distortion_scale=0.2}",
              "resize{size=[50,120]}", "vflip", "pad{padding=5}"],
    "choice": ["random_apply{p=0.5,ops=\"vflip;random_affine{degrees=30,interpolation=bilinear}\"}"],
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("resample", ["once", "stepwise"])
def test_planted_dots_land_within_half_a_pixel(dots, name, resample):
    seen, moved = 0, 0
    for batch in make(dots, *CHAINS[name], resample=resample):
        assert batch.warps.shape == (len(batch.samples), 3, 3)
        assert batch.warps.dtype == np.float32
        for image, sample, warp in zip(batch.images, batch.samples, batch.warps):
            dot, warp = dots[1][sample], warp.astype(np.float64)
            x, y, w = warp @ [*dot, 1]
            centre, total = landed(image[0])
            # The determinant says how much larger the dot is now. Of one that a crop has cut, less is left.
            whole = 2 * np.pi * RADIUS**2 * abs(np.linalg.det(warp) / w**3)
            if not 0.95 < total / whole < 1.05:
                continue
            seen += 1
            moved += bool(np.abs(centre - dot).max() > 1)
            assert np.hypot(*(centre - [x / w, y / w])) < 0.5, (sample, dot, centre, warp)
    assert seen > COUNT / 4
    assert moved > 0 or name == "nothing"


def test_the_maps_do_not_depend_on_workers_or_position(dots):
    def maps(loader):
        return {(batch.epoch, int(sample)): warp for _ in range(2) for batch in loader
                for sample, warp in zip(batch.samples, batch.warps)}

    expected = maps(make(dots, *CHAINS["chain"], overrides=["loader.workers=0"]))
    assert len(expected) == 2 * COUNT
    for workers in (1, 2):
        found = maps(make(dots, *CHAINS["chain"], overrides=[f"loader.workers={workers}"]))
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[key], expected[key]) for key in expected)
    resumed = make(dots, *CHAINS["chain"])
    resumed.load_state_dict({**resumed.state_dict(), "epoch": 1, "batch": 2})
    batch = next(iter(resumed))
    for sample, warp in zip(batch.samples, batch.warps):
        assert np.array_equal(warp, expected[1, int(sample)])


def test_each_repeat_of_a_sample_has_the_map_of_its_own_draws(dots):
    turn = "random_affine{degrees=[-40,40],interpolation=bilinear}"
    loader = make(dots, turn, sampler=mr.RASampler(3), overrides=["loader.shuffle=none"])
    seen = 0
    for batch in loader:
        for image, sample, warp in zip(batch.images, batch.samples, batch.warps):
            x, y, _ = warp.astype(np.float64) @ [*dots[1][sample], 1]
            if 8 < x < WIDTH - 8 and 8 < y < HEIGHT - 8:
                assert np.hypot(*(landed(image[0])[0] - [x, y])) < 0.5, (sample, warp)
                seen += 1
    assert seen > COUNT / 2


def test_the_images_do_not_depend_on_warps(dots):
    plain = make(dots, *CHAINS["chain"], warps=False)
    for one, other in zip(plain, make(dots, *CHAINS["chain"])):
        assert np.array_equal(one.images, other.images)
        assert np.array_equal(one.labels, other.labels)


@pytest.mark.parametrize("op", ["elastic", "mixup"])
def test_without_a_map_there_is_nan(dots, op):
    batch = next(iter(make(dots, op)))
    assert np.isnan(batch.warps).all()


def photo_loader(photos, size, *overrides):
    return mr.Loader("data.reader=folder", f"data.path={photos}", f"augment+=resize{{size={size}}}", "output.dtype=u8",
                     *overrides, numpy=True, warps=True)


def split_of(data, tmp_path):
    """Copies photos into a folder data set of one class; returns the set and its files."""
    folder = tmp_path / "photos" / "train" / "all"
    folder.mkdir(parents=True)
    files = sorted((data / "photos").rglob("*.jpg"))[:6]
    return tmp_path / "photos", [folder / f"{i}.jpg" for i in range(len(files))], [file.read_bytes() for file in files]


def test_a_replaced_sample_has_the_map_of_its_replacement(data, tmp_path):
    folder, names, photos = split_of(data, tmp_path)
    for i, (name, photo) in enumerate(zip(names, photos)):
        name.write_bytes(photo if i != 3 else photo[:300])
    loader = photo_loader(folder, "[40,20]", "loader.batch=3", "loader.on_error=replace")
    for _ in range(3):
        for batch in loader:
            assert not np.isnan(batch.warps).any()
    assert len(loader.failures) == 3


def test_positions_are_those_of_the_upright_image(data, tmp_path):
    folder, names, photos = split_of(data, tmp_path)
    tag = b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHH", 0x112, 3, 1, 6, 0) + b"\0" * 4  # orientation 6: turned
    exif = b"\xff\xe1" + struct.pack(">H", 2 + 6 + len(tag)) + b"Exif\0\0" + tag
    names[0].write_bytes(photos[0])
    names[1].write_bytes(photos[0][:2] + exif + photos[0][2:])
    batch = next(iter(photo_loader(folder, "[40,40]", "loader.batch=2")))
    plain, turned = (batch.warps[list(batch.samples).index(i)] for i in range(2))
    assert plain[0, 0] != plain[1, 1], "the photo is not square"
    assert (turned[0, 0], turned[1, 1]) == (plain[1, 1], plain[0, 0])


def test_warps_must_be_asked_for(dots):
    batch = next(iter(make(dots, warps=False)))
    with pytest.raises(mr.UsageError, match="warps=True"):
        batch.warps
    with pytest.raises(mr.UsageError, match="keys="):
        make(dots, warps=False, keys=("image", "label", "warp"))
    batch = next(iter(make(dots, "hflip{p=1}", keys=("image", "label", "warp"))))
    assert batch["warp"][0].tolist() == [[-1, 0, WIDTH - 1], [0, 1, 0], [0, 0, 1]]


def test_the_maps_of_unused_batches_are_forgotten(dots):
    loader = make(dots, "hflip")
    for _ in range(3):
        next(iter(loader))  # leaves the epoch: batches made ahead are dropped
    loader.set_epoch(0)
    for batch in loader:
        assert not np.isnan(batch.warps).any()
