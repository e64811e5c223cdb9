"""Mean average precision of a detector, as COCO defines it: over IoU 0.50 to 0.95, at 101 recalls.

Detections and objects are dictionaries of one image each, in torchvision's form: `boxes` (n x 4: left, top, right,
bottom), `labels` and, for detections, `scores`. At most the 100 best detections of a class count per image. COCO's
crowds and ranges of areas are left out.
"""
import numpy as np

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST_PER_IMAGE = 100


def intersections_over_unions(first, second):
    """Returns the IoU of each of n boxes with each of m, n x m."""
    corners = np.maximum(first[:, None, :2], second[None, :, :2]), np.minimum(first[:, None, 2:], second[None, :, 2:])
    both = np.clip(corners[1] - corners[0], 0, None).prod(2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(1) for boxes in (first, second)]
    return both / np.maximum(areas[0][:, None] + areas[1] - both, 1e-12)


def _matches(overlaps, thresholds):
    """Returns which detections, by falling score, find an object that no better one has taken: thresholds x n."""
    found = np.zeros((len(thresholds), len(overlaps)), bool)
    free = np.ones((len(thresholds), overlaps.shape[1]), bool)
    every = np.arange(len(thresholds))
    for detection, row in enumerate(overlaps if overlaps.size else ()):
        best = np.where(free, row, -1).argmax(1)
        found[:, detection] = free[every, best] & (row[best] >= thresholds)
        free[every, best] &= ~found[:, detection]
    return found


def _average_precisions(found, scores, objects):
    """Returns the mean of the precision at RECALLS for each threshold, where precision never rises with recall."""
    hits = found[:, np.argsort(-scores, kind="stable")].cumsum(1)
    precision = np.maximum.accumulate((hits / np.arange(1, len(scores) + 1))[:, ::-1], 1)[:, ::-1]
    precision = np.append(precision, np.zeros((len(hits), 1)), 1)  # beyond the last recall
    return [precision[i, np.searchsorted(row / objects, RECALLS)].mean() for i, row in enumerate(hits)]


def mean_average_precision(objects, detections, thresholds=THRESHOLDS):
    """Returns the mean over the thresholds and over the classes that have objects."""
    objects, detections = ([{key: np.asarray(one[key]) for key in ("boxes", "labels", *more)} for one in images]
                           for images, more in ((objects, ()), (detections, ("scores",))))
    precisions = []
    for label in np.unique(np.concatenate([one["labels"] for one in objects])):
        found, scores, count = [], [], 0
        for truth, guess in zip(objects, detections, strict=True):
            boxes = truth["boxes"][truth["labels"] == label]
            of_label = np.flatnonzero(guess["labels"] == label)
            best = of_label[np.argsort(-guess["scores"][of_label], kind="stable")][:MOST_PER_IMAGE]
            found.append(_matches(intersections_over_unions(guess["boxes"][best], boxes), np.asarray(thresholds)))
            scores.append(guess["scores"][best])
            count += len(boxes)
        precisions.append(_average_precisions(np.concatenate(found, 1), np.concatenate(scores), count))
    return float(np.mean(precisions))
