"""torchvision's side of weights_peer_test.cpp. Reads and writes safetensors by its own code, written after the
format's README.

    python weights_peer.py check                    exit 0 if torch and torchvision are installed
    python weights_peer.py write MODEL WEIGHTS CASE random weights, images and their logits
    python weights_peer.py read MODEL WEIGHTS CASE  loads by name (strict) and compares with the case's logits
"""
import json
import struct
import sys

import torch
import torchvision

TYPES = {"F32": torch.float32, "I64": torch.int64}


def save(file, tensors):
    header, offset = {}, 0
    for name, tensor in tensors.items():
        dtype = next(key for key, value in TYPES.items() if value == tensor.dtype)
        size = tensor.numel() * tensor.element_size()
        header[name] = dict(dtype=dtype, shape=list(tensor.shape), data_offsets=[offset, offset + size])
        offset += size
    text = json.dumps(header).encode()
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            out.write(tensor.contiguous().numpy().tobytes())


def load(file):
    with open(file, "rb") as source:
        header = json.loads(source.read(struct.unpack("<Q", source.read(8))[0]))
        data = source.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        value = torch.frombuffer(bytearray(data[begin:end]), dtype=TYPES[entry["dtype"]])
        tensors[name] = value.reshape(entry["shape"])
    return tensors


def write(net, weights, case):
    with torch.no_grad():
        for name, buffer in net.named_buffers():  # as after some training
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
            elif name.endswith("num_batches_tracked"):
                buffer.fill_(7)
        images = torch.randn(2, 3, 64, 64)
        save(weights, net.state_dict())
        save(case, dict(images=images, logits=net(images)))


def read(net, weights, case):
    net.load_state_dict(load(weights), strict=True)
    expected = load(case)
    with torch.no_grad():
        logits = net(expected["images"])
    worst = ((logits - expected["logits"]).abs().max() / logits.abs().max()).item()
    print(f"largest difference {worst:.3g} of the largest logit")
    return 0 if worst < 1e-4 else 1


if sys.argv[1] == "check":
    sys.exit(0)
command, model, weights_file, case_file = sys.argv[1:]
torch.manual_seed(11)
torch.set_num_threads(1)
network = getattr(torchvision.models, model)().eval()
sys.exit(globals()[command](network, weights_file, case_file) if command in ("write", "read") else 2)
