"""Not a peer but millrace from Python: recipe and worker thread of the program, batches as arrays or tensors."""
import pymillrace as mr

from workloads import OURS


def loader(task):
    ours = next(run for run in OURS if run.name == "millrace" and task.work.name in run.works)
    batches = mr.Loader(ours.recipe, *(key.format(data=task.data) for key in ours.keys),
                        numpy=task.options.get("numpy", True))
    shape = (-1, *task.work.shape)  # without the plane of gray images, where the workload has none
    while True:
        for batch in batches:
            yield batch[0].reshape(shape), batch[1]
