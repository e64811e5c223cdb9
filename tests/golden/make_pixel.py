"""Makes golden values for tests/augment/pixel_golden_test.cpp with torchvision.transforms.v2 on 8-bit tensors. Run by
hand:

    python tests/golden/make_pixel.py > tests/golden/pixel.json

Made with torch 2.11.0, torchvision 0.26.0, NumPy 2.2.6, on a processor with AVX-512.
"""
import base64
import json
import zlib

import numpy as np
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import AutoAugment, AutoAugmentPolicy, RandAugment, TrivialAugmentWide
from torchvision.transforms.v2 import functional as F

H, W = 18, 26


def picture(kind, channels, height=H, width=W):
    """Makes pictures from whole numbers, so that C++ makes the same ones: smooth with edges, rough, dull."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    if kind == "smooth":
        levels = (x * 7 + y * 11 + c * 40 + (x // 9 + y // 6) % 2 * 60) % 256
    elif kind == "rough":
        levels = (x * x * 31 + y * y * 17 + x * y * 13 + c * 101 + (x * 5 + y * 3) % 11 * (c + 1) * 23) % 256
    elif kind == "dull":
        levels = 90 + (x * 3 + y * 5 + c * 7) % 32
    else:
        levels = np.full_like(x, 77) + c
    return torch.from_numpy(levels.astype(np.uint8)).permute(2, 0, 1).contiguous()


def text(image):
    """Returns interleaved pixels in base64."""
    return base64.b64encode(image.permute(1, 2, 0).contiguous().numpy().tobytes()).decode()


def pixel_cases():
    """Returns (unit as in a recipe, torchvision's equivalent)."""
    yield "invert{p=1}", F.invert
    for bits in (0, 1, 4, 8):
        yield f"posterize{{p=1,bits={bits}}}", lambda i, bits=bits: F.posterize(i, bits)
    for threshold in (0, 100.5, 128, 255):
        yield f"solarize{{p=1,threshold={threshold}}}", lambda i, t=threshold: F.solarize(i, t)
    yield "autocontrast{p=1}", F.autocontrast
    yield "equalize{p=1}", F.equalize
    yield "grayscale{p=1}", lambda i: F.rgb_to_grayscale(i, num_output_channels=i.shape[0])
    for factor in (0, 0.35, 1.7):
        yield f"brightness{{factor={factor}}}", lambda i, f=factor: F.adjust_brightness(i, f)
        yield f"contrast{{factor={factor}}}", lambda i, f=factor: F.adjust_contrast(i, f)
        yield f"saturation{{factor={factor}}}", lambda i, f=factor: F.adjust_saturation(i, f)
    for turn in (-0.5, -0.13, 0.0, 0.25):
        yield f"hue{{turn={turn}}}", lambda i, t=turn: F.adjust_hue(i, t)
    for factor in (0, 0.5, 2.3):
        yield f"sharpness{{p=1,sharpness_factor={factor}}}", lambda i, f=factor: F.adjust_sharpness(i, f)
    for quality in (1, 10, 50, 75, 95, 100):
        yield f"jpeg_compression{{p=1,quality=[{quality}]}}", lambda i, q=quality: F.jpeg(i, q)
    for size, sigma in (([3, 3], 0.8), ([5, 9], 1.7), ([23, 23], 4.0), ([1, 7], 0.1)):
        yield (f"gaussian_blur{{kernel_size={json.dumps(size)},sigma=[{sigma}]}}",
               lambda i, k=size, s=sigma: F.gaussian_blur(i, k, [s, s]))


NAMES = {"ShearX": "shear_x", "ShearY": "shear_y", "TranslateX": "translate_x", "TranslateY": "translate_y",
         "Rotate": "rotate", "Brightness": "brightness", "Color": "saturation", "Contrast": "contrast",
         "Sharpness": "sharpness", "Posterize": "posterize", "Solarize": "solarize", "AutoContrast": "autocontrast",
         "Equalize": "equalize", "Invert": "invert"}


def warp_case(unit, transform, op, magnitude):
    """Returns one operation at one magnitude, applied as in torchvision's own code."""
    image = transform._apply_image_or_video_transform(
        picture("smooth", 1), op, magnitude, InterpolationMode.NEAREST, {torch.Tensor: None, "others": None})
    amount = magnitude
    if op in ("Brightness", "Color", "Contrast", "Sharpness"):
        amount = 1 + magnitude
    if op == "Solarize":
        amount = 255 * magnitude
    if op.startswith("Translate") and unit != "trivial_augment":
        amount = magnitude / (W if op.endswith("X") else H)
    return {"unit": unit, "op": NAMES[op], "amount": amount, "image": text(image)}


def warp_cases():
    """Returns the operations of RandAugment and TrivialAugmentWide, then those of AutoAugment's policies."""
    for unit, transform, bins in (("rand_augment", RandAugment(), [9]),
                                  ("trivial_augment", TrivialAugmentWide(), [4, 17])):
        for op, (magnitudes_of, signed) in transform._AUGMENTATION_SPACE.items():
            magnitudes = magnitudes_of(31, H, W)
            for bin in bins:
                for sign in (1, -1) if signed else (1,):
                    if op == "Identity" or (magnitudes is None and bin != bins[0]):
                        continue
                    magnitude = 0.0 if magnitudes is None else float(magnitudes[bin]) * sign
                    yield warp_case(unit, transform, op, magnitude)
    transform = AutoAugment()
    steps = {(op, bin) for policy in AutoAugmentPolicy for pair in transform._get_policies(policy)
             for op, probability, bin in pair if probability > 0}
    for op, bin in sorted(steps, key=str):
        magnitudes_of, signed = transform._AUGMENTATION_SPACE[op]
        for sign in (1, -1) if signed and bin else (1,):
            magnitude = 0.0 if bin is None else float(magnitudes_of(10, H, W)[bin]) * sign
            yield warp_case("auto_augment", transform, op, magnitude)


def policies():
    """Returns AutoAugment's policies: pairs of (operation, probability, magnitude)."""
    transform = AutoAugment()
    return {policy.value: [[[NAMES[op], probability, bin or 0] for op, probability, bin in pair]
                           for pair in transform._get_policies(policy)] for policy in AutoAugmentPolicy}


def elastic_cases():
    """Returns displacements in pixels, passed to the functional."""
    y, x = np.meshgrid(np.arange(H), np.arange(W), indexing="ij")
    # Multiples of 1/64 are exact in single precision.
    dx = ((x * 5 + y * 3) % 97 - 48) / 16.0 + 1 / 64
    dy = ((x * 2 + y * 7) % 89 - 44) / 16.0 + 1 / 64
    grid = torch.from_numpy(np.stack([dx * 2 / W, dy * 2 / H], -1))[None].to(torch.float32)
    for channels in (1, 3):
        for mode in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR):
            # Without a fill, because with one torchvision weights edge pixels with their coverage twice.
            fill = [40.0] * channels if mode == InterpolationMode.NEAREST else None
            image = F.elastic(picture("smooth", channels), grid, interpolation=mode, fill=fill)
            yield {"channels": channels, "interpolation": mode.value, "image": text(image)}


