"""libsolve through ctypes, for tensors on the GPU."""

import ctypes
import os
import shutil
import tempfile

PRECISIONS = {"fast": 0, "exact": 1, "auto": 2}


class Options(ctypes.Structure):
    """solve_options."""

    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_int) for name in ("device", "precision", "causal", "max_tokens")]


class Library:
    """The functions of one libsolve.so, in one precision. It reads its environment once, so a second precision in the same process is a copy of
    the file, which the loader takes for another library."""

    def __init__(self, path, precision=None):
        self.precision = precision
        if precision:
            with tempfile.TemporaryDirectory() as folder:
                self.c = ctypes.CDLL(shutil.copy(path, folder))
        else:
            self.c = ctypes.CDLL(os.path.abspath(path))
        pointer = ctypes.c_void_p
        self.c.solve.argtypes = [pointer, pointer, pointer, ctypes.c_int]
        self.c.solve.restype = None
        self.c.solve_last_error.restype = ctypes.c_char_p
        self.c.solve_version.restype = ctypes.c_char_p
        self.c.solve_build_id.restype = ctypes.c_char_p
        self.c.solve_block_create.argtypes = [pointer, pointer, pointer]
        self.c.solve_block_forward.argtypes = [pointer, pointer, pointer, ctypes.c_int, ctypes.c_int, pointer]
        self.c.solve_block_destroy.argtypes = [pointer]

    def solve(self, x, out, weights):
        """A function of no arguments that makes the call, its pointers looked up beforehand."""
        arguments = (x.data_ptr(), out.data_ptr(), weights.data_ptr(), x.shape[0])
        function = self.c.solve
        if self.precision:
            os.environ["SOLVE_PRECISION"] = self.precision
        function(*arguments)
        os.environ.pop("SOLVE_PRECISION", None)
        self.check(self.c.solve_last_status())
        return lambda: function(*arguments)

    def prepare(self, weights):
        """A block that keeps the weights; free it with destroy."""
        handle = ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), -1, PRECISIONS[self.precision or "fast"], 0, 0)
        self.check(self.c.solve_block_create(weights.data_ptr(), ctypes.byref(options), ctypes.byref(handle)))
        return handle

    def forward(self, handle, x, out):
        """As solve, for a prepared block on the legacy default stream."""
        arguments = (handle, x.data_ptr(), out.data_ptr(), 1, x.shape[0], None)
        function = self.c.solve_block_forward
        self.check(function(*arguments))
        return lambda: function(*arguments)

    def destroy(self, handle):
        self.check(self.c.solve_block_destroy(handle))

    def check(self, status):
        if status:
            raise RuntimeError(self.c.solve_last_error().decode())
