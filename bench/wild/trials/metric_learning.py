"""pytorch-metric-learning: a sampler of classes, a miner and a loss of pairs."""
import common
import numpy as np
import torch
from pytorch_metric_learning.losses import ContrastiveLoss
from pytorch_metric_learning.samplers import MPerClassSampler
from torch.utils.data import DataLoader

np.random.seed(1)  # the sampler's
labels_of = [index % common.CLASSES for index in range(common.COUNT)]
sampler = MPerClassSampler(labels_of, m=2, batch_size=common.BATCH, length_before_new_iter=common.COUNT)
net, criterion, losses = common.model(), ContrastiveLoss(), []
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    for images, labels in DataLoader(common.Images(), common.BATCH, sampler=sampler, num_workers=common.WORKERS):
        optimizer.zero_grad()
        loss = criterion(net(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
common.keep(losses)
