"""Every length, on one GPU: solve(), solve() in place, a handle and a causal one beside the block in float64.

Each must stay within the challenge's tolerance (1e-3 + 1e-3 |reference|), give the same bits twice and in place, and write nothing beside its output;
then batches of sequences. Prints the largest error over the tolerance of each and how many lengths are beyond 0.8; fails if anything was wrong.

    python3 harness/peers/lengths.py target/release/libsolve.so --last 4299 --batches 500
"""

import argparse
import os
import random
import sys
import time

from needs import need

torch = need("torch", "torch==2.11.0")  # before what imports it by itself

from block import D, make_inputs, reference, unpack
from library import PRECISIONS, Library

GUARD = 64 * D  # floats before and behind an output
POISON = 0x7FC0BEEF  # a NaN, as an int
MOST_ROWS = 9216  # of a batch
LIMIT = 0.8


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
    results = {name: Results(name) for name in [*names, "batches", "causal batches"]}
    for seq in range(args.first, args.last + 1):
        x = draw.rows(seq)
        plain, causal = (reference(x, parameters, causal=causal) for causal in (False, True))
        for name, call, want in zip(names, [solve, *forward], [plain, plain, causal]):
            results[name].add(f"{seq}", call, x, want)
    for batch, seq in shapes(args.batches, args.seed):
        x = draw.rows(batch * seq)
        for causal, name in enumerate(["batches", "causal batches"]):
            results[name].add(f"{batch} x {seq}", forward[causal], x, reference(x, parameters, batch, bool(causal)), batch)
    wrong = sum([result.report() for result in results.values()])
    print(f"{time.monotonic() - begin:.0f} s")
    sys.exit(wrong > 0)


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
        return (self.all[:GUARD] != POISON).any() | (self.all[-GUARD:] != POISON).any()


class Results:
    """What was found of one kind of call, kept on the GPU until it is told."""

    def __init__(self, name):
        self.name = name
        self.shapes, self.found = [], []

    def add(self, shape, call, x, want, batch=1):
        first, second, place = (Guarded(x.shape[0]) for _ in range(3))
        place.rows.copy_(x)
        call(x, first.rows, batch)
        call(x, second.rows, batch)
        call(place.rows, place.rows, batch)
        error = ((first.rows.double() - want).abs() / (1e-3 + 1e-3 * want.abs())).nan_to_num(torch.inf).max()
        differs = [(first.bits != other.bits).any() for other in (second, place)]
        beside = first.written_beside() | second.written_beside() | place.written_beside()
        self.shapes.append(shape)
        self.found.append(torch.stack([error, *(flag.double() for flag in [*differs, beside])]))

    def report(self):
        """How many shapes were wrong."""
        if not self.shapes:
            return 0
        error, twice, in_place, beside = torch.stack(self.found).cpu().unbind(1)
        worst = int(error.argmax())
        print(
            f"{self.name:<14} {len(self.shapes):5d} shapes: largest error {error[worst]:.3f} of the tolerance ({self.shapes[worst]}), "
            f"{int((error > LIMIT).sum())} beyond {LIMIT}"
        )
        faults = {"beyond the tolerance": error > 1, "other bits a second time": twice > 0, "other bits in place": in_place > 0, "written beside": beside > 0}
        for words, at in faults.items():
            if at.any():
                which = [shape for shape, wrong in zip(self.shapes, at.tolist()) if wrong]
                print(f"  WRONG: {words} at {len(which)}: {', '.join(which[:12])}")
        return sum(int(at.sum()) for at in faults.values())


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
