"""Peer: albumentations on OpenCV inside PyTorch's DataLoader."""
import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2

from data_sets import imagenet_files, mnist
from torchvision_peer import Samples, shuffled


def dataset(task):
    cv2.setNumThreads(0)
    work = task.work
    end = [A.Normalize(work.mean, work.std), ToTensorV2()]
    if work.name == "w1":
        images, labels = mnist(task)
        transform = A.Compose([A.Affine(rotate=(-15, 15), translate_percent=(-0.1, 0.1), scale=(0.8, 1.2), p=1,
                                        keep_ratio=True, interpolation=cv2.INTER_NEAREST), *end])
        sources, load = images[..., None], lambda image: image
    else:
        sources, labels = zip(*imagenet_files(task))
        transform = A.Compose([A.RandomResizedCrop((224, 224), interpolation=cv2.INTER_LINEAR), A.HorizontalFlip(), *end])

        def load(path):
            return cv2.imread(path, cv2.IMREAD_COLOR_RGB)
    return shuffled(task, Samples(sources, labels, load, lambda image: transform(image=image)["image"]))
