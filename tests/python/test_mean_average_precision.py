"""bench/mean_average_precision.py: values computed by hand from COCO's definition."""
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from mean_average_precision import intersections_over_unions, mean_average_precision  # noqa: E402

FIRST, SECOND, NOWHERE = [0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60]
LOW = [0, 0, 10, 7.2]  # has IoU 0.72 with FIRST, which is enough for five of the ten thresholds


def image(*rows):
    """Returns an image's dictionary of rows of a box, its label and, for a detection, its score."""
    boxes = np.array([row[0] for row in rows], float).reshape(-1, 4)
    one = {"boxes": boxes, "labels": np.array([row[1] for row in rows], int)}
    return {**one, "scores": np.array([row[2] for row in rows if len(row) > 2], float)}


def test_overlap_is_the_shared_area_by_that_of_both():
    overlaps = intersections_over_unions(np.array([FIRST, [5, 5, 15, 15]], float), np.array([FIRST, LOW, SECOND], float))
    assert overlaps == pytest.approx(np.array([[1, 0.72, 0], [25 / 175, 5 * 2.2 / (172 - 11), 0]]))


TWO = [image((FIRST, 1), (SECOND, 1))]


@pytest.mark.parametrize("objects, detections, expected", [
    (TWO, [image((FIRST, 1, 0.9), (SECOND, 1, 0.8))], 1),
    (TWO, [image()], 0),
    (TWO, [image((FIRST, 2, 0.9))], 0),
    ([image((FIRST, 1))], [image((LOW, 1, 0.9))], 0.5),
    # The precision is 1 at the 51 recalls up to 0.5, and 2/3 at the other 50.
    (TWO, [image((FIRST, 1, 0.9), (NOWHERE, 1, 0.8), (SECOND, 1, 0.7))], (51 + 50 * 2 / 3) / 101),
    # 1/2, then 2/3: precision at a recall is the best one from there on.
    (TWO, [image((NOWHERE, 1, 0.9), (FIRST, 1, 0.8), (SECOND, 1, 0.7))], 2 / 3),
    # An object that is missed takes its recalls.
    (TWO, [image((FIRST, 1, 0.9), (NOWHERE, 1, 0.8))], 51 / 101),
    # A second detection of an object counts as wrong, though only where the first one was good enough.
    ([image((FIRST, 1))], [image((LOW, 1, 0.9), (FIRST, 1, 0.8))], (5 + 5 / 2) / 10),
    (TWO, [image((FIRST, 1, 0.9), (FIRST, 1, 0.8), (SECOND, 1, 0.7))], (51 + 50 * 2 / 3) / 101),
    # Scores rank across images; the mean is over classes with objects.
    ([image((FIRST, 1)), image((FIRST, 1))], [image((NOWHERE, 1, 0.8)), image((FIRST, 1, 0.9))], 51 / 101),
    ([image((FIRST, 1)), image((FIRST, 1))], [image((NOWHERE, 1, 0.9)), image((FIRST, 1, 0.8))], 51 / 101 / 2),
    ([image((FIRST, 1), (SECOND, 2))], [image((FIRST, 1, 0.9), (NOWHERE, 3, 0.9))], 1 / 2),
    # The 101st detection of an image does not count.
    ([image((FIRST, 1))], [image(*[(NOWHERE, 1, 0.9)] * 99, (FIRST, 1, 0.8))], 1 / 100),
    ([image((FIRST, 1))], [image(*[(NOWHERE, 1, 0.9)] * 100, (FIRST, 1, 0.8))], 0),
])
def test_golden_values(objects, detections, expected):
    assert mean_average_precision(objects, detections) == pytest.approx(expected)


def test_thresholds_can_be_chosen():
    objects, detections = [image((FIRST, 1))], [image((LOW, 1, 0.9))]
    assert [mean_average_precision(objects, detections, [least]) for least in (0.5, 0.72, 0.75)] == [1, 1, 0]
