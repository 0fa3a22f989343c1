//! The source tree that a library was built from, where it is at hand: its root and its build id.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::reason::{Failure, Reason};

/// The root of the tree: a folder above this executable, or above here, that has the kernels in it.
pub fn root() -> Option<PathBuf> {
    let exe = std::env::current_exe().ok();
    let here = std::env::current_dir().ok();
    let is_root = |folder: &Path| folder.join("cuda/dims.h").exists() && folder.join("Cargo.lock").exists();
    let above = |start: PathBuf| start.ancestors().find(|f| is_root(f)).map(Path::to_path_buf);
    exe.and_then(above).or_else(|| here.and_then(above))
}

/// SHA-256 over the sources of the library, notes (`*.md`) left out: for each file in the order of their paths, the path, a zero byte, the bytes.
pub fn build_id(root: &Path) -> Result<String, Failure> {
    let mut files = ["Cargo.lock", "Cargo.toml", "build.rs"].map(String::from).to_vec();
    for folder in ["cuda", "src"] {
        collect(root, folder, &mut files)?;
    }
    // By component, as the build sorts them: `a/b` before `a.rs`.
    files.sort_by(|a, b| Path::new(a).cmp(Path::new(b)));
    let mut hash = Sha256::new();
    for file in files {
        hash.update(file.as_bytes());
        hash.update([0]);
        hash.update(std::fs::read(root.join(&file)).map_err(|e| unreadable(&file, &e))?);
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

fn unreadable(path: &str, error: &std::io::Error) -> Failure {
    Failure::new(Reason::Usage, format!("{path} cannot be read: {error}"))
}

fn collect(root: &Path, folder: &str, files: &mut Vec<String>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(root.join(folder)).map_err(|e| unreadable(folder, &e))? {
        let entry = entry.map_err(|e| unreadable(folder, &e))?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(root, &path, files)?;
        } else if !path.ends_with(".md") {
            files.push(path);
        }
    }
    Ok(())
}

/// The build id that a library should have: of the bundle that this executable is in, or of the tree.
pub fn expected_build_id() -> Option<String> {
    let beside = std::env::current_exe().ok()?.parent()?.join("BUILD_ID");
    if let Ok(id) = std::fs::read_to_string(beside) {
        return Some(id.trim().to_string());
    }
    build_id(&root()?).ok()
}
