//! What `harness/run` and `harness/toolkit` do before there is a grader, and which compiler that takes, with programs that only say that they were called.

mod common;

use std::path::{Path, PathBuf};
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

/// A tree with these programs, and a cargo that says where it would build and makes what the programs take from there.
fn tree_with(name: &str, programs: &[&str]) -> PathBuf {
    let root = folder(name);
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for file in programs {
        program(&tree.join(file), &root.join(file));
    }
    for file in ["Cargo.toml", "include/solve.h"] {
        program(&tree.join(file), &root.join(file));
    }
    let cargo = "for a; do [ \"$last\" = --target-dir ] && CARGO_TARGET_DIR=$a; last=$a; done\n\
        echo \"cargo $1 $CARGO_TARGET_DIR <$CARGO_BUILD_TARGET_DIR$CARGO_BUILD_TARGET>\" >>\"$LOG\"\n\
        mkdir -p \"$CARGO_TARGET_DIR/release\"; echo ab >\"$CARGO_TARGET_DIR/release/libsolve.so\"";
    script(&root.join("bin/cargo"), cargo);
    script(
        &root.join("target/release/harness"),
        "if [ \"$1\" = build-id ]; then echo ab; else echo graded >>\"$LOG\"; fi",
    );
    root
}

/// One of its programs. It must not be told of the target folder that this test itself was built in: what cargo makes there is a library of two letters.
fn in_tree(root: &Path, name: &str) -> Command {
    let mut command = Command::new(root.join(name));
    command.env("PATH", format!("{}:/usr/bin:/bin", root.join("bin").display())).env_remove("CARGO_TARGET_DIR");
    command.env("LOG", root.join("log")).env("SOLVE_NO_CUDA", "1");
    command
}

/// What cargo builds elsewhere is not what is run afterwards.
#[test]
fn what_is_built_is_what_is_run_wherever_settings_say_to_build() {
    let root = tree_with("built", &["harness/run", "harness/bundle", "tests/run"]);
    script(&root.join("tests/c/run"), "echo \"C $1\" >>\"$LOG\"");
    let (log, target) = (root.join("log"), root.join("target"));
    let prefix = root.join("installed").display().to_string();
    for (name, arguments, last) in [
        ("harness/run", &[][..], "graded"),
        ("harness/bundle", &["--prefix", prefix.as_str()], "cargo build"),
        ("tests/run", &[], &format!("C {}/release", target.display())),
    ] {
        let _ = std::fs::remove_file(&log);
        let mut command = in_tree(&root, name);
        command
            .args(arguments)
            .env("CARGO_BUILD_TARGET_DIR", root.join("elsewhere"))
            .env("CARGO_BUILD_TARGET", "another");
        let output = command.output().expect("a shell");
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        assert!(output.status.success(), "{name}: {output:?}\n{log}");
        let builds: Vec<&str> =
            log.lines().filter(|line| line.starts_with("cargo ") && !line.contains(" fmt ")).collect();
        let here = format!(" {} <>", target.display());
        assert!(!builds.is_empty() && builds.iter().all(|line| line.ends_with(&here)), "{name}:\n{log}");
        assert!(log.lines().last().is_some_and(|line| line.starts_with(last)), "{name}:\n{log}");
    }
}

