//! cuda/ and src/ have the same numbers: sizes, offsets, and what the plan must know about kernels. The compiler itself is asked.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Completion, Trial};
use solve::cuda::arch::Arch;
use solve::cuda::block::Shape;
use solve::cuda::exact::work::{self, Call};
use solve::cuda::exact::{self, chain, long};
use solve::cuda::hopper::plan::{
    ATTENTION, ATTENTION_PROJ, CHUNKS, Chip, DEALT_KEYS, FEW, FEW_IN_FP32, FEW_ROWS, FewTile, FewWeights, Gemm, Kernel,
    Launch, MOST_SINGLES, PART_BYTES, PartBox, attention_forms, direct, forward, prepare, product, qkv_attention,
    shared, shared_bytes,
};
use solve::cuda::portable::plan::{self as portable, TILES, cast};
use solve::cuda::workspace::{ALARMS_BYTES, AWAKE, packed, vectors};
use solve::dims;
use solve::precision::SolvePrecision;
use solve::weights::{PARAMS, WEIGHTS_LEN};

fn main() -> std::process::ExitCode {
    type Test = (&'static str, fn(&Path));
    let tests: [Test; 7] = [
        ("sizes_and_offsets", sizes_and_offsets),
        ("gemm_tiles", gemm_tiles),
        ("portable_attention", portable_attention),
        ("hopper_tiles", hopper_tiles),
        ("hopper_attention", hopper_attention),
        ("few_tokens", few_tokens),
        ("exact_forms", exact_forms),
    ];
    let trials = tests.map(|(name, test)| {
        Trial::ignorable_test(name, move || {
            let Some(nvcc) = nvcc() else { return Ok(Completion::ignored_with("skipped: no nvcc")) };
            test(&nvcc);
            Ok(Completion::Completed)
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The one that `tests/run` installs, or where build.rs looks for it, of which any may be too old. It need not be there.
fn nvcc() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(from);
    [root().join("target/toolkit/nvidia/cu13/bin/nvcc")]
        .into_iter()
        .chain(from("NVCC"))
        .chain(homes.map(|home| home.join("bin/nvcc")))
        .chain(std::env::split_paths(&path).map(|folder| folder.join("nvcc")))
        .chain(["/usr/local/cuda/bin/nvcc".into()])
        .find(|path| path.is_file())
}

/// Compiles assertions against the headers of cuda/.
fn check(nvcc: &Path, name: &str, includes: &str, equal: &[(String, usize)]) {
    let mut source = String::from(includes);
    for (expression, value) in equal {
        let _ = writeln!(source, "static_assert(({expression}) == {value}, \"{expression} is not {value}\");");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(name).with_extension("cu");
    fs::write(&file, source).expect("a scratch file");
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-ptx", "-arch=compute_90a", "-I"]).arg(root().join("cuda"));
    let output = command.arg("-o").arg(file.with_extension("ptx")).arg(&file).output().expect("nvcc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn sizes_and_offsets(nvcc: &Path) {
    let mut equal: Vec<(String, usize)> = [
        ("D", dims::D),
        ("HEADS", dims::HEADS),
        ("HEAD_DIM", dims::HEAD_DIM),
        ("QKV", dims::QKV),
        ("FFN", dims::FFN),
        ("WEIGHTS_LEN", WEIGHTS_LEN),
        ("PACKED_QKV", packed::QKV_),
        ("PACKED_ATTN", packed::ATTN),
        ("PACKED_FC", packed::FC),
        ("PACKED_PROJ", packed::PROJ),
        ("PACKED_LEN", packed::LEN),
        ("VECTOR_B_QKV", vectors::B_QKV),
        ("VECTOR_B_ATTN", vectors::B_ATTN),
        ("VECTOR_GAMMA2", vectors::GAMMA2),
        ("VECTOR_BETA2", vectors::BETA2),
        ("VECTOR_B_FC", vectors::B_FC),
        ("VECTOR_B_PROJ", vectors::B_PROJ),
        ("VECTOR_RESIDUAL_FACTS", vectors::RESIDUAL_FACTS),
        ("CAST_BLOCKS", cast().grid[0] as usize),
        ("static_cast<long long>(LN_EPS * 1e9)", (f64::from(dims::LN_EPS) * 1e9) as usize),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    equal.extend(PARAMS.iter().map(|(name, param, _)| (name.to_uppercase(), param.offset)));
    check(
        nvcc,
        "sizes_and_offsets",
        "#include \"dims.h\"\n#include \"common/workspace.cuh\"\n#include \"cast/cast.cuh\"\n",
        &equal,
    );
    // Of the first kernel on Hopper where there are no rows
    let vectors = prepare()[0].grid[0] - CHUNKS;
    let equal = [("VECTOR_BLOCKS".to_owned(), vectors as usize)];
    check(nvcc, "vector_blocks", "#include \"cast/cast_layernorm_sm90a.cu\"\n", &equal);
}

fn gemm_tiles(nvcc: &Path) {
    for (index, name) in ["80", "75"].into_iter().enumerate() {
        let includes =
            format!("#include \"common/sm{name}.cuh\"\nusing Arch = Sm{name};\n#include \"gemm/gemm_kernels.cuh\"\n");
        let mut equal = Vec::new();
        for tile in &TILES {
            let kind = format!("Tile{}x{}", tile.m, tile.n);
            equal.push((format!("(GemmShared<Arch, {kind}>::BYTES)"), tile.shared[index] as usize));
            equal.push((format!("{kind}::BM * 1000 + {kind}::BN"), tile.m * 1000 + tile.n));
            equal.push((format!("{kind}::THREADS"), tile.threads as usize));
        }
        check(nvcc, &format!("gemm_tiles_{name}"), &includes, &equal);
    }
}

/// Threads and shared memory of attention on Turing and Ampere.
fn portable_attention(nvcc: &Path) {
    for (arch, name) in [(Arch::Sm75, "sm75"), (Arch::Sm80, "sm80")] {
        let (precision, prepared) = (SolvePrecision::Fast, false);
        let shape = Shape { batch: 1, seq_len: 300, causal: false, prepared, precision, guarded: true, rescued: false };
        for causal in [false, true] {
            let plan = portable::forward(arch, 100, Shape { causal, ..shape });
            let attention = plan.iter().find(|launch| launch.stage == portable::Stage::Attention).expect("attention");
            let equal = [
                ("GROUPS * GROUP_THREADS", attention.threads as usize),
                ("AttentionShared<GROUPS>::BYTES", attention.shared as usize),
                ("(300 + QUERIES - 1) / QUERIES", attention.grid[0] as usize),
            ];
            let equal = equal.map(|(name, value)| (name.to_owned(), value));
            let include = format!("#include \"attention/attention_{name}.cu\"\n");
            check(nvcc, &format!("attention_{name}"), &include, &equal);
        }
    }
}

/// A file of cuda/ that makes kernels by a macro: its includes, and the arguments of each use.
fn instances(file: &str, uses: &str) -> (String, Vec<Vec<String>>) {
    let text = fs::read_to_string(root().join("cuda").join(file)).expect("a source in cuda/");
    let includes = text.lines().filter(|line| line.starts_with("#include")).map(|line| format!("{line}\n")).collect();
    let arguments = |line: &str| line.split(", ").map(str::to_owned).collect();
    let used = |line: &str| {
        let rest = line.strip_prefix(uses)?;
        let rest = ["_TRANSPOSED", "_SWAPPED"].iter().fold(rest, |rest, kind| rest.strip_prefix(kind).unwrap_or(rest));
        Some(arguments(rest.strip_prefix('(')?.strip_suffix(')')?))
    };
    (includes, text.lines().filter_map(used).collect())
}

/// Shared memory and threads of every Hopper product, in the plan's order of tiles.
fn hopper_tiles(nvcc: &Path) {
    let chip = Chip { sms: 132, clusters: [66, 32, 16], heads: [17, 15, 15] };
    for gemm in Gemm::ALL {
        let (name, epilogue) = match gemm {
            Gemm::Qkv => ("qkv", "HalfEpilogue<Shape, false>"),
            Gemm::AttnProj => ("attn_proj", "NormEpilogue<Shape>"),
            Gemm::Fc => ("fc", "HalfEpilogue<Shape, true>"),
            Gemm::Proj => ("proj", "ExchangeEpilogue<Shape>"),
        };
        let folded = match gemm {
            Gemm::AttnProj => ("_apart", product::tiles(gemm)),
            Gemm::Fc => ("_scaled", product::tiles(gemm)),
            _ => ("", &[][..]),
        };
        let direct_tile = direct::tile(gemm);
        for (kind, tiles) in [("", product::tiles(gemm)), ("_direct", direct_tile.as_slice()), folded] {
            if tiles.is_empty() {
                continue;
            }
            let stem = format!("gemm_{name}{kind}");
            let (mut source, uses) = instances(&format!("gemm/{stem}_sm90a.cu"), &stem.to_uppercase());
            assert_eq!(uses.len(), tiles.len(), "{stem}: {uses:?}");
            let mut equal = Vec::new();
            for ((number, tile), numbers) in tiles.iter().enumerate().zip(uses) {
                let (m, n, stages) = (&numbers[0], &numbers[1], &numbers[numbers.len() - 1]);
                assert_eq!((m, n), (&tile.m.to_string(), &tile.n.to_string()), "{stem} {number}");
                let splits = if numbers.len() > 3 { numbers[2].parse().expect("a number") } else { 1 };
                assert_eq!(splits, tile.splits, "{stem} {number}");
                let epilogue = if tile.swapped {
                    epilogue.replace("Exchange", "Swapped").replace("Half", "SwappedHalf")
                } else {
                    epilogue.to_owned()
                };
                let epilogue = match kind {
                    "_direct" => epilogue.replace("Half", "TileHalf").replace("Exchange", "Split"),
                    "_apart" => epilogue.replace("Norm", "Apart"),
                    "_scaled" => epilogue.replace("true", "true, UNSCALED"),
                    _ => epilogue,
                };
                let shape = if kind == "_direct" { "DirectShape" } else { "GemmShape" };
                let more = match kind {
                    "_direct" => String::new(),
                    _ => format!(", {}, {}, {}", tile.abreast, tile.below, tile.swapped),
                };
                let (columns, depth) = (gemm.columns(), gemm.depth());
                let _ = writeln!(
                    source,
                    "namespace tile{number} {{\nusing Shape = {shape}<{m}, {n}, {columns}, {depth}, {stages}, {splits}{more}>;\n\
                     using Epilogue = {epilogue};\nusing Memory = GemmMemory<Shape, Epilogue>;\n}}"
                );
                let Launch { threads, shared, .. } = match kind {
                    "" => product::product_in(chip, gemm, number, tile.m),
                    "_apart" => product::apart_in(chip, number, tile.m),
                    "_scaled" => product::fc_scaled_in(chip, number, tile.m),
                    _ => direct::product(gemm).expect("a tile"),
                };
                equal.push((format!("tile{number}::Memory::TOTAL"), shared as usize));
                let helper = if kind == "_scaled" { " + 32" } else { "" };
                equal.push((format!("tile{number}::Shape::THREADS{helper}"), threads as usize));
                if kind.is_empty() {
                    equal.push((format!("tile{number}::Shape::CLUSTER"), tile.cluster()));
                }
                if stem == "gemm_fc" {
                    equal.push((format!("CASTING_WARPS<tile{number}::Shape>"), tile.casting_warps() as usize));
                }
                if tile.swapped && gemm != Gemm::Proj {
                    equal.push((format!("tile{number}::Epilogue::HIGH"), tile.swapped_box()));
                }
                if kind != "_direct" {
                    equal.push((format!("tile{number}::Shape::DEPTH"), tile.depth() as usize));
                }
            }
            check(nvcc, &stem, &source, &equal);
        }
    }
    for (gemm, name, columns, gelu) in [(Gemm::Qkv, "qkv", "QKV", false), (Gemm::Fc, "fc", "FFN", true)] {
        let stem = format!("gemm_{name}_shared");
        let (mut source, _) = instances(&format!("gemm/{stem}_sm90a.cu"), "");
        let mut equal = Vec::new();
        for (number, form) in shared::SHARED.iter().enumerate().filter(|(_, form)| form.gemm == gemm) {
            let _ = writeln!(
                source,
                "namespace tile{number} {{\nusing Shape = SharedShape<{}, {}, {columns}>;\n\
                 using Epilogue = SharedHalfEpilogue<Shape, {gelu}>;\nusing Memory = SharedMemory<Shape, Epilogue>;\n}}",
                form.m, form.n
            );
            let Launch { working, threads, shared, .. } = shared::shared(number);
            let here = |name: &str| format!("tile{number}::{name}");
            equal.push((here("Memory::TOTAL"), shared as usize));
            equal.push((here("Shape::THREADS"), threads as usize));
            equal.push((format!("tile{number}::Shape::BLOCKS * tile{number}::Shape::N_TILES"), working as usize));
            equal.push((here("Epilogue::COLUMNS"), form.slab() as usize));
        }
        check(nvcc, &stem, &source, &equal);
    }
}

/// Shared memory of the Hopper attention, alone and with its projection.
fn hopper_attention(nvcc: &Path) {
    for (file, uses, causal) in [("attention", "ATTENTION", false), ("attention_causal", "ATTENTION_CAUSAL", true)] {
        let (includes, uses) = instances(&format!("attention/{file}_sm90a.cu"), uses);
        let forms: Vec<_> = attention_forms(causal)
            .map(|form| ATTENTION[form])
            .filter(|form| form.blocks == 1 && !form.dealt)
            .collect();
        assert_eq!(uses.len(), forms.len(), "{file}: {uses:?}");
        let mut equal = Vec::new();
        for (form, arguments) in forms.iter().zip(uses) {
            assert_eq!(arguments[1..3], [form.rows.to_string(), form.keys.to_string()], "{file}");
            let tile = format!("(AttentionTile<{}, {causal}>", arguments[1..].join(", "));
            equal.push((format!("{tile}::SMEM_BYTES)"), form.shared as usize));
            equal.push((format!("{tile}::THREADS)"), 128 * (form.rows * form.keys + 1)));
            if !causal {
                equal.push((format!("{tile}::CAST_WARPS)"), form.casting_warps()));
            }
        }
        check(nvcc, file, &includes, &equal);
    }
    let file = "attention_cluster";
    let (includes, uses) = instances(&format!("attention/{file}_sm90a.cu"), "ATTENTION_CLUSTER");
    let forms: Vec<_> = ATTENTION.iter().filter(|form| form.blocks > 1).collect();
    assert_eq!(uses.len(), forms.len(), "{file}: {uses:?}");
    let mut equal = Vec::new();
    for (form, arguments) in forms.iter().zip(uses) {
        let [rows, keys, stages] = &arguments[..] else { panic!("{file}: {arguments:?}") };
        assert_eq!(*rows, form.rows.to_string(), "{file}");
        let tile = format!("(AttentionTile<{rows}, 1, {keys}, {stages}, false, {}>", form.blocks);
        equal.push((format!("{tile}::SMEM_BYTES)"), form.shared as usize));
        equal.push((format!("{tile}::THREADS)"), 128 * (form.rows + 1)));
        equal.push((format!("{tile}::CAST_WARPS)"), form.casting_warps()));
    }
    check(nvcc, file, &includes, &equal);
    let dealt = ATTENTION.iter().find(|form| form.dealt).expect("a form that deals work out");
    let equal = [
        ("DealtTile::SMEM_BYTES", dealt.shared as usize),
        ("DealtTile::THREADS", 128 * (dealt.rows + 1)),
        ("DealtTile::CAST_WARPS", dealt.casting_warps()),
        ("DealtTile::KEYS", DEALT_KEYS),
        ("PART_BYTES", PART_BYTES),
        // What src/cuda/hopper/block.rs writes into the arguments.
        ("sizeof(Dealing)", 20),
        ("offsetof(DealtArgs, flags)", 24),
        ("offsetof(DealtArgs, parts)", 32),
        ("offsetof(DealtArgs, cast)", 40),
        ("offsetof(DealtArgs, longest) - sizeof(CastArgs)", 40),
    ];
    let equal = equal.map(|(name, value)| (name.to_owned(), value));
    check(nvcc, "attention_dealt", "#include \"attention/attention_dealt_sm90a.cuh\"\n", &equal);
    let equal = [
        ("QkvAttentionSmem::TOTAL", qkv_attention::SHARED),
        ("QkvAttentionTile::THREADS", qkv_attention::THREADS),
        ("MOST_HEAD_BLOCKS", qkv_attention::BLOCKS[qkv_attention::BLOCKS.len() - 1] as u32),
    ];
    let equal = equal.map(|(name, value)| (name.to_owned(), value as usize));
    check(nvcc, "qkv_attention", "#include \"attention/qkv_attention_tile_sm90a.cuh\"\n", &equal);
    let mut together: Vec<_> = ATTENTION_PROJ
        .iter()
        .map(|form| (format!("AttentionProj<{}>::TOTAL", form.keys), form.shared as usize))
        .collect();
    let chip = Chip { sms: 132, clusters: [66, 30, 15], heads: [17, 15, 15] };
    for (seq_len, prepared) in [(64, false), (64, true), (128, false)] {
        let precision = SolvePrecision::Fast;
        let shape = Shape { batch: 1, seq_len, causal: false, prepared, precision, guarded: true, rescued: false };
        let plan = forward(chip, shape, true);
        let launch = plan.iter().find(|launch| matches!(launch.kernel, Kernel::AttentionProj { .. }));
        together.push((format!("AttentionProj<{seq_len}>::THREADS"), launch.expect("in one kernel").threads as usize));
    }
    check(nvcc, "attention_proj", "#include \"gemm/attention_proj_direct_sm90a.cuh\"\n", &together);
}

/// The resident kernel of few rows: its shared memory, threads and blocks, and the boxes in which the copy engine brings the caller's weights.
fn few_tokens(nvcc: &Path) {
    let mut equal = Vec::new();
    let mut includes = String::new();
    let mut check_forms = |kind: &str, forms: &[FewTile], of: &[(&str, &dyn Fn(usize) -> Kernel)]| {
        let uses;
        (includes, uses) = instances("small/small_sm90a.cu", kind);
        assert_eq!(uses.len(), forms.len(), "{kind}: {uses:?}");
        for (number, (form, arguments)) in forms.iter().zip(uses).enumerate() {
            // More than 32 rows are multiplied 32 at a time.
            let (rows, single) = (form.rows.min(FEW_ROWS), form.single);
            let name = format!("{}{}", form.rows, if single && form.rows > 1 { "x1" } else { "" });
            let expected = match kind {
                "FROM_F32" => name,
                "FROM_PREPARED" => format!("{rows}, {single}, {name}"),
                _ => format!("{single}, {name}"),
            };
            assert_eq!(arguments.join(", "), expected, "{kind}");
            for (weights, kernel) in of {
                let rows = if kind == "IN_FP32" { "small::FP32_ROWS".to_owned() } else { rows.to_string() };
                let instance = format!("<{rows}, small::{weights}, {single}>");
                let shared = format!("small::Shared{instance}");
                // Where a call may be computed again, for that as well.
                let bytes = if kind == "IN_FP32" {
                    format!("sizeof({shared})")
                } else {
                    format!("small::SHARED_BYTES<{shared}>")
                };
                equal.push((bytes, shared_bytes(kernel(number)) as usize));
                if *weights == "PackedWeights" {
                    continue;
                }
                for (matrix, part) in ["Qkv", "Attn", "Fc", "Proj"].into_iter().zip(form.boxes()) {
                    let PartBox { group, columns, runs } = part;
                    let slice = format!("small::Cut{instance}::{matrix}");
                    equal.push((format!("{slice}::Matrix::GROUP"), group as usize));
                    equal.push((format!("{slice}::WIDTH"), columns as usize));
                    equal.push((format!("{slice}::PART_ROWS / (4 * {slice}::Matrix::GROUP)"), runs as usize));
                }
            }
        }
    };
    let few = |weights: FewWeights| move |number| Kernel::Few { weights, tile: weights.tiles().start + number };
    let in_fp32 = |aligned| move |form| Kernel::FewInFp32 { aligned, form };
    let (aligned, unaligned) = (few(FewWeights::Aligned), few(FewWeights::Unaligned));
    let from_fp32 = &FEW[FewWeights::Aligned.tiles()];
    check_forms("FROM_F32", from_fp32, &[("Fp32Weights", &aligned), ("UnalignedWeights", &unaligned)]);
    check_forms("FROM_PREPARED", &FEW, &[("PackedWeights", &few(FewWeights::Prepared))]);
    let (aligned, unaligned) = (in_fp32(true), in_fp32(false));
    check_forms("IN_FP32", &FEW_IN_FP32, &[("ExactWeights", &aligned), ("UnalignedExactWeights", &unaligned)]);
    let shape = Shape {
        batch: 1,
        seq_len: FEW_ROWS,
        causal: false,
        prepared: false,
        precision: SolvePrecision::Fast,
        guarded: true,
        rescued: false,
    };
    let chip = Chip { sms: 1000, clusters: [500, 0, 0], heads: [0; 3] };
    let [Launch { grid, threads, .. }] = forward(chip, shape, true)[..] else { panic!("one launch") };
    equal.push(("small::BLOCK".to_owned(), threads as usize));
    equal.push(("small::MAX_GRID".to_owned(), grid[0] as usize));
    equal.push(("small::MAX_ROWS".to_owned(), FEW_ROWS));
    equal.push(("small::MAX_SINGLES".to_owned(), MOST_SINGLES));
    equal.push(("sizeof(small::Merge)".to_owned(), shared_bytes(Kernel::FewMerge) as usize));
    for launch in prepare().iter().filter(|launch| launch.kernel == Kernel::FewMerge) {
        equal.push(("small::Merge::THREADS".to_owned(), launch.threads as usize));
        equal.push(("small::Merge::BLOCKS".to_owned(), launch.grid[0] as usize));
    }
    includes += "#include \"small/merge.cuh\"\n";
    equal.push(("small::FP32_ROWS".to_owned(), FEW_IN_FP32[1].rows));
    check(nvcc, "few_tokens", &includes, &equal);
}

/// What each product of the exact chain has for a block.
fn exact_chain(nvcc: &Path) {
    let mut equal = vec![
        ("NORM_THREADS".to_owned(), chain::NORM.0 as usize),
        ("NORM_THREADS / 32".to_owned(), chain::NORM.1),
        ("ChainAttention::THREADS".to_owned(), chain::ATTENTION.0 as usize),
        ("ChainAttention::ROWS".to_owned(), chain::ATTENTION.1),
        ("ChainAttention::SHARED_BYTES".to_owned(), chain::ATTENTION.2 as usize),
    ];
    for gemm in Gemm::ALL {
        for tile in chain::TILES[gemm as usize] {
            let (n, k) = (gemm.columns(), gemm.depth());
            let shape = format!("ChainShape<{n}, {k}, {}, {}, {}>", tile.warpgroups, tile.columns, tile.splits);
            equal.push((format!("{shape}::THREADS"), tile.threads() as usize));
            equal.push((format!("{shape}::SHARED_BYTES"), tile.shared as usize));
        }
    }
    let headers = ["norm", "attention", "product"].map(|part| format!("#include \"exact/chain_{part}_sm90a.cuh\"\n"));
    check(nvcc, "exact_chain", &format!("{}using namespace exact90;\n", headers.concat()), &equal);
}

/// The same of the chain for many rows, and what the host hands over to it.
fn exact_long(nvcc: &Path) {
    let call = Call { sms: 132, fours: 30, rows: 512, seq_len: 512, causal: false, casts: true };
    let (dealt, [_, qkv, attn, fc, all]) = (call.work(), work::SLABS);
    let equal = [
        ("LONG_BEGIN_THREADS", long::BEGIN_THREADS as usize),
        ("LONG_NORM_THREADS", long::NORM_THREADS as usize),
        ("ROW_TILE", long::ROW_TILE),
        ("WIDEST", long::WIDE),
        ("SLABS_QKV", qkv),
        ("SLABS_ATTN", attn - qkv),
        ("SLABS_FC", fc - attn),
        ("SLABS_PROJ", all - fc),
        ("LongParts::BLOCKS", work::RUN_BLOCKS),
        ("sizeof(LongTiles)", 8 * dealt.qkv.words().len()),
        ("sizeof(LongRuns)", 8 * dealt.runs.words().len()),
        ("sizeof(LongSlabs)", 8 * dealt.slabs[0].words().len()),
    ]
    .map(|(expression, value)| (expression.to_owned(), value));
    let headers = ["attention", "norm", "work"].map(|part| format!("#include \"exact/long_{part}_sm90a.cuh\"\n"));
    check(nvcc, "exact_long", &format!("{}using namespace exact90;\n", headers.concat()), &equal);
}

fn exact_forms(nvcc: &Path) {
    for arch in Arch::ALL {
        let form = exact::form(arch);
        let (header, space, threads, shared) = match arch {
            Arch::Sm90a => ("exact_memory_sm90a", "exact90", "THREADS", "SHARED_BYTES"),
            _ => (if arch == Arch::Sm75 { "exact_sm75" } else { "exact_sm80" }, "", "EXACT_THREADS", "EXACT_SHARED"),
        };
        let equal = [
            (threads, form.threads as usize),
            (shared, form.shared as usize),
            ("EXACT_FIXED", form.fixed),
            ("EXACT_PER_ROW", form.per_row),
        ]
        .map(|(name, value)| (format!("{space}::{name}"), value));
        let prepared = [("EXACT_PREPARED", form.prepared), ("AT_ROWS", exact::PLAIN)];
        let prepared = prepared.map(|(name, value)| (format!("{space}::{name}"), value));
        let prepared = prepared.into_iter().filter(|_| arch == Arch::Sm90a);
        // What src/cuda/exact/mod.rs writes into the arguments.
        let arguments = [
            ("sizeof(ExactArgs)", 8 * exact::WORDS),
            ("offsetof(ExactArgs, weights)", 16),
            ("offsetof(ExactArgs, alarms)", 32),
            ("offsetof(ExactArgs, seq_len)", 44),
            ("offsetof(ExactArgs, phases)", 52),
            ("offsetof(ExactArgs, keep_alarms)", 60),
            ("offsetof(ExactArgs, watchers)", 64),
            ("offsetof(ExactArgs, sms)", 68),
            ("EXACT_CAST * 10 + EXACT_FORWARD", 12),
            ("RULE_EXACT * 100 + RULE_FAST * 10 + RULE_AUTO", 12),
            ("ALARMS * 4 <= 256", 1),
            ("ALARMS_FEW * 4", AWAKE.end),
            ("ALARMS_FEW + 2 * ALARMS <= ALARMS_COUNTED", 1),
            (&format!("(ALARMS_COUNTED + 2) * 4 <= {ALARMS_BYTES}"), 1),
        ]
        .map(|(name, value)| (name.to_owned(), value));
        let equal: Vec<_> = equal.into_iter().chain(prepared).chain(arguments).collect();
        check(nvcc, header, &format!("#include <cstddef>\n#include \"exact/{header}.cuh\"\n"), &equal);
    }
    let few = [("FEW_ROWS", exact::FEW_ROWS), ("FEW_THREADS", exact::FEW_THREADS as usize)]
        .map(|(name, value)| (format!("exact90::{name}"), value));
    check(nvcc, "exact_few", "#include \"exact/exact_few_plan_sm90a.cuh\"\n", &few);
    exact_chain(nvcc);
    exact_long(nvcc);
}
