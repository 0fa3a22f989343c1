//! Candidates that come as CUDA source: found compiler, fixed options, the GPU's own architecture.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::gpu::Gpu;
use crate::reason::{Failure, Reason};
use crate::tree;

/// The oldest release whose code is as fast as that of the one which the library is tuned with, as build.rs has it.
const OLDEST: (u32, u32) = (12, 9);

/// The one that NVCC names, and no other then; else where an nvcc is that is new enough, as the build looks for it. Or what is said where there is none.
pub fn find() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::var_os("NVCC").filter(|name| !name.is_empty()) {
        Some(name) => named(Path::new(&name), &path),
        None => any(&path)
            .ok_or_else(|| format!("no nvcc {}.{} or newer (harness/toolkit installs one)", OLDEST.0, OLDEST.1)),
    }
}

/// A path, or a command. Whoever names a compiler wants to know that it was this one.
fn named(name: &Path, path: &OsStr) -> Result<PathBuf, String> {
    let is_command = name.components().count() == 1;
    let place = if is_command { on_path(name, path).find(|place| place.is_file()) } else { Some(name.to_owned()) };
    let Some(nvcc) = place.filter(|place| place.is_file()) else {
        return Err(format!("NVCC is {name:?}, which is not there"));
    };
    match release_of(&nvcc) {
        Some(release) if release >= OLDEST => Ok(nvcc),
        Some((major, minor)) => {
            Err(format!("NVCC is {name:?}, of version {major}.{minor}; {}.{} or newer is needed", OLDEST.0, OLDEST.1))
        }
        None => Err(format!("NVCC is {name:?}, which is no nvcc: its --version names no release")),
    }
}

/// The first that is new enough, last where `harness/toolkit` installs it.
fn any(path: &OsStr) -> Option<PathBuf> {
    let below = |root: PathBuf| root.join("bin/nvcc");
    let mut places: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(|root| below(root.into())).collect();
    places.extend(on_path(Path::new("nvcc"), path));
    places.push("/usr/local/cuda/bin/nvcc".into());
    places.extend(tree::root().map(|root| below(root.join("target/toolkit/nvidia/cu13"))));
    let new_enough = |place: &PathBuf| place.is_file() && release_of(place).is_some_and(|release| release >= OLDEST);
    places.into_iter().find(new_enough)
}

/// Where a command may be.
fn on_path(command: &Path, path: &OsStr) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(path).map(move |folder| folder.join(command))
}

fn release_of(nvcc: &Path) -> Option<(u32, u32)> {
    let output = Command::new(nvcc).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (major, minor) = text.split("release ").nth(1)?.split(',').next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The flag for its own libraries: the wheels keep them in lib, which nvcc does not look into by itself.
pub fn libraries(nvcc: &Path) -> Option<String> {
    let lib = nvcc.parent()?.parent()?.join("lib");
    lib.is_dir().then(|| format!("-L{}", lib.display()))
}

/// The architecture to compile for: the GPU's, with its own instructions where it has some.
fn architecture(gpu: Option<&Gpu>) -> String {
    match gpu.map_or((9, 0), |g| g.capability) {
        (9, 0) => "90a".into(),
        (major, minor) => format!("{major}{minor}"),
    }
}

/// Compiles a `.cu` file into a library in `folder`.
pub fn compile(source: &Path, folder: &Path, gpu: Option<&Gpu>) -> Result<PathBuf, Failure> {
    let load = |message: String| Failure::new(Reason::Load, message);
    let nvcc = find().map_err(|none| {
        Failure::new(Reason::Environment, format!("{} cannot be compiled: {none}", source.display()))
    })?;
    let stem = source.file_stem().map_or("candidate".into(), |s| s.to_string_lossy());
    // Two candidates may have one name.
    let taken = std::fs::read_dir(folder).map_or(0, Iterator::count);
    let library = folder.join(format!("{stem}-{taken}.so"));
    let arch = architecture(gpu);
    let mut command = Command::new(&nvcc);
    command.args(["-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-cudart", "static"]);
    command.arg(format!("-gencode=arch=compute_{arch},code=sm_{arch}"));
    command.args(libraries(&nvcc));
    command.arg("-o").arg(&library).arg(source);
    // What it leaves when it is ended goes with the folder.
    command.env("TMPDIR", folder);
    let output = command.output().map_err(|e| load(format!("{} cannot be run: {e}", nvcc.display())))?;
    if output.status.success() {
        return Ok(library);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = said.lines().filter(|l| !l.trim().is_empty()).take(12).collect();
    Err(load(format!("{} does not compile:\n{}", source.display(), words.join("\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_compile_is_told_in_the_compilers_words() {
        let folder = std::env::temp_dir().join(format!("solve-harness-test-compiler-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = folder.join("broken.cu");
        std::fs::write(&source, "void f() { not_declared(); }\n").unwrap();
        let failure = compile(&source, &folder, None).unwrap_err();
        let (reason, words) = match find() {
            Ok(_) => (Reason::Load, "broken.cu does not compile:\n".into()),
            Err(none) => (Reason::Environment, format!("broken.cu cannot be compiled: {none}")),
        };
        assert!(failure.reason == reason && failure.message.contains(&words), "{failure}");
        assert_eq!(failure.message.contains("not_declared"), reason == Reason::Load, "{failure}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Though another one is on the path.
    #[test]
    fn the_compiler_that_is_named_is_taken_or_none() {
        let folder = std::env::temp_dir().join(format!("solve-harness-test-named-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // By another process: what is open for writing here while another test's thread forks does not run.
        let write = r#"printf '#!/bin/sh\necho "tools, release %s, V%s.1"\n' "$1" "$1" >"$0" && chmod 755 "$0""#;
        for (name, release) in [("nvcc", "99.0"), ("nvcc-99.1", "99.1"), ("nvcc-old", "12.8")] {
            let written = Command::new("sh").arg("-c").arg(write).arg(folder.join(name)).arg(release).status();
            assert!(written.unwrap().success(), "{name}");
        }
        std::fs::write(folder.join("text"), "").unwrap();
        let find = |name: &Path| named(name, folder.as_os_str());
        assert_eq!(find(Path::new("nvcc-99.1")), Ok(folder.join("nvcc-99.1")));
        assert_eq!(find(&folder.join("nvcc")), Ok(folder.join("nvcc")));
        for (name, why) in [
            (Path::new("nvcc-98"), "which is not there"),
            (&folder.join("bin/nvcc"), "which is not there"),
            (Path::new("nvcc-old"), "of version 12.8; 12.9 or newer is needed"),
            (&folder.join("text"), "which is no nvcc"),
        ] {
            let said = find(name).unwrap_err();
            assert!(said.starts_with(&format!("NVCC is {name:?}, {why}")), "{said}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_candidate_is_compiled_for_the_gpu_that_is_there() {
        let for_gpu = |capability| architecture(Some(&Gpu { capability, ..Gpu::sample() }));
        assert_eq!([(7, 5), (8, 9), (9, 0), (10, 0)].map(for_gpu), ["75", "89", "90a", "100"]);
    }

    #[test]
    fn the_oldest_release_is_that_of_the_build() {
        let build = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../build.rs")).unwrap();
        assert!(build.contains(&format!("const OLDEST_NVCC: (u32, u32) = {OLDEST:?};")));
    }
}
