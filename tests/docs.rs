//! What the documents for readers say of the tree: the files that they name are there, and the lengths are those of the plans.

use std::path::Path;

use solve::cuda::block::Shape;
use solve::cuda::exact::chain;
use solve::cuda::hopper::plan::{Chip, DIRECT_ROWS, FEW_IN_FP32, FEW_ROWS, Kernel, SHARED_ROWS, forward};
use solve::precision::SolvePrecision;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The words between backticks that are files of the tree, or would be.
fn files(text: &str) -> impl Iterator<Item = &str> {
    let of_the_tree = |word: &&str| {
        let named = [".cuh", ".cu", ".rs", ".md", ".h"].iter().any(|ending| word.ends_with(ending));
        named && word.contains('/') && !word.contains(['*', '<', '{', ' '])
    };
    text.split('`').skip(1).step_by(2).filter(of_the_tree)
}

#[test]
fn files_that_documents_name_are_there() {
    for (document, folders) in [
        ("README.md", &[""][..]),
        ("CONTRIBUTING.md", &[""]),
        ("cuda/README.md", &["", "cuda"]),
        ("cuda/NOTES.md", &["", "cuda"]),
        ("src/cuda/README.md", &["", "src/cuda"]),
        ("harness/README.md", &["", "harness/src"]),
    ] {
        let text = read(document);
        for file in files(&text) {
            let there = folders.iter().any(|folder| Path::new(ROOT).join(folder).join(file).exists());
            assert!(there, "{document} names {file}");
        }
    }
    assert!(files(&read("cuda/README.md")).count() > 10, "they are looked for");
}

/// The sources below a folder, as paths from there.
fn sources(folder: &Path, from: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    let below = |path: std::path::PathBuf| match path.is_dir() {
        true => sources(&path, from),
        false => vec![path.strip_prefix(from).expect("a path below it").display().to_string()],
    };
    paths.flat_map(below).filter(|path| path.ends_with(".rs")).collect()
}

#[test]
fn the_page_on_src_cuda_has_a_line_for_each_file() {
    let (page, folder) = (read("src/cuda/README.md"), Path::new(ROOT).join("src/cuda"));
    let rows = || page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" |"));
    let mut named: Vec<_> = rows().flat_map(|(files, _)| files.split(", ").map(|file| file.replace('`', ""))).collect();
    let mut there = sources(&folder, &folder);
    named.sort();
    there.sort();
    assert_eq!(named, there);
}

/// The rows of the table of environment variables.
fn variables(document: &str) -> Vec<String> {
    let text = read(document);
    let lines = text.lines().map(|line| line.strip_prefix("//! ").unwrap_or(line));
    let table = lines.skip_while(|line| !line.starts_with("| variable | values | effect |"));
    table.take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
}

#[test]
fn readme_and_the_sources_agree_on_the_environment() {
    let rows = variables("README.md");
    assert_eq!(rows, variables("src/lib.rs"));
    for name in ["SOLVE_DEVICE", "SOLVE_ARCH", "SOLVE_PRECISION", "RAYON_NUM_THREADS"] {
        assert!(rows.iter().any(|row| row.starts_with(&format!("| `{name}` |"))), "no row of {name}");
        assert!(read("src/knobs.rs").contains(&format!("\"{name}\"")), "nobody reads {name}");
    }
}

#[test]
fn the_guide_has_the_lengths_of_the_plans() {
    let guide = read("cuda/README.md");
    let [chain, of_handle] = [false, true].map(chain::rows);
    // An H200
    let chip = Chip { sms: 132, clusters: [66, 30, 15], heads: [17, 15, 15] };
    let is_fused = |&rows: &usize| {
        let (batch, seq_len, precision) = (1, rows, SolvePrecision::Fast);
        let (causal, prepared, guarded, rescued) = (false, false, true, false);
        let plan = forward(chip, Shape { batch, seq_len, causal, prepared, precision, guarded, rescued }, true);
        plan.iter().any(|launch| matches!(launch.kernel, Kernel::QkvAttention { .. }))
    };
    let fused: Vec<usize> = (1..5000).filter(is_fused).collect();
    let range = |rows: &[usize]| format!("| {} to {}", rows[0], rows[rows.len() - 1]);
    let rows = [
        range(&fused) + ", one sequence, not causal |",
        format!("| 1 to {} | `small/fp32.cuh`", FEW_IN_FP32[1].rows),
        format!("| {} to {} (", FEW_IN_FP32[1].rows + 1, chain.start() - 1),
        format!("| 1 to {FEW_ROWS} |"),
        format!("| {} to {DIRECT_ROWS} |", FEW_ROWS + 1),
        format!("| {} to 128 |", DIRECT_ROWS + 1),
        format!("| 129 to {SHARED_ROWS} |"),
        format!("| {} and more |", SHARED_ROWS + 1),
        format!("| {} to {} (of a handle {}) |", chain.start(), chain.end(), of_handle.end()),
        format!("| {} and more (of a handle {}) |", chain.end() + 1, of_handle.end() + 1),
    ];
    for row in rows {
        assert!(guide.contains(&row), "no '{row}'");
    }
}
