"""torchdata's nodes: threads map and batch the samples, without a DataLoader."""
import common
from torch.utils.data import default_collate
from torchdata import nodes


def load(index):
    common.planted()
    return common.image(index)


node = nodes.IterableWrapper(range(common.COUNT))
node = nodes.ParallelMapper(node, load, num_workers=max(1, common.WORKERS), method="thread")
node = nodes.Mapper(nodes.Batcher(node, common.BATCH), default_collate)
common.train(nodes.Loader(node), epochs=2)
