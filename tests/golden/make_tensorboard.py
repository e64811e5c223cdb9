"""Writes tensorboard.json: the bytes that TensorBoard's own writer produces for a few events.

Run it by hand with tensorboard 2.21 in a separate environment; the tests only read its result.

    python tests/golden/make_tensorboard.py           writes tensorboard.json
    python tests/golden/make_tensorboard.py RUN       prints what TensorBoard reads in a run's directory
"""
import io
import json
import pathlib
import sys

import tensorboard.version
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

# wall time; then file_version, start (of a session, from a step), or step and scalars
EVENTS = [
    dict(wall_time=1700000000.25, version="brain.Event:2"),
    dict(wall_time=1700000000.5, start=0),
    dict(wall_time=1700000001.0, start=1),
    dict(wall_time=1700000002.125, start=938),
    dict(wall_time=1700000003.5, step=1, scalars=[["train/step_loss", 2.302585]]),
    dict(wall_time=1700000003.75, step=0, scalars=[["train/step_loss", 0.0]]),
    dict(wall_time=1700000004.0, step=127, scalars=[["a", -1.5]]),
    dict(wall_time=1700000004.0, step=128, scalars=[["a", 1e-30]]),
    dict(wall_time=1700000005.0, step=9000000000000, scalars=[["test/top1", 0.9871], ["test/loss", 0.04], ["größe", 1e30]]),
    dict(wall_time=1700000006.0, step=300, scalars=[["tag/" + "x" * 300, 3.25]]),
]


def message(event):
    one = event_pb2.Event(wall_time=event["wall_time"], step=event.get("step", event.get("start", 0)))
    if "version" in event:
        one.file_version = event["version"]
    elif "start" in event:
        one.session_log.status = event_pb2.SessionLog.START
    else:
        for tag, value in event["scalars"]:
            one.summary.value.append(summary_pb2.Summary.Value(tag=tag, simple_value=value))
    return one.SerializeToString()


def record(event):
    class Kept(io.BytesIO):
        def close(self):
            pass

    file = Kept()
    writer = RecordWriter(file)
    writer.write(message(event))
    writer.flush()
    return file.getvalue().hex()


def show(run):
    from tensorboard.backend.event_processing import event_accumulator, event_file_loader

    for path in sorted(pathlib.Path(run).glob("events.out.tfevents.*")):
        events = list(event_file_loader.EventFileLoader(str(path)).Load())
        print(path.name, len(events), "events,", events[0].file_version)
    read = event_accumulator.EventAccumulator(str(run), size_guidance={event_accumulator.TENSORS: 0})
    read.Reload()
    for tag in sorted(read.Tags()["scalars"]):
        points = [f"{point.step}:{point.value:.6g}" for point in read.Scalars(tag)]
        print(f"{tag}: {len(points)} points", *(points if len(points) < 9 else points[:4] + ["..."] + points[-4:]))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        show(sys.argv[1])
    else:
        path = pathlib.Path(__file__).with_name("tensorboard.json")
        cases = [dict(event, record=record(event)) for event in EVENTS]
        path.write_text(json.dumps(dict(tensorboard=tensorboard.version.VERSION, events=cases)).replace("}, {", "},\n {")
                        + "\n")
        print("wrote", path)
