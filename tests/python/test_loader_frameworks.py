"""mr.Loader in loops of Lightning, of Hugging Face's Trainer and after timm's: a plain loop's batches, also resumed."""
import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)

import pymillrace as mr
from batches import SYNTHETIC, Hash

WORDS = (*SYNTHETIC, "data.synthetic.count=150", "loader.batch=32")  # five batches per epoch, the last of 22
STEPS = 5


def expected():
    """Returns the hashes of two epochs."""
    loader = mr.Loader(*WORDS)
    return [Hash().add(batch).text() for _ in range(2) for batch in loader]


@pytest.fixture
def lightning():
    return pytest.importorskip("lightning", reason="NOT TESTED: lightning is missing")


def fit(lightning, folder, workers, saves_at=None, resumes=None):
    """Trains two epochs with Lightning's Trainer. Returns the hash of each batch that it trained on."""
    seen = []

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(32 * 32, 10)

        def training_step(self, batch, _):
            seen.append(Hash().add(batch).text())
            return torch.nn.functional.cross_entropy(self.layer(batch[0].flatten(1)), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    class Saves(lightning.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == saves_at:
                trainer.save_checkpoint(folder / "last.ckpt")

    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
                                callbacks=[Saves()])
    trainer.fit(Model(), mr.Loader(*WORDS, f"loader.workers={workers}"), ckpt_path=resumes)
    return seen


@pytest.mark.parametrize("step", (3, STEPS + 2))
def test_lightning_trains_on_every_batch_and_resumes_in_an_epoch(tmp_path, lightning, step):
    whole = expected()
    assert fit(lightning, tmp_path, workers=1, saves_at=step) == whole
    assert fit(lightning, tmp_path, workers=2, resumes=tmp_path / "last.ckpt") == whole[step:]


def test_hugging_face_trainer_takes_its_dictionaries_and_resumes_at_an_epoch(tmp_path):
    transformers = pytest.importorskip("transformers", reason="NOT TESTED: transformers is missing")
    pytest.importorskip("accelerate", reason="NOT TESTED: accelerate is missing")
    loader, seen = mr.Loader(*WORDS, keys=("pixel_values", "labels")), []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(32 * 32, 10)

        def forward(self, pixel_values, labels):
            seen.append(Hash().add((pixel_values, labels)).text())
            logits = self.layer(pixel_values.flatten(1))
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return loader

    options = transformers.TrainingArguments(output_dir=str(tmp_path), num_train_epochs=2, report_to=[],
                                             save_strategy="epoch", use_cpu=True, disable_tqdm=True)
    done = Trainer(Model(), options, train_dataset=loader.dataset).train()
    assert seen == expected() and done.global_step == 2 * STEPS
    loader, seen[:] = mr.Loader(*WORDS, "loader.workers=2", keys=("pixel_values", "labels")), []
    Trainer(Model(), options, train_dataset=loader.dataset).train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert seen == expected()[STEPS:]


def test_a_loop_as_timms_script_has_it(tmp_path):
    """timm has its loop in a script: it asks for these attributes, and for the sampler's epoch where there is one."""
    utils = pytest.importorskip("timm.utils", reason="NOT TESTED: timm is missing")
    loader, meter, seen = mr.Loader(*WORDS), utils.AverageMeter(), []
    model = torch.nn.Linear(32 * 32, 10)
    for epoch in range(2):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        last = len(loader) - 1
        for index, (images, labels) in enumerate(loader):
            seen.append(Hash().add((images, labels)).text())
            logits = model(images.flatten(1))
            meter.update(utils.accuracy(logits, labels, topk=(1,))[0].item(), images.size(0))
            assert index <= last
    assert seen == expected() and meter.count == 2 * len(loader.dataset)
