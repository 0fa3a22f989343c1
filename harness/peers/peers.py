"""Time libsolve beside what PyTorch offers for the same block, on one GPU, in one run.

All of them start from the same fp32 tensors. "stateless" takes fp32 weights in every call, as solve() does;
"prepared" may have cast its weights beforehand, as a handle does. PyTorch runs as CUDA graphs, libsolve as
plain calls by several processes in turn. Times are medians in us; hot is back to back, cold with the caches flushed
before each call, wall from the call until everything is done. Ratios are against the fastest peer whose result passes
the challenge's tolerance (1e-3 + 1e-3 |reference|, here against float64).

    python3 harness/peers/peers.py target/release/libsolve.so --compile 1024 --json peers.json

A file that has other lengths of the same GPU, PyTorch and build keeps them. `harness/run readme` writes the README's
table from harness/records/peers/<gpu>.json.
"""

import argparse
import datetime
import sys

from needs import need

torch = need("torch", "torch==2.11.0")  # before what imports it by itself

from block import accuracy, block, make_inputs, prepared, reference, unfused, unpack
from clock import Contestant, Graph, contest, flusher
from files import read_json, write_json
from library import Library
from remote import Remotes

COMPILE = {"mode": "max-autotune-no-cudagraphs", "fullgraph": True}


def main():
    args = parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    library = Library(args.library)
    ours = {precision: Remotes(args.library, precision) for precision in ["fast", *args.precision]}
    device = torch.cuda.get_device_name()
    print(f"{device}, PyTorch {torch.__version__}, libsolve {library.c.solve_version().decode()}")
    about = {"device": device, "torch": torch.__version__, "build_id": library.c.solve_build_id().decode()}
    flush, rows, summaries = flusher(), [], []
    earlier = read_rows(args.json, about) if args.json else []
    for seq in args.seq:
        results = time_seq(ours, flush, seq, seq in args.compile, args.rounds)
        print_table(seq, results)
        rows += [{"seq": seq, **row} for row in results]
        summaries.append(summarise(seq, results))
        if args.json:  # after each length: a compiled one takes minutes, and may be the last
            date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            kept = [row for row in earlier if row["seq"] not in {row["seq"] for row in rows}]
            write_json(args.json, {**about, "date": date, "rows": sorted(kept + rows, key=lambda row: row["seq"])})
    print_summary(summaries)


def read_rows(path, about):
    """What the file has of the same GPU, PyTorch and build."""
    report = read_json(path) or {}
    return report["rows"] if about.items() <= report.items() else []


def time_seq(ours, flush, seq, compiled, rounds):
    """One row for everything that ran at this length: name, kind, times and accuracy."""
    seed = 1000 + seq
    x, weights = make_inputs(seq, seed)
    parameters = unpack(weights)
    want = reference(x, parameters)
    # name -> (kind, what is timed, a function that gives its result)
    entries = {
        name: (kind, Contestant([graph], flush), lambda graph=graph: graph.out)
        for name, (kind, graph) in make_peers(x, parameters, compiled).items()
    }
    for precision, processes in ours.items():
        processes.begin(seq, seed, ["solve", "handle"] if precision == "fast" else ["solve"])
        name, contestant = "libsolve solve()", processes.contestant("solve")
        entries[name if precision == "fast" else f"{name}, {precision}"] = ("stateless", contestant, contestant.output)
    contestant = ours["fast"].contestant("handle")
    entries["libsolve handle"] = ("prepared", contestant, contestant.output)
    times = contest({name: contestant for name, (_, contestant, _) in entries.items()}, rounds)
    rows = [{"name": name, "kind": kind, **times[name], **accuracy(output(), want, x)} for name, (kind, _, output) in entries.items()]
    for processes in ours.values():
        processes.end()
    return rows


def make_peers(x, parameters, compiled):
    """name -> (kind, CUDA graph) of every PyTorch variant that runs here."""
    half = prepared(parameters, torch.float16)
    # name, kind, precision of fp32 products, block
    variants = [
        ("eager fp32", "stateless", "highest", lambda: block(x, parameters)),
        ("eager fp32, unfused attention", "stateless", "highest", lambda: block(x, parameters, attention=unfused)),
        ("eager TF32", "stateless", "high", lambda: block(x, parameters)),
        ("eager TF32, unfused attention", "stateless", "high", lambda: block(x, parameters, attention=unfused)),
        ("eager fp16, cast per call", "stateless", "highest", lambda: block(x, parameters, torch.float16)),
        ("eager fp16, prepared", "prepared", "highest", lambda: block(x, half, torch.float16)),
    ]
    # From 16 tokens on compiled TF32 fails the tolerance (16, 64, 256 and 1024, H200), and takes most of the time.
    if compiled and x.shape[0] < 16:
        variants.append(("compiled TF32", "stateless", "high", compile_block(x, parameters)))
    if compiled:
        variants += [
            ("compiled fp16, cast per call", "stateless", "highest", compile_block(x, parameters, torch.float16)),
            ("compiled fp16, prepared", "prepared", "highest", compile_block(x, half, torch.float16)),
        ]
    peers = {}
    for name, kind, precision, function in variants:
        torch.set_float32_matmul_precision(precision)
        try:
            peers[name] = (kind, Graph(function))
        except Exception as error:  # a peer that does not run here is no peer here
            print(f"{name} does not run: {type(error).__name__}: {str(error)[:200]}")
    torch.set_float32_matmul_precision("highest")
    return peers


