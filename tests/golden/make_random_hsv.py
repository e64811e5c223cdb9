"""Makes golden values for tests/augment/random_hsv_test.cpp with Ultralytics. Run by hand:

    python tests/golden/make_random_hsv.py > tests/golden/random_hsv.json

Made with ultralytics 8.4.190, OpenCV 5.0.0, numpy 2.2.6. Every case is what its RandomHSV makes of the colours below
with given amounts: a turn of the hue, and factors of saturation and value.
"""
import json

import numpy as np
from ultralytics.data.augment import RandomHSV

COUNT = 1024
AMOUNTS = [(0.0, 1.0, 1.0), (0.015, 1.7, 1.0), (-0.015, 0.3, 1.4), (0.3, 1.0, 0.6), (-0.5, 1.2, 1.0), (0.11, 1.0, 1.0)]


def colours():
    """Returns colours from red to blue, of which every 16th is gray."""
    i = np.arange(COUNT)
    rgb = np.stack([i * 37 % 256, (i * 101 + 13) % 256, (i * 197 + 91) % 256], 1).astype(np.uint8)
    rgb[::16] = rgb[::16, :1]
    return rgb


def main():
    cases = []
    for turn, saturation, value in AMOUNTS:
        np.random.uniform = lambda *_: np.array([turn, saturation - 1, value - 1])
        image = np.ascontiguousarray(colours()[None, :, ::-1])
        result = RandomHSV(1, 1, 1).apply_image({"img": image})["img"][0, :, ::-1]
        cases.append({"amounts": [turn, saturation, value], "levels": result.tobytes().hex()})
    print(json.dumps({"count": COUNT, "cases": cases}, indent=0))


if __name__ == "__main__":
    main()
