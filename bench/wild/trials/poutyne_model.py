"""Poutyne's Model.fit_generator()."""
import common
from poutyne import Callback, Model
from torch.utils.data import DataLoader


class Losses(Callback):
    def on_train_batch_end(self, batch_number, logs):
        losses.append(logs["loss"])


losses = []
loader = DataLoader(common.Images(), batch_size=common.BATCH, num_workers=common.WORKERS)
Model(common.model(), "sgd", "cross_entropy").fit_generator(loader, epochs=2, callbacks=[Losses()], verbose=False)
common.keep(losses)