def compile_block(x, parameters, dtype=None):
    """Compiled at its first call, under the precision that is then set."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: block(x, parameters, dtype), **COMPILE)
    return lambda: compiled(x)


def summarise(seq, results):
    """Our times and, for each kind, the fastest passing peer and how many times its time is ours."""
    summary = {"seq": seq}
    for kind in ("stateless", "prepared"):
        ours = next(r for r in results if r["kind"] == kind and r["name"].startswith("libsolve"))
        peers = [r for r in results if not r["name"].startswith("libsolve") and r["passes"]]
        # A stateless peer may also serve who has prepared weights.
        peers = [r for r in peers if kind == "prepared" or r["kind"] == kind]
        entry = {"passes": ours["passes"], "hot_us": ours["hot_us"], "cold_us": ours["cold_us"]}
        for clock in ("hot_us", "cold_us"):
            best = min(peers, key=lambda r: r[clock], default=None)
            if best:
                entry[f"best_{clock}"] = {"name": best["name"], "us": best[clock], "ratio": best[clock] / ours[clock]}
        summary[kind] = entry
    exact = next((r for r in results if r["name"] == "libsolve solve(), exact"), None)
    # Whoever wants exact numbers of PyTorch runs it in fp32, without TF32.
    fp32 = min((r for r in results if r["name"].startswith("eager fp32")), key=lambda r: r["hot_us"], default=None)
    if exact and fp32:
        summary["exact"] = {"hot_us": exact["hot_us"], "fp32": fp32["name"], "us": fp32["hot_us"], "ratio": fp32["hot_us"] / exact["hot_us"]}
    return summary


def print_table(seq, results):
    print(f"\nseq {seq:<28} {'kind':<10} {'hot us':>9} {'cold us':>9} {'wall us':>9} {'worst/tol':>10} {'rel. error':>10}")
    for row in sorted(results, key=lambda r: r["hot_us"]):
        print(
            f"{row['name']:<32} {row['kind']:<10} {row['hot_us']:9.2f} {row['cold_us']:9.2f} {row['wall_us']:9.2f} "
            f"{row['worst_over_tol']:10.3f} {row['rel_l2_delta']:10.1e}{'' if row['passes'] else '  FAILS'}",
            flush=True,
        )


def print_summary(summaries):
    print(f"\n{'seq':>6} {'kind':<10} {'libsolve us':>11} {'best passing peer':<32} {'us':>9} {'ratio hot':>10} {'cold':>6}")
    for summary in summaries:
        for kind in ("stateless", "prepared"):
            ours = summary[kind]
            hot, cold = ours.get("best_hot_us"), ours.get("best_cold_us")
            if not hot:
                print(f"{summary['seq']:6d} {kind:<10} {ours['hot_us']:11.2f} no peer passes")
                continue
            note = "" if ours["passes"] else "  libsolve FAILS"
            print(
                f"{summary['seq']:6d} {kind:<10} {ours['hot_us']:11.2f} {hot['name']:<32} {hot['us']:9.2f} "
                f"{hot['ratio']:10.2f} {cold['ratio']:6.2f}{note}"
            )
        if "exact" in summary:
            exact = summary["exact"]
            print(f"{summary['seq']:6d} {'exact':<10} {exact['hot_us']:11.2f} {exact['fp32']:<32} {exact['us']:9.2f} {exact['ratio']:10.2f}")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(n) for n in text.split(",") if n]
    parser.add_argument("library", help="path of libsolve.so")
    parser.add_argument("--seq", type=numbers, default=[1, 16, 64, 128, 256, 512, 1024, 2048, 4096])
    parser.add_argument("--compile", type=numbers, default=[], help="lengths at which to try torch.compile too (minutes each)")
    others = ["exact", "auto"]
    parser.add_argument("--precision", nargs="*", choices=others, default=others, help="time solve() in these precisions beside fast")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
