"""libsolve through ctypes, for tensors on the GPU."""

import ctypes
import os

import torch

PLACES = 5  # of the weights of solve()
PRECISIONS = ["fast", "exact", "auto"]


class Options(ctypes.Structure):
    """solve_options."""

    _fields_ = [("size", ctypes.c_size_t), *((name, ctypes.c_int) for name in ["device", "precision", "causal", "max_tokens"])]


class Library:
    """The functions of one libsolve.so."""

    def __init__(self, path):
        self.c = ctypes.CDLL(os.path.abspath(path))
        pointer = ctypes.c_void_p
        self.c.solve.argtypes = [pointer, pointer, pointer, ctypes.c_int]
        self.c.solve.restype = None
        self.c.solve_last_error.restype = ctypes.c_char_p
        self.c.solve_version.restype = ctypes.c_char_p
        self.c.solve_build_id.restype = ctypes.c_char_p
        self.c.solve_block_create.argtypes = [pointer, pointer, pointer]
        self.c.solve_block_forward.argtypes = [pointer, pointer, pointer, ctypes.c_int, ctypes.c_int, pointer]
        self.c.solve_block_update.argtypes = [pointer, pointer, pointer]
        self.c.solve_block_destroy.argtypes = [pointer]

    def solve(self, x, out, weights):
        """A function of no arguments that makes the call, its pointers looked up beforehand. It keeps the tensors alive."""
        arguments = (x.data_ptr(), out.data_ptr(), weights.data_ptr(), x.shape[0])
        function = self.c.solve
        function(*arguments)
        self.check(self.c.solve_last_status())
        return lambda tensors=(x, out, weights): function(*arguments)

    def solve_from_places(self, x, out, weights):
        """The same call with the weights in several places."""
        return [self.solve(x, out, elsewhere(weights, i)) for i in range(PLACES)]

    def prepare(self, weights, precision="fast", causal=False, max_tokens=0):
        """A block that keeps the weights; free it with destroy."""
        handle = ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), -1, PRECISIONS.index(precision), causal, max_tokens)
        self.check(self.c.solve_block_create(weights.data_ptr(), ctypes.byref(options), ctypes.byref(handle)))
        return handle

    def forward(self, handle, x, out, batch=1, stream=None):
        """As solve, for a prepared block, on a stream's address or the legacy default stream."""
        arguments = (handle, x.data_ptr(), out.data_ptr(), batch, x.shape[0] // batch, stream)
        function = self.c.solve_block_forward
        self.check(function(*arguments))
        return lambda tensors=(x, out): function(*arguments)

    def destroy(self, handle):
        self.check(self.c.solve_block_destroy(handle))

    def check(self, status):
        if status:
            raise RuntimeError(self.c.solve_last_error().decode())


def elsewhere(weights, i):
    """A copy in memory of its own, 256 i bytes from where that begins."""
    place = torch.empty(weights.numel() + 64 * i, device=weights.device)[64 * i :]
    return place.copy_(weights)
