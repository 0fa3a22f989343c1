"""libsolve in processes of their own: the library reads SOLVE_PRECISION once, so each precision needs one, and what a process is given of the GPU's memory
is worth up to 3 % of a short call (H200), so each has several, which take turns."""

import multiprocessing
import os

import torch

from block import make_inputs
from clock import Contestant, flusher
from library import Library

PROCESSES = 9


class Remotes:
    """Processes with the same precision."""

    def __init__(self, path, precision):
        self.processes = [Remote(path, precision) for _ in range(PROCESSES)]

    def begin(self, seq, seed, apis):
        """From now on it is about this length, these inputs and these of 'solve' and 'handle'."""
        for process in self.processes:
            process.ask("begin", seq, seed, apis)

    def end(self):
        for process in self.processes:
            process.ask("end")

    def contestant(self, api):
        """'solve' or 'handle'."""
        return Turns(self.processes, api)


class Turns:
    """A contestant, by another process each round."""

    def __init__(self, processes, api):
        self.processes = processes
        self.api = api

    def sample(self, i):
        turn, process = divmod(i, len(self.processes))
        return self.processes[process].ask("sample", self.api, turn)

    def output(self):
        return self.processes[0].ask("output", self.api).cuda()


class Remote:
    """A process that ends with this one."""

    def __init__(self, path, precision):
        self.precision = precision
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        os.environ["SOLVE_PRECISION"] = precision
        context.Process(target=serve, args=(there, path), daemon=True).start()
        os.environ.pop("SOLVE_PRECISION")
        there.close()

    def ask(self, *question):
        try:
            self.connection.send(question)
            answer = self.connection.recv()
        except (EOFError, BrokenPipeError):
            raise RuntimeError(f"the process that runs solve() with SOLVE_PRECISION={self.precision} has ended") from None
        if isinstance(answer, Exception):
            raise answer
        return answer


def serve(connection, path):
    """Answers until the other side has gone."""
    server = Server(path)
    while True:
        try:
            question, *arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send(getattr(server, question)(*arguments))
        except Exception as error:
            connection.send(RuntimeError(str(error)))


class Server:
    def __init__(self, path):
        self.library = Library(path)
        self.flush = flusher()

    def begin(self, seq, seed, apis):
        x, weights = make_inputs(seq, seed)
        self.out = {api: torch.full_like(x, torch.nan) for api in apis}
        self.handle = self.library.prepare(weights) if "handle" in apis else None
        calls = {
            "solve": lambda out: self.library.solve_from_places(x, out, weights),
            "handle": lambda out: [self.library.forward(self.handle, x, out)],
        }
        self.contestants = {api: Contestant(calls[api](out), self.flush) for api, out in self.out.items()}

    def end(self):
        if self.handle:
            self.library.destroy(self.handle)

    def sample(self, api, i):
        return self.contestants[api].sample(i)

    def output(self, api):
        return self.out[api].cpu()
