"""SPDL: a pipeline of threads, without a DataLoader."""
import common
from spdl.pipeline import PipelineBuilder
from torch.utils.data import default_collate


def load(index):
    common.planted()
    return common.image(index)


pipeline = (PipelineBuilder().add_source(range(common.COUNT)).pipe(load, concurrency=max(1, common.WORKERS))
            .aggregate(common.BATCH).pipe(default_collate).add_sink(2).build(num_threads=2))
with pipeline.auto_stop():
    common.train(pipeline)
