//! Which compiler the build takes for the kernels: the build script itself, with compilers that only say what they are.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The latest one that cargo has made. It lies beside the folder of what it wrote.
fn build_script() -> PathBuf {
    let folder = Path::new(env!("OUT_DIR")).ancestors().nth(2).expect("target/<profile>/build");
    let scripts = fs::read_dir(folder).expect("the folder").flatten().filter(|entry| {
        entry.file_name().to_string_lossy().starts_with("solve-") && entry.path().join("build-script-build").exists()
    });
    let made = |script: &PathBuf| script.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    scripts.map(|entry| entry.path().join("build-script-build")).max_by_key(made).expect("a build script")
}

/// A compiler of this release that writes empty files.
fn compiler(path: &Path, release: &str) {
    let text = format!(
        "#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.88'\n\
         while [ $# -gt 0 ]; do [ \"$1\" = -o ] && : >\"$2\"; shift; done; exit 0\n"
    );
    program(path, &text);
}

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for the test");
    fs::write(path, text).expect("a compiler for the test");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a compiler for the test");
}

#[test]
fn the_compiler_that_is_named_is_taken_or_refused_by_name() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiler");
    let _ = fs::remove_dir_all(&folder);
    let (commands, out) = (folder.join("bin"), folder.join("profile/build/solve/out"));
    fs::create_dir_all(&out).expect("a folder for the test");
    let at = |name: &str| commands.join(name).display().to_string();
    for (name, release) in [("nvcc", "13.0"), ("nvcc-12.9", "12.9"), ("nvcc-12.8", "12.8")] {
        compiler(&commands.join(name), release);
    }
    fs::write(commands.join("text"), "no program\n").expect("a file for the test");
    let path = format!("{}:/usr/bin:/bin", commands.display());
    let build = |nvcc: &str| {
        let mut script = Command::new(build_script());
        script.current_dir(ROOT).env("CARGO_MANIFEST_DIR", ROOT).env("OUT_DIR", &out).env("NUM_JOBS", "1");
        script.env("PATH", &path).env("SOLVE_CUDA_ARCHS", "sm75").env("NVCC", nvcc).env_remove("SOLVE_NO_CUDA");
        script.env_remove("CUDA_HOME").env_remove("CUDA_PATH");
        String::from_utf8_lossy(&script.output().expect("it runs").stdout).into_owned()
    };
    let said = |nvcc: &str, words: &str| {
        let said = build(nvcc);
        assert!(said.contains(words), "NVCC={nvcc}: {words:?} is not in:\n{said}");
    };
    said("", "cargo::rustc-env=SOLVE_CUDA_VERSION=13000");
    said("nvcc-12.9", "cargo::rustc-env=SOLVE_CUDA_VERSION=12090");
    said(&at("nvcc-12.9"), "cargo::rustc-env=SOLVE_CUDA_VERSION=12090");
    said("nvcc-12.8", "cargo::error=libsolve: NVCC is \"nvcc-12.8\", of version 12.8; 12.9 or newer is needed");
    said("nvcc-0", "cargo::error=libsolve: NVCC is \"nvcc-0\", which is no command on PATH");
    for unfit in [at("text"), "true".to_string()] {
        said(&unfit, &format!("cargo::error=libsolve: NVCC is {unfit:?}, which is no nvcc"));
    }
    for unfit in [at("missing"), ROOT.to_string()] {
        said(&unfit, &format!("cargo::error=libsolve: NVCC is {unfit:?}, which is no file"));
    }
}

/// A tree of one source and one header, with a compiler that notes when it is called and says what the test wants it to say.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        for below in ["src", "include", "cuda", "target/profile/build/solve/out"] {
            fs::create_dir_all(folder.join(below)).expect("a folder for the test");
        }
        for file in ["src/error.rs", "src/precision.rs", "src/ffi.rs", "include/cbindgen.toml"] {
            fs::copy(Path::new(ROOT).join(file), folder.join(file)).expect("what the header is made of");
        }
        let tree = Self(folder);
        for source in ["cuda/one_sm80.cu", "cuda/one.cuh"] {
            fs::write(tree.at(source), "").expect("a source");
            // Older than whatever is made of it, on any clock
            tree.touch(source, SystemTime::now() - Duration::from_secs(3600));
        }
        tree.compiler("nvcc", "13.0");
        tree.says("", 0);
        tree
    }

    fn at(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    fn touch(&self, file: &str, time: SystemTime) {
        let file = fs::File::options().append(true).open(self.at(file)).expect("the file");
        file.set_modified(time).expect("its time");
    }

    fn compiler(&self, name: &str, release: &str) {
        let folder = self.0.display();
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'Cuda compilation tools, release {release}, V{release}.88' && exit\n\
             echo {name} >>'{folder}/calls'\n\
             while [ $# -gt 0 ]; do\n\
             case $1 in -o) : >\"$2\" ;; -MF) printf 'out : cuda/one_sm80.cu \\\\\\n cuda/one.cuh\\n' >\"$2\" ;; esac\n\
             shift\ndone\ncat '{folder}/says' >&2\nexit \"$(cat '{folder}/status')\"\n"
        );
        program(&self.at(&format!("bin/{name}")), &text);
    }

    fn says(&self, words: &str, status: u8) {
        fs::write(self.at("says"), words).expect("words");
        fs::write(self.at("status"), status.to_string()).expect("a status");
    }

    /// What a build says, and how often it has called which compiler.
    fn build(&self, variables: &[(&str, &str)]) -> (String, Vec<String>) {
        let _ = fs::remove_file(self.at("calls"));
        let mut script = Command::new(build_script());
        for unset in ["NVCC", "CUDA_HOME", "CUDA_PATH", "SOLVE_NO_CUDA", "SOLVE_CUDA_ARCHS", "NVCC_APPEND_FLAGS"] {
            script.env_remove(unset);
        }
        script.current_dir(&self.0).env("CARGO_MANIFEST_DIR", &self.0).env("NUM_JOBS", "1");
        script.env("OUT_DIR", self.at("target/profile/build/solve/out")).env_remove("NVCC_PREPEND_FLAGS");
        script.env("PATH", format!("{}:/usr/bin:/bin", self.at("bin").display()));
        let said = script.envs(variables.iter().copied()).output().expect("it runs").stdout;
        let calls = fs::read_to_string(self.at("calls")).unwrap_or_default();
        (String::from_utf8_lossy(&said).into_owned(), calls.lines().map(str::to_owned).collect())
    }
}

