//! cuda/ -> cubins and PTX -> images.rs; src/ -> solve.h; the build id; link arguments. Never asks a GPU.
//!
//! The suffix of a file in cuda/ is its architecture: `gemm_qkv_sm80.cu` becomes a cubin for sm_80 and, as that one is also the form that other GPUs
//! translate, PTX. SOLVE_CUDA_ARCHS="sm80 sm90a" narrows a build while working on some of them. nvcc's own dependency files say what to compile again.

#[path = "src/dims.rs"]
#[allow(dead_code, reason = "the header needs some of the constants only")]
mod dims;
#[path = "src/weights.rs"]
#[allow(dead_code, reason = "the header needs the table only")]
mod weights;

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

/// Oldest compiler whose kernels are as fast, as (major, minor): that of 12.8 waits for each wgmma in attention, in FC with factors and in the direct products.
const OLDEST_NVCC: (u32, u32) = (12, 9);
/// The compiler that the kernels were tuned with and that harness/toolkit installs: its slow code stops the build. Of another one's the build warns: 13.4 and
/// 13.5 spill in one exact kernel.
const TUNED_NVCC: (u32, u32) = (13, 0);
/// File suffix, and whether the architecture also ships as PTX for GPUs without a cubin of their own.
const ARCHS: [(&str, bool); 3] = [("sm75", true), ("sm80", true), ("sm90a", false)];
const NVCC_FLAGS: [&str; 8] =
    ["-std=c++17", "-O3", "-Icuda", "-MD", "-Xptxas", "--verbose", "-Xptxas", "--warn-on-spills"];

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    for name in [
        "NVCC",
        "CUDA_HOME",
        "CUDA_PATH",
        "PATH",
        "NVCC_CCBIN",
        "NVCC_APPEND_FLAGS",
        "NVCC_PREPEND_FLAGS",
        "SOLVE_NO_CUDA",
        "SOLVE_CUDA_ARCHS",
    ] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let mut watched = files_below(&root.join("src"));
    watched.extend(files_below(&root.join("cuda")));
    watched.extend(["Cargo.lock", "Cargo.toml", "build.rs"].map(|name| root.join(name)));
    watched.sort();
    watched.retain(|path| path.extension().is_none_or(|ending| ending != "md"));
    println!("cargo::rustc-env=SOLVE_BUILD_ID={}", build_id(&root, &watched));
    for path in watched.iter().chain([&root.join("include/cbindgen.toml")]) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    for folder in ["src", "cuda"] {
        println!("cargo::rerun-if-changed={folder}");
    }

    write_header(&root, &out);
    let (version, images) = if env::var_os("SOLVE_NO_CUDA").is_some_and(|value| value == "1") {
        ((0, 0), Vec::new())
    } else {
        let nvcc = Nvcc::find(&root);
        println!("cargo::rerun-if-changed={}", nvcc.path.display());
        (nvcc.version, nvcc.compile_all(&root, &shared_folder(&out)))
    };
    println!("cargo::rustc-env=SOLVE_CUDA_VERSION={}", version.0 * 1000 + version.1 * 10);
    write_if_changed(&out.join("images.rs"), &images_table(&images));

    for argument in ["-soname,libsolve.so", "-z,nodelete", "-z,defs"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}

/// One source compiled to one form.
struct Image {
    source: PathBuf,
    arch: &'static str,
    ptx: bool,
    output: PathBuf,
}

impl Image {
    fn stem(&self) -> String {
        name_of(&self.source).trim_end_matches(".cu").to_owned()
    }

    fn target(&self) -> Vec<String> {
        let number = &self.arch[2..];
        let code = if self.ptx { "compute" } else { "sm" };
        let mut arguments = vec!["-gencode".into(), format!("arch=compute_{number},code={code}_{number}")];
        if self.ptx {
            arguments.push("-ptx".into());
        } else {
            arguments.push("-cubin".into());
        }
        arguments
    }
}

struct Nvcc {
    path: PathBuf,
    version: (u32, u32),
    /// All that it says of its version: one with the same two numbers may be another build.
    said: String,
}

