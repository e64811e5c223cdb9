"""TorchTNT's train(), with a unit that steps itself."""
import common
import torch
from torch.utils.data import DataLoader
from torchtnt.framework.train import train
from torchtnt.framework.unit import TrainUnit


class Unit(TrainUnit):
    def __init__(self):
        super().__init__()
        self.net = common.model()
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)

    def train_step(self, state, data):
        images, labels = data
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.net(images), labels)
        loss.backward()
        self.optimizer.step()
        losses.append(loss.item())


losses = []
train(Unit(), DataLoader(common.Images(), batch_size=common.BATCH, num_workers=common.WORKERS), max_epochs=2)
common.keep(losses)
