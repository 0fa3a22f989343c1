"""solve() of a libsolve.so in another precision than this process has: the library reads SOLVE_PRECISION once, so each precision is a process."""

import multiprocessing
import os

import torch

from block import make_inputs
from clock import Contestant, flusher
from library import Library


class Remote:
    """A contestant in a process of its own, which ends with this one."""

    def __init__(self, path, precision):
        self.precision = precision
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        os.environ["SOLVE_PRECISION"] = precision
        context.Process(target=serve, args=(there, path), daemon=True).start()
        os.environ.pop("SOLVE_PRECISION")
        there.close()

    def begin(self, seq, seed):
        """From now on it is about this length and these inputs."""
        self.ask("begin", seq, seed)

    def sample(self, i):
        return self.ask("sample", i)

    def output(self):
        return self.ask("output").cuda()

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

    def begin(self, seq, seed):
        x, weights = make_inputs(seq, seed)
        self.out = torch.full_like(x, torch.nan)
        self.contestant = Contestant(self.library.solve_from_places(x, self.out, weights), self.flush)

    def sample(self, i):
        return self.contestant.sample(i)

    def output(self):
        return self.out.cpu()
