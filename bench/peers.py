"""Times cuBLAS alone, and followed by NCCL on two or more GPUs: what the GPU benchmarks are held against.

torchrun --nproc-per-node 2 bench/peers.py OUT.jsonl    (PyTorch with CUDA; one process a GPU)

Ten calls a CUDA graph, the median of many replays, the slowest rank; microseconds of one call.
"""

import functools
import json
import statistics
import sys

import torch
import torch.distributed as dist

N, K, CALLS, REPLAYS, WARM_UPS = 8192, 4096, 10, 20, 3


def time_us(body):
    """Microseconds of one call, the slowest rank's median."""
    body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            body()
    times = []
    for replay in range(REPLAYS + WARM_UPS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if replay >= WARM_UPS:
            times.append(begin.elapsed_time(end) * 1e3 / CALLS)
    slowest = torch.tensor([statistics.median(times)], device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def normal(*shape):
    """Random numbers on this rank's GPU."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def times_of(rows, world):
    """Yields operator, depth, way and microseconds for products of so many rows."""
    y, part, received = normal(rows, N), normal(rows // world, N), normal(rows, N)
    for k in (512, K):  # those of depth K are what collectives follow
        x, w = normal(rows, k), normal(k, N)
        alone = time_us(functools.partial(torch.mm, x, w, out=y))
        yield "gemm", k, "cublas", alone
    if world == 1:
        return
    own = normal(rows // world, K)
    bodies = {
        "gemm_all_reduce": lambda: (torch.mm(x, w, out=y), dist.all_reduce(y)),
        "gemm_reduce_scatter": lambda: (torch.mm(x, w, out=y), dist.reduce_scatter_tensor(part, y)),
        "all_gather_gemm": lambda: (dist.all_gather_into_tensor(x, own), torch.mm(x, w, out=y)),
        "gemm_all_to_all": lambda: (torch.mm(x, w, out=y), dist.all_to_all_single(received, y)),
    }
    for op, body in bodies.items():
        yield op, K, "cublas", alone
        yield op, K, "cublas+nccl", time_us(body)


def main():
    """One line of JSON for each operator, size and way."""
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for rows in (1024, 4096, 8192):
            for op, k, name, microseconds in times_of(rows, world):
                if rank == 0:
                    line = {"op": op, "m": rows, "n": N, "k": k, "name": name, "median_us": round(microseconds, 1)}
                    print(json.dumps(line), file=file, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
