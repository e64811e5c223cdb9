"""MosaicML Streaming: a local directory of shards, read by its own data set and loader."""
import common
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset


class Images(StreamingDataset):
    def __getitem__(self, index):
        common.planted()
        return common.image(super().__getitem__(index)["index"])


with MDSWriter(out="shards", exist_ok=True, columns={"index": "int"}, size_limit=256) as writer:
    for index in range(common.COUNT):
        writer.write({"index": index})
data = Images(local="shards", batch_size=common.BATCH, shuffle=False)
common.train(StreamingDataLoader(data, batch_size=common.BATCH, num_workers=common.WORKERS), epochs=2)