/// A shell looks there for a folder whose name has no dot in front, and prints what it finds.
#[test]
fn a_search_path_for_folders_leads_nowhere_else() {
    let root = tree_with("cdpath", &["harness/run", "harness/bundle"]);
    for (name, arguments) in [("harness/run", &[][..]), ("harness/bundle", &["--prefix", "installed"])] {
        let mut bash = Command::new("bash");
        bash.arg(name).args(arguments).current_dir(&root).env("CDPATH", ".").env("SOLVE_NO_CUDA", "1");
        bash.env("PATH", format!("{}:/usr/bin:/bin", root.join("bin").display())).env_remove("CARGO_TARGET_DIR");
        let output = bash.env("LOG", root.join("log")).output().expect("a shell");
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

#[test]
fn scripts_refuse_what_they_do_not_know() {
    let root = tree_with("unknown", &["harness/bundle", "tests/run"]);
    for (name, arguments, words) in [
        ("tests/run", &["quik"][..], "tests/run quick "),
        ("tests/run", &["quick", "quick"], "tests/run quick "),
        ("harness/bundle", &["--prefix"], "harness/bundle --prefix DIR"),
        ("harness/bundle", &["--prefix", ""], "harness/bundle --prefix DIR"),
        ("harness/bundle", &["--prefix", "a", "b"], "harness/bundle --prefix DIR"),
        ("harness/bundle", &["prefix"], "harness/bundle --prefix DIR"),
    ] {
        let output = in_tree(&root, name).args(arguments).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{name} {arguments:?}: {output:?}");
        assert!(!root.join("log").exists(), "{name} {arguments:?} built something");
    }
}

/// What is counted is what the programs say, and one failure is enough.
#[test]
fn what_fails_in_the_tests_is_counted_and_told() {
    let root = tree_with("counted", &["tests/run"]);
    let cargo = "echo \"test result: ok. $PASSED passed; $FAILED failed; 2 ignored; 0 measured\" >\"$LOG\"\n\
        case $1 in fmt) exit $FORMAT;; test) cat \"$LOG\"; exit $FAILED;; esac\n\
        mkdir -p target/release; echo ab >target/release/libsolve.so";
    script(&root.join("bin/cargo"), cargo);
    script(&root.join("bin/apt-get"), "");
    for (format, failed, id, c, last, code) in [
        ("0", "0", "ab", "0", "8 passed, 0 failed, 3 skipped", 0),
        ("1", "0", "ab", "0", "7 passed, 1 failed, 3 skipped", 1),
        ("0", "1", "ab", "0", "8 passed, 1 failed, 3 skipped", 1),
        ("0", "0", "cd", "0", "7 passed, 1 failed, 3 skipped", 1),
        ("0", "0", "ab", "1", "8 passed, 1 failed, 3 skipped", 1),
    ] {
        script(&root.join("target/release/harness"), &format!("echo {id}"));
        script(&root.join("tests/c/run"), &format!("echo 'ok: one'; echo 'skipped: another'; exit {c}"));
        let mut tests = in_tree(&root, "tests/run");
        let output = tests.env("FORMAT", format).env("PASSED", "3").env("FAILED", failed).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.ends_with(&format!("{last}\n")) && output.status.code() == Some(code), "{output:?}");
    }
}

#[test]
fn a_library_of_another_tree_is_not_bundled() {
    let root = tree_with("another", &["harness/bundle"]);
    script(&root.join("target/release/harness"), "echo cd");
    let output = in_tree(&root, "harness/bundle").output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("libsolve.so is of another build"), "{output:?}");
}

/// harness/toolkit in a tree of its own, with a python3 that does this: `install` is what pip does there for a compiler.
fn tree_with_toolkit(name: &str, python: &str) -> PathBuf {
    let root = folder(name);
    program(&Path::new(env!("CARGO_MANIFEST_DIR")).join("toolkit"), &root.join("harness/toolkit"));
    let nvcc = root.join("installed/nvcc");
    script(&nvcc, "echo 'Build cuda_13.0'");
    let install =
        format!("install() {{ bin=target/toolkit/nvidia/cu13/bin; mkdir -p $bin && cp '{}' $bin; }}", nvcc.display());
    script(&root.join("bin/python3"), &format!("{install}\n{python}"));
    root
}

/// How harness/toolkit of that tree ends, with this in PIP, and what it says.
fn toolkit(root: &Path, pip: &str) -> (Option<i32>, String) {
    let mut toolkit = Command::new(root.join("harness/toolkit"));
    toolkit.env("PATH", format!("{}:/usr/bin:/bin", root.join("bin").display())).env("PIP", pip);
    let output = toolkit.output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), said)
}

