"""bench/detection_loop.py: the loop learns, and its two loaders hand out the same samples."""
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchvision", reason="NOT TESTED without torchvision", exc_type=(ImportError, OSError))
sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import detection_loop  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(scope="module")
def boxes(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("boxes")
    make = [program, "data", "make", "boxes", folder, "--train", "64", "--test", "16", "--force"]
    subprocess.run(make, check=True, capture_output=True)
    return folder


def test_loaders_hand_out_the_same_samples(boxes):
    ours, theirs = ({target["image_id"]: (image, target) for images, targets in make(boxes, "test")
                     for image, target in zip(images, targets)} for make in detection_loop.LOADERS.values())
    assert ours.keys() == theirs.keys() and len(ours) == 16
    for key, (image, target) in ours.items():
        other_image, other = theirs[key]
        assert image.shape == other_image.shape
        assert (image - other_image).abs().max() < 1.5 / 255 / 0.224  # one level
        assert torch.equal(target["labels"], other["labels"])
        assert torch.allclose(target["boxes"], other["boxes"], atol=1e-3)


@pytest.mark.parametrize("loader", detection_loop.LOADERS)
def test_the_loss_falls(boxes, loader):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = detection_loop.detector()
    losses = list(detection_loop.train(model, detection_loop.LOADERS[loader](boxes, "train"), 4))
    assert losses[-1] < 0.75 * losses[0], losses
    mean, at_half = detection_loop.evaluate(model, detection_loop.LOADERS[loader](boxes, "test"))
    assert 0 <= mean <= at_half <= 1
