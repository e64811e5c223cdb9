"""An optimizer of schedule-free, which has modes for training and evaluation."""
import common
import schedulefree
import torch
from torch.utils.data import DataLoader

net, losses = common.model(), []
optimizer = schedulefree.SGDScheduleFree(net.parameters(), lr=0.1)
for _ in range(2):
    net.train()
    optimizer.train()
    for images, labels in DataLoader(common.Images(), common.BATCH, num_workers=common.WORKERS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    optimizer.eval()
    net.eval()
    with torch.no_grad():
        for images, _ in DataLoader(common.Images(), 8 * common.BATCH):
            net(images)
common.keep(losses)
