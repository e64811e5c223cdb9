#!/usr/bin/env python3
"""Compares ways to load a Hugging Face data set of JPEG bytes: images per CPU-second, in turns.

    any_source.py DATA [--turns N] [--images N] [--workers N] [--ways NAME,...]

DATA is a folder of class folders with JPEG files, from which the data set is made and saved; it is mapped from disk, as
load_dataset() maps one. Ways: `transform`, its with_transform() in torch's DataLoader with torchvision's transforms;
`samples`, mr.Samples of it, which reads its table; `items`, mr.Samples of the same rows as any object with items;
`files`, mr.Folder of the files. All crop to 224 x 224 at random and flip. CPU seconds are those of the process and its
workers, without the first batches of a turn; ways take turns in an order that alternates. The batches of millrace's
ways are compared. Prints each way's median over the turns with its range, that of its ratio to `files` in the same
turn, and the least time per item that profile() has found for `fetch`. Needs datasets, torch and torchvision.
"""
import argparse
import itertools
import pathlib
import sys
import tempfile

from turns import cpu_s, in_turns, spread

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 32
WARM_UP = 4  # batches
WAYS = ("transform", "samples", "items", "files")


class Items:
    """Rows of a data set, so that nothing but items is known of it."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def save_data_set(folder, to):
    import datasets
    import pymillrace as mr

    files = mr.Loader(mr.Folder(folder), [mr.CenterCrop(8)], "loader.shuffle=none", batch=BATCH, numpy=True)
    rows = [(path, int(label)) for batch in files for path, label in zip(batch.names, batch.class_ids)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=files.dataset.classes)})
    columns = {"image": [{"bytes": pathlib.Path(path).read_bytes(), "path": None} for path, _ in rows],
               "label": [label for _, label in rows]}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(to)


def transformed(data, workers):
    import torch
    from torchvision import transforms

    chain = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
                                transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float),
                                transforms.Normalize(MEAN, STD)])
    rows = data.with_transform(lambda rows: {"image": [chain(image.convert("RGB")) for image in rows["image"]],
                                             "label": rows["label"]})
    return torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=workers,
                                       persistent_workers=workers > 0)


def loader_of(way, folder, saved, workers):
    import datasets
    import pymillrace as mr

    data = datasets.load_from_disk(saved)
    if way == "transform":
        return transformed(data, workers)
    source = mr.Folder(folder) if way == "files" else mr.Samples(data)
    if way == "items":
        rows = data.cast_column("image", datasets.Image(decode=False))
        source = mr.Samples(Items(rows), image="image", label="label")
    return mr.Loader(source, [mr.RandomResizedCrop(224), mr.HFlip()], f"loader.workers={workers}",
                     "loader.drop_last=true", batch=BATCH, normalize=mr.IMAGENET)


def turn(way, folder, saved, arguments):
    """Loads batches. Returns images per CPU-second and, of millrace's ways, the first batches' hash and fetch."""
    import xxhash

    loader = loader_of(way, folder, saved, arguments.workers)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    state = xxhash.xxh3_64()
    for batch in itertools.islice(batches, WARM_UP):
        for array in () if way == "transform" else batch:
            state.update(array.numpy())
    begin, count = cpu_s(), max(1, arguments.images // BATCH)
    for _ in itertools.islice(batches, count):
        pass
    rate = count * BATCH / (cpu_s() - begin)
    if way == "transform":
        return rate, None, None
    loader.close()
    first = loader.profile(64)[0]
    return rate, state.hexdigest(), first.s_per_sample if first.step == "fetch" else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--images", type=int, default=2048, help="per way and turn")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=WAYS, help="with files (default: all)")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as saved:
        save_data_set(arguments.data, saved)
        found = in_turns(arguments.ways, arguments.turns, lambda way: turn(way, arguments.data, saved, arguments))
    rates = {way: [rate for rate, _, _ in turns] for way, turns in found.items()}
    if len({digest for turns in found.values() for _, digest, _ in turns} - {None}) != 1:
        sys.exit("the batches of millrace's ways differ")
    print("| way | images per CPU-second | beside files | fetch, µs per item |")
    print("| --- | --- | --- | --- |")
    for way in arguments.ways:
        ratios = [one / files for one, files in zip(rates[way], rates["files"])]
        fetches = [fetch for _, _, fetch in found[way] if fetch is not None]
        fetch = f"{1e6 * min(fetches):.0f}" if fetches else ""
        print(f"| {way} | {spread(rates[way], 0)} | {spread(ratios, 3)} | {fetch} |")


if __name__ == "__main__":
    main()
