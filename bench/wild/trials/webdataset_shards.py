"""WebDataset: samples of tar archives, batched by its own pipeline in torch's workers."""
import io
import tarfile

import common
import torch
import webdataset as wds


def decoded(sample):
    common.planted()
    return torch.load(io.BytesIO(sample["image.pt"])), int(sample["cls"])


for shard in range(4):
    with tarfile.open(f"shard-{shard}.tar", "w") as archive:
        for index in range(shard, common.COUNT, 4):
            pixels, label = common.image(index)
            buffer = io.BytesIO()
            torch.save(pixels, buffer)
            for name, data in (("image.pt", buffer.getvalue()), ("cls", str(label).encode())):
                entry = tarfile.TarInfo(f"{index:04d}.{name}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
data = wds.WebDataset("shard-{0..3}.tar", shardshuffle=False).map(decoded).batched(common.BATCH)
common.train(wds.WebLoader(data, batch_size=None, num_workers=common.WORKERS), epochs=2)
