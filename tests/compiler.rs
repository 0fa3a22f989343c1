//! Which compiler the build takes for the kernels: the build script itself, with compilers that only say what they are.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

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
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for the test");
    let text = format!(
        "#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.88'\n\
         while [ $# -gt 0 ]; do [ \"$1\" = -o ] && : >\"$2\"; shift; done; exit 0\n"
    );
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
    for unfit in [at("text"), at("missing"), ROOT.to_string(), "true".to_string()] {
        said(&unfit, &format!("cargo::error=libsolve: NVCC is {unfit:?}, which is no nvcc"));
    }
}
