"""Time the CPU backend beside NumPy with OpenBLAS, which does the block's matrix products and nothing else.

The products are the four linear layers and, for each head, Q K^T and P V. Rounds of a few calls alternate, so
that a busy moment of the machine hits both. Needs `pip install numpy==2.3.4`; run it on an otherwise idle machine:

    python3 harness/peers/cpu.py target/release/libsolve.so --seq 1,16,128,1024

On a busy one, `--threads 1` compares processor time instead of wall time.
"""

import argparse
import ctypes
import os
import statistics
import time

from files import write_json
from needs import need

D, HEADS, HEAD_DIM, QKV, FFN = 768, 12, 64, 2304, 3072
LAYERS = {"qkv": (D, QKV), "attn_proj": (D, D), "fc": (D, FFN), "proj": (FFN, D)}
WEIGHTS_LEN = 7_087_872
CALLS = 5  # timed in a round


def main():
    args = parse_args()
    if args.threads:  # before NumPy and libsolve start theirs
        os.environ["OPENBLAS_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    os.environ["SOLVE_DEVICE"] = "cpu"
    numpy = need("numpy", "numpy==2.3.4")

    library = ctypes.CDLL(os.path.abspath(args.library))
    library.solve.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int]
    library.solve.restype = None
    library.solve_last_error.restype = ctypes.c_char_p
    clock = time.process_time if args.threads == 1 else time.perf_counter
    rows = []
    print(f"{'seq':>6} {'solve ms':>10} {'median':>8} {'products ms':>12} {'median':>8} {'ratio':>6} {'of medians':>11}")
    for seq in args.seq:
        ours, numpys = compare(numpy, library, seq, args.rounds, clock)
        row = {
            "seq": seq,
            "solve_ms": {"min": min(ours), "median": statistics.median(ours)},
            "products_ms": {"min": min(numpys), "median": statistics.median(numpys)},
            "n": len(ours),
        }
        row["ratio"] = row["solve_ms"]["min"] / row["products_ms"]["min"]
        row["ratio_of_medians"] = row["solve_ms"]["median"] / row["products_ms"]["median"]
        rows.append(row)
        print(
            f"{seq:6d} {row['solve_ms']['min']:10.3f} {row['solve_ms']['median']:8.3f} "
            f"{row['products_ms']['min']:12.3f} {row['products_ms']['median']:8.3f} "
            f"{row['ratio']:6.2f} {row['ratio_of_medians']:11.2f}",
            flush=True,
        )
    if args.json:
        write_json(args.json, {"numpy": numpy.__version__, "cpus": args.threads or os.cpu_count(), "rows": rows})


def compare(numpy, library, seq, rounds, clock):
    """Milliseconds of every round: of solve(), and of the bare products."""
    random = numpy.random.default_rng(seq)
    draw = lambda *shape: random.standard_normal(shape, dtype=numpy.float32)
    x, weights, output = draw(seq, D), draw(WEIGHTS_LEN) * numpy.float32(0.02), numpy.full((seq, D), numpy.nan, numpy.float32)
    products = make_products(numpy, draw, seq)
    pointers = [a.ctypes.data for a in (x, output, weights)]
    ours, numpys = [], []
    for _ in range(rounds):
        ours += time_calls(clock, lambda: library.solve(*pointers, seq))
        numpys += time_calls(clock, products)
    if library.solve_last_status():
        raise RuntimeError(library.solve_last_error().decode())
    assert numpy.isfinite(output).all()
    return ours, numpys


def time_calls(clock, call):
    """Milliseconds of CALLS calls back to back, after a pause and calls that warm up.

    The threads of OpenBLAS spin for some 20 ms after a product; without the pause they would take the cores from
    whatever comes next.
    """
    time.sleep(0.2)
    times = []
    for i in range(CALLS + 2):
        start = clock()
        call()
        if i >= 2:
            times.append((clock() - start) * 1e3)
    return times


def make_products(numpy, draw, seq):
    """A function that runs the block's products, with every operand and result allocated beforehand."""
    jobs = [(draw(seq, k), draw(k, n), numpy.empty((seq, n), numpy.float32)) for k, n in LAYERS.values()]
    # Heads as (head, token, column), the layout that suits NumPy best.
    q, k, v = (draw(HEADS, seq, HEAD_DIM) for _ in range(3))
    scores, heads = numpy.empty((HEADS, seq, seq), numpy.float32), numpy.empty((HEADS, seq, HEAD_DIM), numpy.float32)
    jobs += [(q[i], k[i].T, scores[i]) for i in range(HEADS)]
    jobs += [(scores[i], v[i], heads[i]) for i in range(HEADS)]

    def run():
        for a, b, out in jobs:
            numpy.matmul(a, b, out=out)

    return run


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="path of libsolve.so")
    parser.add_argument("--seq", type=lambda s: [int(n) for n in s.split(",")], default=[1, 16, 128, 1024])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, help="of both; default: all cores")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
