//! What a library is made for, read from the file before anything of it runs: the processor, and the GPUs that its
//! kernels fit. The loader's own words for a library of another processor are that there is no such file.

use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::reason::{Failure, Reason};

/// ELF machine of this program.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
/// The first bytes of a container of GPU code (from CUDA's fatbinary.h: magic, version, header size, size of what follows).
const FATBIN: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();

fn failed(path: &Path, why: &str) -> Failure {
    Failure::new(Reason::Load, format!("{} cannot be loaded: {why}", path.display()))
}

/// Fails for what may never end when it is read. Whatever else is wrong is for whoever reads it to say.
pub fn ends(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => Err(failed(path, "it is a pipe, a device or a socket")),
        _ => Ok(()),
    }
}

/// Whether the file is a program or a library, or a part of one.
pub fn is_elf(path: &Path) -> bool {
    let mut start = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"\x7fELF"
}

/// A library as it was before anything of any candidate ran. One could put another in the place of its rival.
#[derive(Clone)]
pub struct Library {
    pub path: PathBuf,
    /// SHA-256 of the file; nothing where it cannot be read, which is for whoever loads it to say.
    pub sha256: String,
}

impl Library {
    /// As it is now.
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_path_buf(), sha256: sha256(path) }
    }

    /// Fails if another file lies there by now.
    pub fn unchanged(&self) -> Result<(), Failure> {
        let (then, now) = (&self.sha256, sha256(&self.path));
        if *then == now {
            return Ok(());
        }
        let was =
            |hash: &str| if hash.is_empty() { "nothing that can be read".into() } else { format!("SHA-256 {hash}") };
        let why = format!("the file has changed since the start: it is {}, and was {}", was(&now), was(then));
        Err(failed(&self.path, &why))
    }
}

fn sha256(path: &Path) -> String {
    let bytes = ends(path).ok().and_then(|()| std::fs::read(path).ok());
    bytes.map_or_else(String::new, |bytes| Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect())
}

/// Fails if the file can be no library for this processor, or holds kernels but none for a GPU of this capability.
pub fn check(path: &Path, capability: Option<(i32, i32)>) -> Result<(), Failure> {
    let failed = |why: &str| failed(path, why);
    let bytes = std::fs::read(path).map_err(|e| failed(&e.to_string()))?;
    elf(&bytes).map_err(|why| failed(&source(path).unwrap_or(why)))?;
    // To call data ends its process, which would look as if its code had.
    if data_symbols(&bytes).any(|name| name == b"solve") {
        return Err(failed("solve is no function but data"));
    }
    let kernels = kernels(&bytes);
    if let Some(capability) = capability
        && !kernels.is_empty()
        && !kernels.iter().any(|k| k.runs_on(capability))
    {
        let (major, minor) = capability;
        let mut names: Vec<String> = kernels.iter().map(Kernels::name).collect();
        names.sort();
        names.dedup();
        return Err(failed(&format!("its kernels are for {}, this GPU is sm_{major}{minor}", names.join(", "))));
    }
    Ok(())
}

