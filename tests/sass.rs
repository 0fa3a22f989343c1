//! The machine code is what the sources mean: tensor-core instructions of the right generation in every product and in attention, and no arrival that
//! passes loads.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use solve::cuda::arch::Arch;
use solve::cuda::driver::toolkit_version;
use solve::cuda::images::{IMAGES, Image};

fn main() -> std::process::ExitCode {
    let wanted = [
        ("hopper_multiplies_with_wgmma", Arch::Sm90a, &["HGMMA"][..]),
        ("ampere_multiplies_with_mma_and_copies_asynchronously", Arch::Sm80, &["HMMA.16816.F32", "LDGSTS"][..]),
        ("turing_multiplies_with_mma", Arch::Sm75, &["HMMA.1688.F32"][..]),
    ];
    let mut trials: Vec<_> = wanted
        .map(|(name, arch, instructions)| Trial::ignorable_test(name, move || has_instructions(arch, instructions)))
        .into();
    trials.push(Trial::ignorable_test("arrivals_wait_for_ldmatrix", arrivals_wait_for_ldmatrix));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Every file of the architecture with products in it has each of these instructions.
fn has_instructions(arch: Arch, instructions: &[&str]) -> Result<Completion, Failed> {
    let Some(cuobjdump) = find("cuobjdump") else {
        return Ok(Completion::ignored_with("skipped: no cuobjdump; harness/toolkit installs it"));
    };
    let images = IMAGES.iter().filter(|image| image.arch == arch && !image.ptx);
    let images: Vec<_> = images
        .filter(|image| ["gemm", "attention", "exact", "small"].iter().any(|stage| image.name.contains(stage)))
        .collect();
    if images.is_empty() {
        return Ok(Completion::ignored_with(format!("skipped: this build has no {}", arch.name())));
    }
    for image in images {
        let text = disassembled(&cuobjdump, image, "instructions")?;
        let wanted = match arch {
            // Too few rows for wgmma
            Arch::Sm90a if image.name.starts_with("exact_few") => vec!["HMMA.16816.F32", "LDGSTS"],
            Arch::Sm90a if image.name.starts_with("small") => vec!["HMMA.16816.F32", "UBLKCP"],
            Arch::Sm90a if image.name.starts_with("attention_short") => vec!["HMMA.16816.F32"],
            // The exact kernel's operands lie in memory as the products want them, so that plain bulk copies bring them.
            Arch::Sm90a if image.name.starts_with("exact") => [instructions, &["UBLKCP"]].concat(),
            Arch::Sm90a => [instructions, &["UTMALDG"]].concat(),
            _ => instructions.to_vec(),
        };
        for instruction in wanted {
            assert!(text.contains(instruction), "no {instruction} in {}", image.name);
        }
        // Another compiler's code may be slower, and the build has said so.
        let stays = !text.contains("STL");
        assert!(toolkit_version() != tuned_version() || stays, "{} stores to local memory", image.name);
    }
    Ok(Completion::Completed)
}

/// The compiler that the kernels are tuned with, as the driver numbers versions: the one that harness/toolkit pins.
fn tuned_version() -> i32 {
    let pinned = include_str!("../harness/toolkit").split("nvidia-cuda-nvcc==").nth(1).expect("a pinned nvcc");
    let mut numbers = pinned.split('.').map(|number| number.parse::<i32>().expect("major.minor"));
    1000 * numbers.next().expect("major") + 10 * numbers.next().expect("minor")
}

/// An mbarrier.arrive waits for no ldmatrix in front of it unless ptxas says so, and what the copy engine brings thereupon may overtake it
/// (`cuda/common/mbarrier_sm90a.cuh`).
fn arrivals_wait_for_ldmatrix() -> Result<Completion, Failed> {
    let Some(cuobjdump) = find("cuobjdump") else {
        return Ok(Completion::ignored_with("skipped: no cuobjdump; harness/toolkit installs it"));
    };
    let images: Vec<_> = IMAGES.iter().filter(|image| image.arch == Arch::Sm90a && !image.ptx).collect();
    if images.is_empty() {
        return Ok(Completion::ignored_with("skipped: this build has no sm90a"));
    }
    let (mut loads, mut passing) = (0, Vec::new());
    for image in images {
        let text = disassembled(&cuobjdump, image, "arrivals")?;
        for function in text.split("Function : ").skip(1) {
            let name = function.split_whitespace().next().unwrap_or_default();
            // Of each scoreboard, whether an ldmatrix sets it that nothing has waited for.
            let mut pending = [false; 6];
            for Instruction { text, sets, waits } in instructions(function) {
                (0..6).filter(|board| waits >> board & 1 == 1).for_each(|board| pending[board] = false);
                if text.contains("SYNCS.ARRIVE") && pending.contains(&true) {
                    passing.push(name.to_owned());
                } else if text.starts_with("LDSM") && sets < 6 {
                    loads += 1;
                    pending[sets] = true;
                } else if ["BRA", "EXIT", "RET"].iter().any(|end| text.starts_with(end)) {
                    pending = [false; 6];
                }
            }
        }
    }
    assert!(loads > 0, "no ldmatrix is recognised in the machine code");
    assert!(passing.is_empty(), "in {passing:?} arrivals pass an ldmatrix, of {loads}");
    Ok(Completion::Completed)
}

/// An instruction, the scoreboard that it sets when its result is there, and a bit for each that it waits for.
struct Instruction<'a> {
    text: &'a str,
    sets: usize,
    waits: u64,
}

/// Those of a function. What controls an instruction lies in bits 105 and up of its 128, the upper half of which is on a line of its own (Jia et al.,
/// "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, 2.1; ptxas 13.0 has it so for `sm_90a`).
fn instructions(function: &str) -> impl Iterator<Item = Instruction<'_>> {
    let lines = function.lines().zip(function.lines().skip(1));
    lines.filter_map(|(line, next)| {
        let (_, code) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
        let (text, _) = code.split_once(';')?;
        let upper = next.trim().strip_prefix("/* 0x")?.strip_suffix(" */")?;
        let control = u64::from_str_radix(upper, 16).ok()? >> (105 - 64);
        Some(Instruction { text: text.trim(), sets: (control >> 5 & 7) as usize, waits: control >> 11 & 63 })
    })
}

/// `test`: who asks, as tests run beside each other and each has files of its own.
fn disassembled(cuobjdump: &Path, image: &Image, test: &str) -> Result<String, Failed> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.{test}.cubin", image.name));
    fs::write(&file, image.bytes)?;
    // It looks for nvdisasm in PATH.
    let folders = cuobjdump.parent().map(Path::to_owned).into_iter();
    let path = env::join_paths(folders.chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())))?;
    let output = Command::new(cuobjdump).env("PATH", path).arg("-sass").arg(&file).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn find(tool: &str) -> Option<PathBuf> {
    let toolkit = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/toolkit/nvidia/cu13/bin");
    let path = env::var_os("PATH").unwrap_or_default();
    // First the one that knows what the build's compiler makes.
    let folders = [toolkit].into_iter().chain(env::split_paths(&path)).chain(["/usr/local/cuda/bin".into()]);
    folders.map(|folder| folder.join(tool)).find(|file| file.is_file())
}