/// What is there is looked at: neither installed again nor taken for what it is not.
#[test]
fn the_compiler_is_installed_once_for_each_version() {
    let root = tree_with_toolkit("installed once", "[ \"$3\" != --version ] || exit $PIP\ninstall && echo installed");
    let (code, said) = toolkit(&root, "1");
    assert!(code == Some(1) && said.contains("needs python3 with pip"), "{said}");
    let (code, said) = toolkit(&root, "0");
    assert!(code == Some(0) && said.contains("\ninstalled\n"), "{said}");
    assert_eq!(toolkit(&root, "1"), (Some(0), String::new()), "it is there");
    std::fs::write(root.join("target/toolkit/.wheels"), "nvidia-cuda-nvcc==13.0.0\n").expect("another version");
    assert!(toolkit(&root, "0").1.contains("\ninstalled\n"), "another version is there");
}

/// A space ends a word in such a file, and # begins a comment.
#[test]
fn pkg_config_reads_any_prefix() {
    let root = tree_with("prefix", &["harness/bundle"]);
    let prefix = root.join("lib #1");
    let bundled = in_tree(&root, "harness/bundle").arg("--prefix").arg(&prefix).output().expect("a shell");
    assert!(bundled.status.success(), "{bundled:?}");
    let file = std::fs::read_to_string(prefix.join("lib/pkgconfig/solve.pc")).expect("it was installed");
    let line = format!("prefix={}/lib\\ \\#1\n", root.display().to_string().replace(' ', "\\ "));
    assert!(file.starts_with(&line), "{file}");
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.args(["--cflags", "solve"]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let Ok(output) = pkg_config.output() else { return skipped("pkg-config, which is not installed") };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.replace('\\', "").contains("/lib #1/include"), "{said}{output:?}");
}

/// Without packages of its own Python has neither.
#[test]
fn what_python_lacks_is_told_with_how_to_get_it() {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    for (name, words) in
        [("cpu.py", "needs numpy (pip install numpy==2"), ("peers.py", "needs torch (pip install torch==2")]
    {
        let mut python = Command::new("python3");
        python.args(["-B", "-S"]).arg(peers.join(name)).arg("libsolve.so").env_remove("PYTHONPATH");
        let output = python.output().expect("python3");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words) && !said.contains("Traceback"), "{said}");
    }
}

/// A pip as old as that of Ubuntu 22.04, which ends where it does not know an option.
#[test]
fn a_pip_of_22_0_installs_the_compiler() {
    let python = "case \"$*\" in *'pip --version') exit 0;; *--root-user-action*) echo 'no such option' >&2; exit 2;; esac\n\
        install && echo \"root: $PIP_ROOT_USER_ACTION\"";
    let (code, said) = toolkit(&tree_with_toolkit("old pip", python), "");
    assert!(code == Some(0) && said.ends_with("root: ignore\nBuild cuda_13.0\n"), "{said}");
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
    let grader = |arguments: &[&str], variable: &str, value: &Path| {
        let mut grader = Command::new(env!("CARGO_BIN_EXE_harness"));
        grader.args(arguments).env_remove("NVCC").env(variable, value);
        let output = grader.output().expect("the grader starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), said)
    };
    let candidate = [source.to_str().expect("a path in UTF-8"), "--no-timing"];
    let line =
        |said: &str| said.lines().find(|line| line.contains(" compiler ")).expect("a compiler, or none").to_owned();
    // Found, it is passed over.
    let said = line(&grader(&["doctor"], "CUDA_HOME", &root).1);
    assert!(said.starts_with("ok ") || said.contains("no nvcc 12.9 or newer"), "{said}");
    assert!(!said.contains("old compiler"), "{said}");
    let (code, said) = grader(&candidate, "CUDA_HOME", &root);
    let another = code == Some(10) && said.contains("not_declared");
    let none = code == Some(23) && (said.contains("no nvcc 12.9 or newer") || said.contains("needs a GPU"));
    assert!((another || none) && !said.contains("12.8"), "{said}");
    // Named, it is refused, and so is one that is not there.
    for (named, why) in [(&old, "of version 12.8; 12.9 or newer is needed"), (&root.join("none"), "which is not there")]
    {
        let why = format!("NVCC is {named:?}, {why}");
        let said = line(&grader(&["doctor"], "NVCC", named).1);
        assert!(said.starts_with("LOOK") && said.contains(&why), "{said}");
        let (code, said) = grader(&candidate, "NVCC", named);
        assert!(code == Some(23) && (said.contains(&why) || said.contains("needs a GPU")), "{said}");
    }
}
