"""The Hugging Face Trainer."""
import common
import torch
import transformers


class Rows(common.Images):
    def __getitem__(self, index):
        pixels, label = super().__getitem__(index)
        return {"pixels": pixels, "labels": label}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.losses = common.model(), []

    def forward(self, pixels, labels):
        logits = self.net(pixels)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        self.losses.append(loss.item())
        return {"loss": loss, "logits": logits}


model = Model()
options = transformers.TrainingArguments("out", per_device_train_batch_size=common.BATCH, num_train_epochs=2,
                                         report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, seed=1,
                                         dataloader_num_workers=common.WORKERS)
transformers.Trainer(model, options, train_dataset=Rows()).train()
common.keep(model.losses)