impl Nvcc {
    fn find(root: &Path) -> Self {
        if let Some(name) = env::var_os("NVCC").filter(|name| !name.is_empty()) {
            return Self::named(Path::new(&name));
        }
        let from = |name: &str, below: &str| env::var_os(name).map(|value| PathBuf::from(value).join(below));
        let mut candidates = Vec::new();
        candidates.extend(from("CUDA_HOME", "bin/nvcc"));
        candidates.extend(from("CUDA_PATH", "bin/nvcc"));
        candidates.extend(on_path("nvcc"));
        candidates.push("/usr/local/cuda/bin/nvcc".into());
        candidates.push(root.join("target/toolkit/nvidia/cu13/bin/nvcc"));

        let mut too_old = String::new();
        for path in candidates.into_iter().filter(|path| path.is_file()) {
            let said = version_of(&path);
            match release_in(&said) {
                Some(version) if version >= OLDEST_NVCC => return Self { path, version, said },
                other => {
                    let version = other
                        .map_or("which names no release".into(), |version| format!("of version {}", dotted(version)));
                    let _ = write!(too_old, " (found {}, {version})", path.display());
                }
            }
        }
        fail(&format!(
            "libsolve: no nvcc {} or newer in CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda or target/toolkit{too_old}\n\
             to install NVIDIA's compiler into target/toolkit: harness/toolkit\n\
             to build without GPU code on purpose: SOLVE_NO_CUDA=1 cargo build",
            dotted(OLDEST_NVCC)
        ))
    }

    /// The one that NVCC names, as a path or as a command. No other one takes its place: whoever names a compiler wants to know that it was this one.
    fn named(name: &Path) -> Self {
        let is_command = name.components().count() == 1;
        let found = if is_command { on_path(name).find(|path| path.is_file()) } else { Some(name.to_owned()) };
        let Some(path) = found else { fail(&format!("libsolve: NVCC is {name:?}, which is no command on PATH")) };
        if !path.is_file() {
            fail(&format!("libsolve: NVCC is {name:?}, which is no file"));
        }
        let said = version_of(&path);
        match release_in(&said) {
            Some(version) if version >= OLDEST_NVCC => Self { path, version, said },
            Some(version) => {
                let oldest = dotted(OLDEST_NVCC);
                fail(&format!(
                    "libsolve: NVCC is {name:?}, of version {}; {oldest} or newer is needed",
                    dotted(version)
                ))
            }
            None => fail(&format!("libsolve: NVCC is {name:?}, which is no nvcc: its --version names no release")),
        }
    }