def colour_cases():
    """Returns the CRC-32 of the results for all 2^24 colours; red counts fastest."""
    i = torch.arange(1 << 24)
    colours = torch.stack([i & 255, i >> 8 & 255, i >> 16]).to(torch.uint8).view(3, 4096, 4096)
    cases = {"grayscale{p=1}": F.rgb_to_grayscale(colours, num_output_channels=3)}
    for factor in (0.3, 0.7, 1.4):
        cases[f"saturation{{factor={factor}}}"] = F.adjust_saturation(colours, factor)
    for turn in (-0.31, 0.0, 0.05, 0.5):
        cases[f"hue{{turn={turn}}}"] = F.adjust_hue(colours, turn)
    return {unit: zlib.crc32(image.permute(1, 2, 0).contiguous().numpy().tobytes()) for unit, image in cases.items()}


def main():
    out = {"height": H, "width": W, "pixel": [], "warp": list(warp_cases()), "elastic": list(elastic_cases()),
           "colours": colour_cases(), "policies": policies()}
    for unit, function in pixel_cases():
        for kind, channels in (("smooth", 3), ("rough", 3), ("smooth", 1), ("dull", 3)):
            if kind == "dull" and not unit.startswith(("autocontrast", "equalize", "contrast")):
                continue
            if kind == "smooth" and channels == 3 and unit.startswith(("posterize", "solarize")):
                continue
            image = function(picture(kind, channels))
            out["pixel"].append({"unit": unit, "picture": kind, "channels": channels, "image": text(image)})
    for unit in ("autocontrast{p=1}", "equalize{p=1}", "contrast{factor=1.7}"):
        function = dict(pixel_cases())[unit]
        out["pixel"].append({"unit": unit, "picture": "flat", "channels": 3, "image": text(function(picture("flat", 3)))})
    print(json.dumps(out, indent=0))


if __name__ == "__main__":
    main()
