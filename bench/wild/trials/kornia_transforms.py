"""kornia's augmentations, one image at a time, as the data set's transform."""
import common
import kornia.augmentation as augmentations
import torch
from torch.utils.data import DataLoader


class Images(common.Images):
    transform = augmentations.AugmentationSequential(augmentations.RandomHorizontalFlip(),
                                                     augmentations.RandomAffine(15.0))

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        torch.manual_seed(index)
        return self.transform(image)[0], label


common.train(DataLoader(Images(), common.BATCH, num_workers=common.WORKERS), epochs=2)