    /// Compiles what is not up to date, several at a time, and stops the build on the first error.
    fn compile_all(&self, root: &Path, folder: &Path) -> Vec<Image> {
        fs::create_dir_all(folder).unwrap_or_else(|error| fail(&format!("{}: {error}", folder.display())));
        let only = env::var("SOLVE_CUDA_ARCHS").unwrap_or_default();
        if let Some(unknown) = only.split_whitespace().find(|&wanted| ARCHS.iter().all(|&(arch, _)| arch != wanted)) {
            fail(&format!("SOLVE_CUDA_ARCHS has {unknown:?}, expected some of {:?}", ARCHS.map(|(arch, _)| arch)));
        }
        let mut images = Vec::new();
        for source in files_below(&root.join("cuda")) {
            let name = name_of(&source);
            let Some(stem) = name.strip_suffix(".cu") else { continue };
            let Some(&(arch, ptx)) = ARCHS.iter().find(|(arch, _)| stem.ends_with(&format!("_{arch}"))) else {
                fail(&format!("{}: the name must end in an architecture, one of {ARCHS:?}", source.display()))
            };
            if !only.is_empty() && !only.split_whitespace().any(|wanted| wanted == arch) {
                continue;
            }
            let mut push = |ptx: bool, ending: &str| {
                let output = folder.join(format!("{stem}.{ending}"));
                images.push(Image { source: source.clone(), arch, ptx, output });
            };
            push(false, "cubin");
            if ptx {
                push(true, "ptx");
            }
        }

        let next = AtomicUsize::new(0);
        let errors = Mutex::new(Vec::new());
        let jobs = variable("NUM_JOBS").parse().unwrap_or(1);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(error) = self.compile(root, image) {
                            errors.lock().unwrap().push(error);
                        }
                    }
                });
            }
        });
        if let Some(error) = errors.into_inner().unwrap().first() {
            fail(error);
        }
        images
    }

    fn compile(&self, root: &Path, image: &Image) -> Result<(), String> {
        let depfile = beside(&image.output, "d");
        let stamp = beside(&image.output, "command");
        let mut command = Command::new(&self.path);
        command.current_dir(root).args(NVCC_FLAGS).args(image.target());
        command.arg("-MF").arg(&depfile).arg(&image.source);
        // nvcc reads it itself: line numbers for a profiler are not in a usual build, whose library they would make two and a half times as large.
        for name in ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"] {
            command.env(name, variable(name));
        }
        let line = format!("{command:?} # {:?}", self.said);
        if is_current(image, &depfile) && fs::read_to_string(&stamp).is_ok_and(|old| old == line) {
            return Ok(());
        }

        let begun = SystemTime::now();
        // Another cargo may be building the other profile: the file appears whole or not at all.
        let unfinished = beside(&image.output, &std::process::id().to_string());
        let result = command.arg("-o").arg(&unfinished).output().map_err(|error| format!("{line}\n{error}"))?;
        let said = String::from_utf8_lossy(&result.stderr);
        let slow: Vec<&str> = said.lines().filter(|line| is_slow_code(line)).collect();
        let tuned = self.version == TUNED_NVCC;
        if !result.status.success() || (tuned && !slow.is_empty()) {
            let _ = fs::remove_file(&stamp);
            let _ = fs::remove_file(&unfinished);
            let text = if slow.is_empty() { said.into_owned() } else { slow.join("\n") };
            return Err(format!("{line}\n{}{text}", String::from_utf8_lossy(&result.stdout)));
        }
        for remark in slow {
            let (source, remark) = (name_of(&image.source), remark.trim());
            println!(
                "cargo::warning=nvcc {} makes slow code of {source}, {} does not: {remark}",
                dotted(self.version),
                dotted(TUNED_NVCC)
            );
        }
        // As old as what nvcc has read at most: a source that changed meanwhile is newer.
        let dated = fs::File::options().append(true).open(&unfinished).and_then(|file| file.set_modified(begun));
        dated
            .and_then(|()| fs::rename(&unfinished, &image.output))
            .and_then(|()| fs::write(&stamp, line))
            .map_err(|error| format!("{}: {error}", stamp.display()))
    }
}

/// Spilled registers, and the C75xx remarks by which ptxas says that it serialised wgmma. (C7519 only tells that a wait was moved.)
fn is_slow_code(line: &str) -> bool {
    (line.contains("(C75") && !line.contains("(C7519)"))
        || line.contains("Registers are spilled")
        || (line.contains("bytes spill stores") && !line.contains(" 0 bytes spill stores, 0 bytes spill loads"))
}

/// `cuda` in the target folder: what nvcc makes is the same for every profile, and it takes a while.
fn shared_folder(out: &Path) -> PathBuf {
    out.ancestors().nth(4).unwrap_or(out).join("cuda")
}

/// Newer than everything that nvcc read for it the last time.
fn is_current(image: &Image, depfile: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    let (Some(built), Ok(rule)) = (modified(&image.output), fs::read_to_string(depfile)) else { return false };
    let Some((_, sources)) = rule.split_once(" : ").or_else(|| rule.split_once(": ")) else { return false };
    paths_in(sources)
        .all(|path| modified(&Path::new(&variable("CARGO_MANIFEST_DIR")).join(path)).is_some_and(|time| time < built))
}

/// The words of a rule of make, whose lines end in a backslash, and in which one stands before a space that is part of a path.
fn paths_in(sources: &str) -> impl Iterator<Item = String> {
    let marked = sources.replace("\\\n", " ").replace("\\ ", "\0");
    let paths: Vec<_> = marked.split_whitespace().map(|word| word.replace('\0', " ")).collect();
    paths.into_iter()
}

