//! What `harness/run` and `harness/toolkit` do before there is a grader, and which compiler that takes, with programs that only say that they were called.

mod common;

use std::path::Path;
use std::process::Command;

use common::{folder, program, script, skipped};

#[test]
fn a_compiler_is_installed_where_there_is_none_new_enough_and_no_build_is_an_unfit_environment() {
    if ["/usr/local/cuda/bin/nvcc", "/usr/bin/nvcc", "/bin/nvcc"].iter().any(|path| Path::new(path).exists()) {
        skipped("a machine without nvcc: this one has one");
        return;
    }
    let root = folder("setup");
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::copy(tree.join("build.rs"), root.join("build.rs")).expect("a file of the tree");
    program(&tree.join("harness/run"), &root.join("harness/run"));
    script(&root.join("harness/toolkit"), "echo toolkit; exit $TOOLKIT");
    script(&root.join("bin/cargo"), "echo cargo; exit $CARGO");
    script(&root.join("target/release/harness"), "echo grader; exit 12");
    let run = |nvcc: &str, toolkit: &str, cargo: &str| {
        script(&root.join("bin/nvcc"), &format!("echo 'Cuda compilation tools, release {nvcc}, V{nvcc}.89'"));
        let mut command = Command::new(root.join("harness/run"));
        command.env_clear().env("PATH", format!("{}:/usr/bin:/bin", root.join("bin").display()));
        let output = command.env("TOOLKIT", toolkit).env("CARGO", cargo).output().expect("a shell");
        (String::from_utf8_lossy(&output.stdout).replace('\n', " "), output.status.code().unwrap_or(-1))
    };
    // Whether the compiler that NVCC names will do is for the build to say.
    let mut named = Command::new(root.join("harness/run"));
    named.env_clear().env("PATH", format!("{}:/usr/bin:/bin", root.join("bin").display()));
    named.env("NVCC", "nvcc-13.0").env("CARGO", "101").env("TOOLKIT", "0");
    let output = named.output().expect("a shell");
    assert_eq!((&*output.stdout, output.status.code()), (&b"cargo\n"[..], Some(23)));
    for (nvcc, toolkit, cargo, said, code) in [
        ("11.8", "0", "0", "toolkit cargo grader ", 12),
        ("12.8", "0", "0", "toolkit cargo grader ", 12),
        ("12.9", "0", "0", "cargo grader ", 12),
        ("12.10", "0", "0", "cargo grader ", 12),
        ("13.0", "0", "0", "cargo grader ", 12),
        ("11.8", "1", "0", "toolkit ", 23),
        ("13.0", "0", "101", "cargo ", 23),
    ] {
        assert_eq!(
            run(nvcc, toolkit, cargo),
            (said.to_string(), code),
            "nvcc {nvcc}, toolkit {toolkit}, cargo {cargo}"
        );
    }
}

/// A pip as old as that of Ubuntu 22.04, which ends where it does not know an option.
#[test]
fn a_pip_of_22_0_installs_the_compiler() {
    let root = folder("old pip");
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    program(&tree.join("harness/toolkit"), &root.join("harness/toolkit"));
    let nvcc = root.join("installed/nvcc");
    script(&nvcc, "echo 'Build cuda_13.0'");
    let pip = format!(
        "case \"$*\" in *'pip --version') exit 0;; *--root-user-action*) echo 'no such option' >&2; exit 2;; esac\n\
         bin=target/toolkit/nvidia/cu13/bin; mkdir -p $bin && cp '{}' $bin && echo \"root: $PIP_ROOT_USER_ACTION\"",
        nvcc.display()
    );
    script(&root.join("bin/python3"), &pip);
    let mut toolkit = Command::new(root.join("harness/toolkit"));
    toolkit.env("PATH", format!("{}:/usr/bin:/bin", root.join("bin").display()));
    let output = toolkit.output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.ends_with("root: ignore\nBuild cuda_13.0\n"), "{said}");
}

/// As the build does.
#[test]
fn the_grader_finds_a_compiler_by_the_name_of_a_command() {
    let bin = folder("named compiler").join("bin");
    script(&bin.join("nvcc-99"), "echo 'Cuda compilation tools, release 99.0, V99.0.1'");
    let mut grader = Command::new(env!("CARGO_BIN_EXE_harness"));
    grader.arg("doctor").env("NVCC", "nvcc-99").env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let said = String::from_utf8_lossy(&grader.output().expect("the grader starts").stdout).into_owned();
    assert!(said.contains(&bin.join("nvcc-99").display().to_string()), "{said}");
}

/// The grader takes no compiler for candidates that the build would not take.
#[test]
fn an_old_compiler_compiles_no_candidate() {
    let root = folder("old compiler");
    let (old, source) = (root.join("bin/nvcc"), root.join("candidate.cu"));
    script(&old, "echo 'Cuda compilation tools, release 12.8, V12.8.89'; case $1 in --version) ;; *) exit 1;; esac");
    std::fs::write(&source, "not_declared();\n").expect("a file for the test");
    let grader = |arguments: &[&str]| {
        let mut grader = Command::new(env!("CARGO_BIN_EXE_harness"));
        let output = grader.args(arguments).env("NVCC", &old).output().expect("the grader starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), said)
    };
    let (_, said) = grader(&["doctor"]);
    let line = said.lines().find(|line| line.contains(" compiler ")).expect("a compiler, or none");
    assert!(line.starts_with("ok ") || line.contains("no nvcc 12.9 or newer"), "{said}");
    assert!(!line.contains("old compiler"), "{said}");
    let (code, said) = grader(&[source.to_str().expect("a path in UTF-8"), "--no-timing"]);
    let another = code == Some(10) && said.contains("not_declared");
    let none = code == Some(23) && (said.contains("no nvcc 12.9 or newer") || said.contains("needs a GPU"));
    assert!((another || none) && !said.contains("12.8"), "{said}");
}
