"""accelerate: prepared loader and optimizer, with accumulated gradients."""
import common
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = common.model()
loader = DataLoader(common.Images(), common.BATCH, num_workers=common.WORKERS)
net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1), loader)
losses = []
for _ in range(2):
    for images, labels in loader:
        with accelerator.accumulate(net):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
common.keep(losses)
