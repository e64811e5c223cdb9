"""Makes golden values for tests/augment/golden_test.cpp with torchvision. Run by hand:

    python tests/golden/make_augment.py > tests/golden/augment.json

Made with torch 2.11.0, torchvision 0.26.0, Pillow 13.0.0, NumPy 2.2.6.
"""
import json

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, Normalize
from torchvision.transforms import functional as F

H, W = 20, 28


def picture(channels):
    """Returns a smooth picture with an edge, from whole numbers, so that C++ makes the same one."""
    y, x, c = np.meshgrid(np.arange(H), np.arange(W), np.arange(channels), indexing="ij")
    return ((x * 7 + y * 11 + c * 40 + (x // 9 + y // 6) % 2 * 60) % 256).astype(np.uint8)


def affine_cases():
    shears = [(0.0, 0.0), (12.0, 0.0), (-8.0, 15.0)]
    for degrees, translate, scale in [(0.0, (0, 0), 1.0), (15.0, (2, -3), 0.8), (-11.25, (-1, 0), 1.2),
                                      (90.0, (0, 0), 1.0), (37.5, (4, 1), 1.0), (180.0, (0, 0), 0.5)]:
        for shear in shears:
            yield degrees, translate, scale, shear


def main():
    out = {"height": H, "width": W, "affine": [], "levels": []}
    tensor = torch.from_numpy(picture(1)).permute(2, 0, 1)
    pil = Image.fromarray(picture(1)[..., 0])
    for degrees, translate, scale, shear in affine_cases():
        center = [W * 0.5, H * 0.5]
        args = dict(angle=degrees, translate=list(translate), scale=scale, shear=list(shear))
        near = F.affine(tensor, interpolation=InterpolationMode.NEAREST, fill=[37], **args)
        near_pil = np.asarray(F.affine(pil, interpolation=InterpolationMode.NEAREST, fill=[37], **args))
        # Without a fill, because with one torchvision multiplies edge pixels by their coverage twice.
        line = F.affine(tensor, interpolation=InterpolationMode.BILINEAR, **args)
        out["affine"].append({
            "degrees": degrees, "translate": translate, "scale": scale, "shear": shear,
            "matrix": F._get_inverse_affine_matrix(center, degrees, list(translate), scale, list(shear)),
            "nearest": bytes(near.numpy().tobytes()).hex(),
            "nearest_pil": bytes(near_pil.tobytes()).hex(),
            "bilinear": bytes(line.numpy().tobytes()).hex(),
        })
    for mean, std in [(0.1307, 0.3081), (0.5, 0.5), (0.485, 0.229), (0.0, 1.0)]:
        levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 256)
        values = Normalize([mean], [std])(levels.to(torch.float32).div(255)).flatten()
        out["levels"].append({"mean": mean, "std": std,
                              "bits": values.numpy().view(np.uint32).astype(">u4").tobytes().hex()})
    print(json.dumps(out))


if __name__ == "__main__":
    main()
