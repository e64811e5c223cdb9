"""fastai's Learner, whose DataLoader is a class of its own that uses torch's iterators."""
import common
import torch
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.callback.core import Callback


class Losses(Callback):
    def before_fit(self):
        self.losses = []

    def after_step(self):
        self.losses.append(self.learn.loss.item())


loaders = DataLoaders(DataLoader(common.Images(), bs=common.BATCH, num_workers=common.WORKERS),
                      DataLoader(common.Images(), bs=8 * common.BATCH))
losses = Losses()
Learner(loaders, common.model(), loss_func=torch.nn.CrossEntropyLoss(), cbs=[losses]).fit(2, 0.01)
common.keep(losses.losses)
