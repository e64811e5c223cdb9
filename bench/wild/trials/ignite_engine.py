"""pytorch-ignite's Engine, which drives the loop."""
import common
import torch
from ignite.engine import Events, create_supervised_trainer
from torch.utils.data import DataLoader

net, losses = common.model(), []
trainer = create_supervised_trainer(net, torch.optim.SGD(net.parameters(), 0.1), torch.nn.CrossEntropyLoss())
trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
trainer.run(DataLoader(common.Images(), common.BATCH, num_workers=common.WORKERS), max_epochs=2)
common.keep(losses)
