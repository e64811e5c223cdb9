"""DALI: its iterator for PyTorch over a pipeline on the CPU, whose source calls Python for each image."""
import common
import numpy as np
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy


def loaded(sample):
    if sample.idx_in_epoch >= common.COUNT:
        raise StopIteration
    common.planted()
    pixels, label = common.image(sample.idx_in_epoch)
    return pixels.numpy(), np.array([label])


@pipeline_def(batch_size=common.BATCH, num_threads=1, device_id=None, prefetch_queue_depth=1)
def pipeline():
    return tuple(fn.external_source(source=loaded, num_outputs=2, batch=False))


class Pairs:
    def __init__(self):
        self.iterator = DALIClassificationIterator(pipeline(), auto_reset=True, last_batch_policy=LastBatchPolicy.DROP)

    def __iter__(self):
        return ((batch[0]["data"], batch[0]["label"].squeeze(1)) for batch in self.iterator)


common.train(Pairs(), epochs=2)
