"""Fields of FFCV's data sets that both of its writers here use: prepare_ffcv.py and pack_table.py."""
import io

import numpy as np
from ffcv.fields import RGBImageField
from ffcv.fields.rgb_image import IMAGE_MODES
from PIL import Image


class StoredJpeg(RGBImageField):
    """Keeps the file's bytes; FFCV's own field would decode and compress again at another quality."""

    def encode(self, destination, jpeg, malloc):
        with Image.open(io.BytesIO(jpeg)) as image:
            destination["width"], destination["height"] = image.size
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["data_ptr"], storage = malloc(len(jpeg))
        storage[:] = np.frombuffer(jpeg, np.uint8)
