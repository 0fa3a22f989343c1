"""Device and wall time of a function that enqueues work on the current CUDA stream."""

import statistics
import time

import torch

RUN_US = 10_000  # calls between two events take about so long: the first of them overlaps with nothing
REST_S = 0.05  # before a run, so that each finds the chip as cool as the others, whoever ran before
SHORTEST, LONGEST = 20, 1000  # calls of a run
FLUSH_BYTES = 256 << 20  # more than any L2
HIDE_ONE, HIDE_CHAIN = 200_000, 2_000_000  # cycles that the GPU spins while the host enqueues what is timed


def contest(contestants, rounds):
    """Medians in us of each contestant by name: hot (back to back), cold (caches flushed) and wall (call to synchronised).

    They are sampled in turn, round by round, so that what the machine does meanwhile hits all of them.
    """
    samples = {name: {"hot": [], "cold": [], "wall": []} for name in contestants}
    for i in range(rounds):
        for name, contestant in contestants.items():
            for clock, times in contestant.sample(i).items():
                samples[name][clock] += times
    return {name: {f"{clock}_us": statistics.median(times) for clock, times in s.items()} for name, s in samples.items()}


class Contestant:
    """A call, or the same call on buffers that lie elsewhere, one of them each round: where weights lie is worth up to 3 % (H200, 16 rows)."""

    def __init__(self, calls, flush):
        self.calls = calls
        self.flush = flush
        for call in calls:
            for _ in range(10):
                call()
        torch.cuda.synchronize()
        self.us = between_events(calls[0], SHORTEST, HIDE_CHAIN) / SHORTEST

    def sample(self, i):
        call = self.calls[i % len(self.calls)]
        return {"hot": [self.hot(call)], "cold": [self.cold(call) for _ in range(5)], "wall": [wall(call) for _ in range(5)]}

    def hot(self, call):
        time.sleep(REST_S)
        for _ in range(SHORTEST):  # what the call before left behind is not this one's
            call()
        count = min(max(int(RUN_US / self.us), SHORTEST), LONGEST)
        return between_events(call, count, HIDE_CHAIN) / count

    def cold(self, call):
        # Reading what was written leaves no line whose write-back would fall into the call's time.
        self.flush.zero_()
        self.flush.sum()
        return between_events(call, 1, HIDE_ONE)


def flusher():
    """A tensor that pushes everything else out of L2 when it is written."""
    return torch.empty(FLUSH_BYTES // 4, device="cuda")


def between_events(call, count, hide):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(hide)
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3


def wall(call):
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6


class Graph:
    """A function as a CUDA graph, so that neither Python nor launches count against a peer; `out` is its result.

    The graph knows the function's tensors by address only; keeping the function keeps them.
    """

    def __init__(self, function):
        self.function = function
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = function()

    def __call__(self):
        self.graph.replay()
