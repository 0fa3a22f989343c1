//! Whatever is wrong with the input, the grader says so in a sentence and with the right exit code.

mod common;

use common::{candidate, folder, graded, skipped};

#[test]
fn every_bad_input_has_its_exit_code_and_its_words() {
    let folder = folder("bad_input");
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file for the test");
    write("text.so", "this is no library\n");
    write("broken.cu", "extern \"C\" void solve(const float*, float*, const float*, int) { not_declared(); }\n");
    write("baseline.json", "{\"schema\": 1}\n");
    let no_solve = candidate("no_solve", &folder);
    let honest = candidate("honest_plain", &folder);

    let (text, broken, missing) = (path("text.so"), path("broken.cu"), path("nothing.so"));
    let (baseline, absent) = (path("baseline.json"), path("absent.json"));
    let short = ["--device", "cpu", "--suite", "official", "--max-case", "2", "--no-timing"];
    let table: [(&[&str], i32, &str); 11] = [
        (&[&missing], 10, "cannot be loaded"),
        (&[&text], 10, "cannot be loaded"),
        (&[&no_solve], 10, "has no symbol solve"),
        (&[&honest, "--api", "prepared"], 10, "has no symbol solve_block_create"),
        (&[&honest, "--baseline", &baseline], 2, "is no report"),
        (&[&honest, "--baseline", &absent], 2, "is no report"),
        (&[&honest, "--fail-on-regression", "2"], 2, "--baseline"),
        (&[&honest, "--seq", "0"], 2, "is no length"),
        (&[&honest, "--json", "/nonexistent/report.json"], 2, "cannot be written"),
        (&["--no-such-flag"], 2, "--no-such-flag"),
        (&[&honest], 0, "PASS"),
    ];
    for (arguments, code, words) in table {
        let all: Vec<&str> =
            if code == 2 && arguments.len() == 1 { arguments.to_vec() } else { [arguments, &short].concat() };
        let (got, said) = graded(&all);
        assert!(got == code && said.contains(words), "{all:?}: expected {code} and {words:?}, got {got}:\n{said}");
    }
    source_file(&broken);
}

/// A source file that does not compile is answered in the compiler's own words; without a compiler with 23.
fn source_file(broken: &str) {
    let (code, said) = graded(&[broken, "--device", "cpu", "--no-timing"]);
    let compiled = code == 10 && said.contains("not_declared");
    assert!(compiled || (code == 23 && said.contains("no nvcc")), "{code}:\n{said}");
}

#[test]
fn a_gpu_that_is_not_there_is_an_unfit_environment() {
    if std::path::Path::new("/dev/nvidia0").exists() {
        skipped("a GPU that is not there: this machine has one");
        return;
    }
    let (code, said) = graded(&["nothing.so", "--device", "cuda"]);
    assert!(code == 23 && (said.contains("no NVIDIA driver") || said.contains("CUDA_ERROR")), "{code}:\n{said}");
}
