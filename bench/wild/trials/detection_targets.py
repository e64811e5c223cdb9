"""Lists of images and of targets, as torchvision's detection loops have them: 6 tensors per image."""
import common
import torch


class Scenes(common.Images):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        target = {"boxes": torch.rand(2, 4), "labels": torch.full((2,), label), "image_id": torch.tensor([index]),
                  "area": torch.rand(2), "iscrowd": torch.zeros(2, dtype=torch.long)}
        return image, target


def collate(samples):
    return tuple(zip(*samples))


net, losses = common.model(), []
optimizer = torch.optim.SGD(net.parameters(), 0.1)
loader = torch.utils.data.DataLoader(Scenes(), batch_size=common.BATCH, num_workers=common.WORKERS, collate_fn=collate)
for _ in range(2):
    for images, targets in loader:
        optimizer.zero_grad()
        labels = torch.stack([target["labels"][0] for target in targets])
        loss = torch.nn.functional.cross_entropy(net(torch.stack(images)), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
common.keep(losses)