/// Where a command may be.
fn on_path(command: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).collect();
    folders.into_iter().map(move |folder| folder.join(&command))
}

fn dotted((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

/// What it says of itself; "" if it does not run.
fn version_of(nvcc: &Path) -> String {
    let said = Command::new(nvcc).arg("--version").output();
    said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default()
}

fn release_in(text: &str) -> Option<(u32, u32)> {
    let release = text.split("release ").nth(1)?.split(',').next()?;
    let (major, minor) = release.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn images_table(images: &[Image]) -> String {
    let mut text = String::from("/// Every compiled file of cuda/.\npub static IMAGES: &[Image] = &[\n");
    for image in images {
        let Image { arch, ptx, output, .. } = image;
        let bytes = match ptx {
            true => format!("concat!(include_str!({output:?}), \"\\0\").as_bytes()"),
            false => format!("&Aligned(*include_bytes!({output:?})).0"),
        };
        let (stem, arch) = (image.stem(), arch.replacen("sm", "Sm", 1));
        let _ = writeln!(text, "    Image {{ name: {stem:?}, arch: Arch::{arch}, ptx: {ptx}, bytes: {bytes} }},");
    }
    text + "];\n"
}

/// SHA-256 over (path, zero byte, content) of every file of the tree that makes the library.
fn build_id(root: &Path, paths: &[PathBuf]) -> String {
    let named: BTreeSet<_> = paths.iter().filter_map(|path| path.strip_prefix(root).ok()).collect();
    let mut hash = Sha256::new();
    for path in named {
        hash.update(path.as_os_str().as_encoded_bytes());
        hash.update([0]);
        hash.update(fs::read(root.join(path)).unwrap_or_default());
    }
    hash.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The header, written beside the build; tests/header.rs compares it with the committed one.
fn write_header(root: &Path, out: &Path) {
    let config = cbindgen::Config::from_file(root.join("include/cbindgen.toml")).unwrap_or_else(|error| fail(&error));
    let mut constants = String::new();
    for (name, param, shape) in weights::PARAMS {
        let upper = name.to_uppercase();
        let shape = shape.map_or(format!("({})", param.len), |(rows, columns)| format!("({rows}, {columns})"));
        let _ = writeln!(constants, "#define SOLVE_{upper}_OFFSET {} /* {shape} */", param.offset);
        let _ = writeln!(constants, "#define SOLVE_{upper}_LEN {}", param.len);
    }
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in ["error.rs", "precision.rs", "ffi.rs"] {
        builder = builder.with_src(root.join("src").join(source));
    }
    let lengths = format!("#define SOLVE_D {}\n#define SOLVE_WEIGHTS_LEN {}\n", dims::D, weights::WEIGHTS_LEN);
    builder = builder.with_after_include(format!(
        "\n/* The weight buffer: twelve parameters end to end, in floats, matrices stored (in, out). */\n{lengths}{constants}\n\
         /* Initialises one with every field at its default: solve_options options = SOLVE_OPTIONS_DEFAULT; */\n\
         #define SOLVE_OPTIONS_DEFAULT {{sizeof(solve_options), -1, SOLVE_PRECISION_FAST, 0, 0}}"
    ));
    let bindings = builder.generate().unwrap_or_else(|error| fail(&format!("cbindgen: {error}")));
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8_lossy(&header).replace("# Safety\n", "The caller's part:\n");
    write_if_changed(&out.join("solve.h"), &header);
    println!("cargo::rustc-env=SOLVE_HEADER={}", out.join("solve.h").display());
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.into_iter().flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn write_if_changed(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::write(path, text).unwrap_or_else(|error| fail(&format!("{}: {error}", path.display())));
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    path.with_file_name(format!("{}.{ending}", name_of(path)))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn fail(text: &str) -> ! {
    for line in text.lines() {
        println!("cargo::error={line}");
    }
    // Cargo stops the build after an error line; a failing exit status would only add everything else that was printed.
    exit(0)
}
