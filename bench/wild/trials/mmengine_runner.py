"""MMEngine's Runner, which builds optimizer and loop from configurations."""
import common
import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch.utils.data import DataLoader


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.net = common.model()

    def forward(self, images, labels, mode="loss"):
        loss = torch.nn.functional.cross_entropy(self.net(images), labels)
        losses.append(loss.item())
        return {"loss": loss}


losses = []
loader = DataLoader(common.Images(), batch_size=common.BATCH, num_workers=common.WORKERS)
Runner(model=Model(), work_dir="work", train_dataloader=loader, train_cfg={"by_epoch": True, "max_epochs": 2},
       optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}}, log_level="ERROR", default_hooks={"checkpoint": None},
       default_scope=None).train()
common.keep(losses)
