"""Makes golden values for tests/augment/resample_test.cpp with Pillow and torchvision. Run by hand:

    python tests/golden/make_resize.py > tests/golden/resize.json

Made with torch 2.11.0, torchvision 0.26.0, Pillow 13.0.0, NumPy 2.2.6.
"""
import json

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F


def picture(height, width, channels):
    """Returns noise from whole numbers, so that C++ makes the same one; the hardest case for rounding."""
    i = np.arange(height * width * channels, dtype=np.uint64)
    h = (i * np.uint64(0x9E3779B1)) & np.uint64(0xFFFFFFFF)
    h = ((h ^ (h >> np.uint64(15))) * np.uint64(0x85EBCA77)) & np.uint64(0xFFFFFFFF)
    return ((h >> np.uint64(13)) & np.uint64(255)).astype(np.uint8).reshape(height, width, channels)


# Pillow's box positions the filter, whose taps may reach beyond it; torchvision crops first. (height, width), box
# (left, top, right, bottom), output (height, width)
CASES = [
    ((40, 53), (0, 0, 53, 40), (20, 20)),
    ((40, 53), (0, 0, 53, 40), (13, 31)),
    ((40, 53), (7, 3, 41, 37), (24, 24)),
    ((40, 53), (7, 3, 41, 37), (36, 45)),
    ((17, 19), (0, 0, 19, 17), (40, 31)),
    ((90, 120), (10, 5, 118, 86), (10, 12)),
    ((90, 120), (0, 0, 120, 90), (3, 2)),
    ((24, 24), (2, 2, 22, 22), (20, 20)),
    ((40, 53), (7.25, 3.5, 41.75, 37.125), (16, 22)),
    ((40, 53), (1.6, 2.3, 30.2, 20.9), (30, 41)),
]


def main():
    out = []
    for number, ((height, width), box, (rows, columns)) in enumerate(CASES):
        for channels in (1, 3)[number % 2:]:
            image = picture(height, width, channels)
            pil = Image.fromarray(image[..., 0] if channels == 1 else image)
            item = {"height": height, "width": width, "channels": channels, "box": box,
                    "rows": rows, "columns": columns,
                    "pil": np.asarray(pil.resize((columns, rows), Image.Resampling.BILINEAR, box=box)).tobytes().hex()}
            if all(float(b).is_integer() for b in box):
                left, top, right, bottom = (int(b) for b in box)
                tensor = torch.from_numpy(image).permute(2, 0, 1)
                resized = F.resized_crop(tensor, top, left, bottom - top, right - left, [rows, columns],
                                         interpolation=InterpolationMode.BILINEAR, antialias=True)
                item["torchvision"] = resized.permute(1, 2, 0).contiguous().numpy().tobytes().hex()
            out.append(item)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
