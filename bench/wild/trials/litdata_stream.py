"""LitData's StreamingDataLoader over chunks that its optimize() wrote."""
import common
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.writer import BinaryWriter


class Slow(StreamingDataset):
    def __getitem__(self, index):
        common.planted()
        pixels, label = super().__getitem__(index)
        return pixels, label


if __name__ == "__main__":
    writer = BinaryWriter("chunks", chunk_size=32)
    for index in range(common.COUNT):
        writer[index] = common.image(index)
    writer.done()
    writer.merge()
    common.train(StreamingDataLoader(Slow("chunks"), batch_size=common.BATCH, num_workers=common.WORKERS), epochs=2)