/// Kernels of an earlier state of the sources, or of another compiler, would be in the library.
#[test]
fn what_has_changed_is_compiled_again() {
    let tree = Tree::new("compiled_again");
    let calls = |variables| {
        let (said, calls) = tree.build(variables);
        assert!(!said.contains("cargo::error"), "{said}");
        calls.len()
    };
    // A cubin and PTX
    assert_eq!([calls(&[]), calls(&[])], [2, 0], "nothing has changed");
    tree.touch("cuda/one.cuh", SystemTime::now());
    assert_eq!([calls(&[]), calls(&[])], [2, 0], "a header");
    tree.touch("cuda/one_sm80.cu", SystemTime::now());
    assert_eq!([calls(&[]), calls(&[])], [2, 0], "the source");
    let flags = [("NVCC_APPEND_FLAGS", "-lineinfo")];
    assert_eq!([calls(&flags), calls(&flags), calls(&[])], [2, 0, 2], "flags");
    tree.compiler("nvcc", "13.1");
    assert_eq!([calls(&[]), calls(&[])], [2, 0], "another compiler");
    tree.touch("cuda/one.cuh", SystemTime::now());
    tree.says("error: no such thing", 1);
    for _ in 0..2 {
        let (said, calls) = tree.build(&[]);
        assert!(said.contains("cargo::error=error: no such thing") && !calls.is_empty(), "{said}");
    }
    tree.says("", 0);
    assert_eq!(calls(&[]), 2, "what has failed");
}

#[test]
fn slow_code_stops_the_build_of_the_compiler_that_the_kernels_are_tuned_with() {
    let tree = Tree::new("slow_code");
    let none = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
    let build = |words: &str, release: &str| {
        tree.compiler("nvcc", release);
        tree.touch("cuda/one.cuh", SystemTime::now());
        tree.says(&format!("{none}{words}\n"), 0);
        tree.build(&[]).0
    };
    for slow in [
        "    8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads",
        "ptxas warning : Registers are spilled to local memory in function 'kernel'",
        "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized",
    ] {
        let (tuned, other) = (build(slow, "13.0"), build(slow, "13.1"));
        assert!(tuned.contains(&format!("cargo::error={slow}")), "{slow}: {tuned}");
        assert!(
            !other.contains("cargo::error") && other.contains("cargo::warning=nvcc 13.1 makes slow code of"),
            "{other}"
        );
    }
    let moved = build("ptxas info : (C7519) a wait was moved", "13.0");
    assert!(!moved.contains("cargo::error") && !moved.contains("cargo::warning"), "{moved}");
}

#[test]
fn the_environment_says_what_is_compiled_and_by_whom() {
    let tree = Tree::new("environment");
    let version = |number: &str| format!("cargo::rustc-env=SOLVE_CUDA_VERSION={number}\n");
    let build = |variables: &[(&str, &str)]| tree.build(variables);
    for (value, number, calls) in [("1", "0", 0), ("0", "13000", 2)] {
        let (said, called) = build(&[("SOLVE_NO_CUDA", value)]);
        assert!(said.contains(&version(number)) && called.len() == calls, "SOLVE_NO_CUDA={value}: {said}");
    }
    let (said, _) = build(&[("SOLVE_CUDA_ARCHS", "sm80 sm81")]);
    assert!(said.contains("cargo::error=SOLVE_CUDA_ARCHS has \"sm81\", expected some of"), "{said}");
    // A toolkit by its folder, before the command on PATH, unless it is too old
    tree.compiler("../home/bin/nvcc", "13.2");
    tree.compiler("../old/bin/nvcc", "12.8");
    let (home, old) = (tree.at("home").display().to_string(), tree.at("old").display().to_string());
    for (variables, number) in [
        (&[("CUDA_HOME", &*home)][..], "13020"),
        (&[("CUDA_PATH", &*home)], "13020"),
        (&[("CUDA_HOME", &*home), ("CUDA_PATH", &*old)], "13020"),
        (&[("CUDA_HOME", &*old)], "13000"),
        (&[], "13000"),
    ] {
        let (said, _) = build(variables);
        assert!(said.contains(&version(number)), "{variables:?}: {said}");
    }
}
