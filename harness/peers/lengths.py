"""Every length, on one GPU: solve(), solve() in place, a handle and a causal one beside the block in float64.

Each must stay within the challenge's tolerance (1e-3 + 1e-3 |reference|), in exact within 0.02 of it, give the same bits twice and in place, and write
nothing beside its output; then batches of sequences. Operands of 11 bits, fp16's as TF32's, are by chance beyond the tolerance in one of thousands of calls:
those are listed, and wrong beyond 1.3 times the larger of it and the error of TF32 operands on the same data. Fails if anything was wrong.

    python3 harness/peers/lengths.py target/release/libsolve.so --last 4299 --batches 500
"""

import argparse
import os
import random
import sys
import time

from needs import need

torch = need("torch", "torch==2.11.0")  # before what imports it by itself

from block import D, make_inputs, reference, tf32, unpack
from library import PRECISIONS, Library

GUARD = 64 * D  # floats before and behind an output
POISON = 0x7FC0BEEF  # a NaN, as an int
MOST_ROWS = 9216  # of a batch
NEAR = 0.8  # of the tolerance: so many lengths are beyond it
CHANCE = 1.3
EXACT = 0.02


def main():
    args = parse_args()
    os.environ["SOLVE_PRECISION"] = args.precision
    library = Library(args.library)
    print(f"{torch.cuda.get_device_name()}, libsolve {library.c.solve_build_id().decode()[:12]}, {args.precision}, seed {args.seed}")
    begin = time.monotonic()
    _, weights = make_inputs(1, args.seed)
    draw = Draw(args.seed + 1)
    handles = [library.prepare(weights, args.precision, causal, max(args.last, MOST_ROWS)) for causal in (False, True)]
    solve = lambda x, out, batch: library.solve(x, out, weights)
    forward = [lambda x, out, batch, handle=handle: library.forward(handle, x, out, batch) for handle in handles]
    parameters = unpack(weights)
    names = ["solve()", "prepared", "causal"]
    results = {name: Results(name, args.precision) for name in [*names, "batches", "causal batches"]}
    for seq in range(args.first, args.last + 1):
        x = draw.rows(seq)
        plain, causal = (Reference(x, parameters, causal=causal) for causal in (False, True))
        for name, call, want in zip(names, [solve, *forward], [plain, plain, causal]):
            results[name].add(f"{seq}", call, want)
    for batch, seq in shapes(args.batches, args.seed):
        x = draw.rows(batch * seq)
        for causal, name in enumerate(["batches", "causal batches"]):
            results[name].add(f"{batch} x {seq}", forward[causal], Reference(x, parameters, batch, bool(causal)))
    faults = sum([result.report() for result in results.values()])
    print(f"{time.monotonic() - begin:.0f} s")
    sys.exit(faults > 0)


class Draw:
    """Rows of x, new ones each time."""

    def __init__(self, seed):
        self.generator = torch.Generator(device="cuda").manual_seed(seed)

    def rows(self, count):
        return torch.empty(count, D, device="cuda").uniform_(-1, 1, generator=self.generator)


def shapes(count, seed):
    """Batches of up to 100 sequences and MOST_ROWS rows."""
    chance = random.Random(seed)
    for _ in range(count):
        batch = chance.randint(1, 100)
        yield batch, chance.randint(1, min(MOST_ROWS // batch, 4096))


class Guarded:
    """An output between guards, all of it poison."""

    def __init__(self, rows):
        self.all = torch.full((GUARD + rows * D + GUARD,), POISON, dtype=torch.int32, device="cuda")
        self.bits = self.all[GUARD : GUARD + rows * D].view(rows, D)
        self.rows = self.bits.view(torch.float32)

    def written_beside(self):
        return bool((self.all[:GUARD] != POISON).any() | (self.all[-GUARD:] != POISON).any())


class Reference:
    """x, and what the block makes of it in float64."""

    def __init__(self, x, parameters, batch=1, causal=False):
        self.x, self.batch = x, batch
        self.want = reference(x, parameters, batch, causal)
        self.in_tf32 = lambda: reference(x, parameters, batch, causal, tf32)

    def error(self, out):
        """The largest over the tolerance."""
        return ((out.double() - self.want).abs() / (1e-3 + 1e-3 * self.want.abs())).nan_to_num(torch.inf).max().item()


class Results:
    """What was found of one kind of call."""

    def __init__(self, name, precision):
        self.name, self.exact = name, precision == "exact"
        self.errors = {}  # over the tolerance, by shape
        self.beyond = []  # sentences on those that are more than the tolerance
        self.faults = {}  # what is wrong, and of which shapes

    def add(self, shape, call, reference):
        x, batch = reference.x, reference.batch
        first, second, place = (Guarded(x.shape[0]) for _ in range(3))
        place.rows.copy_(x)
        call(x, first.rows, batch)
        call(x, second.rows, batch)
        call(place.rows, place.rows, batch)
        error = self.errors[shape] = reference.error(first.rows)
        if error > (EXACT if self.exact else 1):
            tf32s = reference.error(reference.in_tf32())
            self.beyond.append(f"{error:.3f} at {shape}, with TF32 operands {tf32s:.3f}")
            self.fault(self.exact or error > CHANCE * max(1, tf32s), "error too large", shape)
        self.fault(not torch.equal(first.bits, second.bits), "other bits a second time", shape)
        self.fault(not torch.equal(first.bits, place.bits), "other bits in place", shape)
        self.fault(any(output.written_beside() for output in (first, second, place)), "written beside", shape)

    def fault(self, wrong, words, shape):
        if wrong:
            self.faults.setdefault(words, []).append(shape)

    def report(self):
        """How many faults there are."""
        if not self.errors:
            return 0
        worst = max(self.errors, key=self.errors.get)
        near = sum(error > NEAR for error in self.errors.values())
        print(f"{self.name:<14} {len(self.errors):5d} shapes: largest error {self.errors[worst]:.3f} of the tolerance ({worst}), {near} beyond {NEAR}")
        for sentence in self.beyond:
            print(f"  {sentence}")
        for words, shapes in self.faults.items():
            print(f"  WRONG: {words} at {len(shapes)}: {', '.join(shapes[:12])}")
        return sum(len(shapes) for shapes in self.faults.values())


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="path of libsolve.so")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--last", type=int, default=4299)
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--precision", choices=PRECISIONS, default="fast")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
