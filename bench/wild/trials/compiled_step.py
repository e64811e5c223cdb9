"""A compiled module, whose forward and backward run in compiled graphs. No step may recompile."""
import common
import torch
from torch.utils.data import DataLoader

torch._dynamo.config.error_on_recompile = True
net, losses = common.model(), []
step = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    for images, labels in DataLoader(common.Images(), common.BATCH, num_workers=common.WORKERS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(step(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
common.keep(losses)
