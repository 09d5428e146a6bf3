"""One stage of a small pipeline over gloo, watched by the torch profiler. Started once for each rank.

Usage: pipeline_worker.py OUT JSON, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. The JSON says:
compute_ms of each stage, units, bytes that are sent of each unit, input_ms between units at the first stage,
annotate (computing is annotated, and is no operator), suffix of the file.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function


@torch.library.custom_op("stage::layers", mutates_args=())
def layers(tensor: torch.Tensor, seconds: float) -> torch.Tensor:
    """An operator that takes its time and no processor, so that ranks do not disturb each other."""
    time.sleep(seconds)
    return tensor.clone()


def work(number: int, tensor: torch.Tensor, job: dict[str, Any]) -> None:
    """One unit of work in this rank's stage."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    seconds = job["compute_ms"][rank] / 1000
    if rank:
        dist.recv(tensor, rank - 1)
    elif job["input_ms"]:
        time.sleep(job["input_ms"] / 1000)  # no request has come
    if job["annotate"]:
        with record_function(f"forward {number}"):
            time.sleep(seconds)
    else:
        layers(tensor, seconds)
    if rank < last:
        dist.send(tensor, rank + 1)


def main(out: Path, job: dict[str, Any]) -> None:
    """Run this rank's stage and write its trace."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tensor = torch.ones(job["bytes"] // 4)
    for number in range(2):  # connections are made and operators compiled before the trace begins
        work(number, tensor, job)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as watched:
        dist.barrier()
        for number in range(job["units"]):
            work(number, tensor, job)
    watched.export_chrome_trace(str(out / f"rank{dist.get_rank()}.json{job['suffix']}"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
