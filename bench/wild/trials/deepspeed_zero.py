"""DeepSpeed on one rank: its engine keeps the optimizer, with ZeRO's stage 2."""
import os
import socket

import common
import torch
from torch.utils.data import DataLoader

os.environ["DS_ACCELERATOR"] = "cpu"
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]), RANK="0", LOCAL_RANK="0",
                      WORLD_SIZE="1")
import deepspeed

net = common.model()
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={
    "train_micro_batch_size_per_gpu": common.BATCH, "zero_optimization": {"stage": 2},
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}}})
losses = []
for _ in range(2):
    for images, labels in DataLoader(common.Images(), common.BATCH, num_workers=common.WORKERS):
        loss = torch.nn.functional.cross_entropy(engine(images), labels)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
common.keep(losses)
