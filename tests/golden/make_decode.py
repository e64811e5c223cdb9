"""Makes golden values for tests/data/decoder_test.cpp with Pillow. Run by hand:

    python tests/golden/make_decode.py > tests/golden/decode.json

Made with Pillow 13.0.0 (libjpeg-turbo 3.2.0), NumPy 2.2.6.
"""
import io
import json

import numpy as np
from PIL import Image, ImageOps


def picture(channels, width, height):
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    return ((x * 9 + y * 5 + c * 60 + (x // 7 + y // 6) % 2 * 50) % 256).astype(np.uint8)


def encoded(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=95, **options)
    return out.getvalue()


def without_adobe(file):
    at = file.index(b"\xff\xee")
    return file[:at] + file[at + 2 + int.from_bytes(file[at + 2:at + 4], "big"):]


def as_ycck(file):
    """Declares the same numbers to be YCCK, by the last byte of Adobe's marker."""
    at = file.index(b"\xff\xee")
    last = at + 1 + int.from_bytes(file[at + 2:at + 4], "big")
    assert file[last] == 0
    return file[:last] + b"\x02" + file[last + 1:]


def levels(image):
    return np.asarray(image).tobytes().hex()


def main():
    out = {"cmyk": [], "orientation": []}
    cmyk = encoded(Image.frombytes("CMYK", (27, 18), picture(4, 27, 18).tobytes()), subsampling=0)
    for name, file in [("adobe", cmyk), ("plain", without_adobe(cmyk)), ("ycck", as_ycck(cmyk))]:
        image = Image.open(io.BytesIO(file))
        assert image.mode == "CMYK"
        out["cmyk"].append({"name": name, "file": file.hex(), "rgb": levels(image.convert("RGB")),
                            "gray": levels(image.convert("L"))})
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        file = encoded(Image.fromarray(picture(3, 11, 7)), exif=exif)
        seen = ImageOps.exif_transpose(Image.open(io.BytesIO(file)))
        out["orientation"].append({"file": file.hex(), "width": seen.width, "height": seen.height,
                                   "rgb": levels(seen)})
    print(json.dumps(out))


if __name__ == "__main__":
    main()
