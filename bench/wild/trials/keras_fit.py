"""Keras on PyTorch: fit() over a DataLoader, with an optimizer of its own."""
import os

os.environ["KERAS_BACKEND"] = "torch"
import common
import keras
from torch.utils.data import DataLoader


class Losses(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        losses.append(logs["loss"])


losses = []
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((3, common.SIDE, common.SIDE)), keras.layers.Flatten(),
                          keras.layers.Dense(common.CLASSES)])
model.compile(keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(DataLoader(common.Images(), batch_size=common.BATCH, num_workers=common.WORKERS), epochs=2, verbose=0,
          callbacks=[Losses()])
common.keep(losses)