/// What is said of a source file that is not compiled here.
fn source(path: &Path) -> Option<String> {
    let compiler = match path.extension()?.to_str()? {
        "c" => "cc",
        "cc" | "cpp" | "cxx" => "c++",
        _ => return None,
    };
    let (source, library) = (path.display(), path.with_extension("so"));
    let make = format!("{compiler} -O3 -shared -fPIC {source} -o {}", library.display());
    Some(format!("only .cu files are compiled here, make a library of it: {make}"))
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn short(bytes: &[u8], at: usize) -> usize {
    word(bytes, at).map_or(0, u16::from_le_bytes).into()
}

fn int(bytes: &[u8], at: usize) -> usize {
    word(bytes, at).map_or(0, u32::from_le_bytes) as usize
}

fn long(bytes: &[u8], at: usize) -> usize {
    word(bytes, at).map_or(0, u64::from_le_bytes) as usize
}

/// The header, and whether the file is as long as its segments say (ELF-64: e_type, e_machine, e_phoff, e_phentsize, e_phnum).
fn elf(bytes: &[u8]) -> Result<(), String> {
    if !bytes.starts_with(b"\x7fELF") || bytes.len() < 64 {
        return Err("it is no library".into());
    }
    let (class, machine) = (bytes[4], short(bytes, 18));
    if class != 2 || machine != usize::from(MACHINE) {
        let of = match machine {
            3 => "32-bit x86".into(),
            40 => "32-bit Arm".into(),
            62 if class == 2 => "x86-64".into(),
            183 => "64-bit Arm".into(),
            243 => "RISC-V".into(),
            other => format!("another processor (ELF machine {other}, class {class})"),
        };
        return Err(format!("it is for {of}"));
    }
    if short(bytes, 16) == 1 {
        return Err(
            "it is an object file, not linked: cc -shared makes a library of it, if it was compiled with -fPIC".into(),
        );
    }
    let (table, size) = (long(bytes, 32), short(bytes, 54));
    let segment = |i: usize| table.saturating_add(i * size);
    let ends = (0..short(bytes, 56)).map(|i| long(bytes, segment(i) + 8).saturating_add(long(bytes, segment(i) + 32)));
    if ends.max().is_none_or(|end| end > bytes.len()) {
        return Err("the file is cut short".into());
    }
    Ok(())
}

/// The names of data that a library exports: none where it cannot be read.
pub fn data(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_default();
    data_symbols(&bytes).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// The names of data that it exports (ELF-64: e_shoff, e_shentsize, e_shnum; sh_type, sh_offset, sh_size, sh_link; st_name, st_info, st_shndx). Of a library
/// without a table of sections nothing is known.
fn data_symbols(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    const DYNAMIC_SYMBOLS: usize = 11;
    const SYMBOL: usize = 24;
    let (table, size, count) = (long(bytes, 40), short(bytes, 58), short(bytes, 60));
    let section = move |i: usize| table.saturating_add(i.saturating_mul(size));
    let offset = move |section: usize| long(bytes, section.saturating_add(24));
    let found = (0..count).map(section).find(|&at| int(bytes, at.saturating_add(4)) == DYNAMIC_SYMBOLS);
    let symbols = found.map(|at| {
        let names = offset(section(int(bytes, at.saturating_add(40))));
        let number = long(bytes, at.saturating_add(32)).min(bytes.len()) / SYMBOL;
        (0..number).map(move |i| (names, offset(at).saturating_add(i * SYMBOL)))
    });
    symbols.into_iter().flatten().filter_map(|(names, symbol)| {
        // An object, a common one, or one of a thread's own.
        let is_data = matches!(bytes.get(symbol.checked_add(4)?)? & 15, 1 | 5 | 6);
        let name = bytes.get(names.checked_add(int(bytes, symbol))?..)?.split(|&byte| byte == 0).next();
        name.filter(|_| is_data && short(bytes, symbol + 6) != 0)
    })
}

/// One piece of GPU code in a library.
#[derive(Debug, PartialEq)]
struct Kernels {
    /// Machine code, not PTX.
    machine: bool,
    arch: usize,
}

impl Kernels {
    fn runs_on(&self, (major, minor): (i32, i32)) -> bool {
        let (major, minor) = (major as usize, minor as usize);
        if self.machine {
            return self.arch / 10 == major && self.arch % 10 <= minor;
        }
        self.arch <= 10 * major + minor
    }

    fn name(&self) -> String {
        format!("{}_{}", if self.machine { "sm" } else { "compute" }, self.arch)
    }
}

/// All pieces of all containers. Each has a header: kind (1 PTX, 2 machine code), its size, the payload's, architecture.
fn kernels(bytes: &[u8]) -> Vec<Kernels> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = bytes[at..].windows(4).step_by(4).position(|w| w == FATBIN) {
        let start = at + 4 * next;
        let (header, size) = (short(bytes, start + 6), long(bytes, start + 8));
        at = start + 4;
        let end = start.saturating_add(header).saturating_add(size);
        if short(bytes, start + 4) != 1 || header != 16 || end > bytes.len() {
            continue;
        }
        let mut piece = start + header;
        while piece + 32 <= end {
            let (kind, step) = (short(bytes, piece), int(bytes, piece + 4).saturating_add(long(bytes, piece + 8)));
            if step == 0 || !matches!(kind, 1 | 2) {
                break;
            }
            found.push(Kernels { machine: kind == 2, arch: int(bytes, piece + 28) });
            piece = piece.saturating_add(step);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container with these pieces, four bytes of payload each.
    fn container(pieces: &[(u16, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes.extend(FATBIN);
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((pieces.len() as u64 * 68).to_le_bytes());
        for &(kind, arch) in pieces {
            let mut header = [0u8; 64];
            header[..2].copy_from_slice(&kind.to_le_bytes());
            header[4..8].copy_from_slice(&64u32.to_le_bytes());
            header[8..16].copy_from_slice(&4u64.to_le_bytes());
            header[28..32].copy_from_slice(&arch.to_le_bytes());
            bytes.extend(header);
            bytes.extend([7; 4]);
        }
        bytes
    }

    #[test]
    fn kernels_are_found_and_matched() {
        let fits = |pieces: &[(u16, u32)]| kernels(&container(pieces)).iter().any(|k| k.runs_on((9, 0)));
        assert_eq!(kernels(&container(&[(2, 80), (1, 75)])).len(), 2);
        assert!(fits(&[(2, 90)]) && fits(&[(2, 80), (1, 80)]) && fits(&[(1, 90)]));
        assert!(!fits(&[(2, 80)]) && !fits(&[(2, 100), (1, 100)]) && !fits(&[(2, 86), (2, 75)]));
        assert!(kernels(b"nothing of the kind").is_empty());
        assert!(kernels(&FATBIN).is_empty());
    }

    #[test]
    fn this_program_is_for_this_processor() {
        let exe = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(elf(&exe), Ok(()));
        // Far before what is loaded ends; behind it there may be any amount of debugging information.
        assert!(elf(&exe[..1 << 16]).unwrap_err().contains("cut short"));
        let mut other = exe.clone();
        other[18] = 183;
        assert!(elf(&other).unwrap_err().contains("64-bit Arm"));
        other[4] = 1;
        assert!(elf(&other).is_err() && elf(b"text").is_err() && elf(b"").is_err());
    }

    #[test]
    fn kernels_for_other_gpus_alone_are_refused() {
        let file = std::env::temp_dir().join(format!("solve-harness-test-kernels-{}", std::process::id()));
        let mut program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        program.resize(program.len().next_multiple_of(4), 0);
        program.extend(container(&[(2, 90), (1, 90)]));
        std::fs::write(&file, program).unwrap();
        let checked = [None, Some((9, 0)), Some((10, 0)), Some((8, 9))].map(|capability| check(&file, capability));
        std::fs::remove_file(&file).unwrap();
        let [none, own, later, earlier] = checked;
        assert!(none.is_ok() && own.is_ok() && later.is_ok());
        let refused = earlier.unwrap_err();
        assert!(refused.message.ends_with("its kernels are for compute_90, sm_90, this GPU is sm_89"), "{refused}");
    }
}
