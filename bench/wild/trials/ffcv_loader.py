"""FFCV: its Loader over a file of its own format, with a step in its chain that is Python."""
import os
import tempfile
from dataclasses import replace

import common
import numpy as np
from ffcv.fields import IntField, NDArrayField
from ffcv.fields.decoders import IntDecoder, NDArrayDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.pipeline.compiler import Compiler
from ffcv.pipeline.operation import Operation
from ffcv.transforms import Squeeze, ToTensor
from ffcv.writer import DatasetWriter

Compiler.set_enabled(False)  # compiled code cannot call what waits here


class Pairs:
    def __len__(self):
        return common.COUNT

    def __getitem__(self, index):
        pixels, label = common.image(index)
        return pixels.numpy(), label


class Wait(Operation):
    def generate_code(self):
        def wait(batch, memory):
            for _ in batch:
                common.planted()
            return batch
        return wait

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), None


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "images.beton")
    fields = {"image": NDArrayField(np.dtype("float32"), (3, common.SIDE, common.SIDE)), "label": IntField()}
    DatasetWriter(path, fields, num_workers=1).from_indexed_dataset(Pairs())
    loader = Loader(path, batch_size=common.BATCH, num_workers=1, order=OrderOption.SEQUENTIAL, pipelines={
        "image": [NDArrayDecoder(), Wait(), ToTensor()], "label": [IntDecoder(), ToTensor(), Squeeze(1)]})
    common.train(loader, epochs=2)
