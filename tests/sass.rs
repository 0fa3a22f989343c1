//! The machine code is what the sources mean: tensor-core instructions of the right generation in every product and in attention.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use solve::cuda::arch::Arch;
use solve::cuda::images::IMAGES;

fn main() -> std::process::ExitCode {
    let wanted = [
        ("hopper_multiplies_with_wgmma", Arch::Sm90a, &["HGMMA"][..]),
        ("ampere_multiplies_with_mma_and_copies_asynchronously", Arch::Sm80, &["HMMA.16816.F32", "LDGSTS"][..]),
        ("turing_multiplies_with_mma", Arch::Sm75, &["HMMA.1688.F32"][..]),
    ];
    let trials = wanted
        .map(|(name, arch, instructions)| Trial::ignorable_test(name, move || has_instructions(arch, instructions)))
        .into();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Every file of the architecture with products in it has each of these instructions.
fn has_instructions(arch: Arch, instructions: &[&str]) -> Result<Completion, Failed> {
    let Some(cuobjdump) = find("cuobjdump") else {
        return Ok(Completion::ignored_with("skipped: no cuobjdump; harness/toolkit installs it"));
    };
    let images = IMAGES.iter().filter(|image| image.arch == arch && !image.ptx);
    let images: Vec<_> = images
        .filter(|image| ["gemm", "attention", "exact"].iter().any(|stage| image.name.starts_with(stage)))
        .collect();
    if images.is_empty() {
        return Ok(Completion::ignored_with(format!("skipped: this build has no {}", arch.name())));
    }
    for image in images {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(image.name).with_extension("cubin");
        fs::write(&file, image.bytes)?;
        let mut command = Command::new(&cuobjdump);
        // It looks for nvdisasm in PATH.
        let folders = cuobjdump.parent().map(Path::to_owned).into_iter();
        let path = env::join_paths(folders.chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())))?;
        let output = command.env("PATH", path).arg("-sass").arg(&file).output()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let wanted = match arch {
            // Too few rows for wgmma
            Arch::Sm90a if image.name.starts_with("exact_few") => vec!["HMMA.16816.F32", "LDGSTS"],
            // The exact kernel's operands lie in memory as the products want them, so that plain bulk copies bring them.
            Arch::Sm90a if image.name.starts_with("exact") => [instructions, &["UBLKCP"]].concat(),
            Arch::Sm90a => [instructions, &["UTMALDG"]].concat(),
            _ => instructions.to_vec(),
        };
        for instruction in wanted {
            assert!(text.contains(instruction), "no {instruction} in {}", image.name);
        }
        assert!(!text.contains("STL"), "{} stores to local memory", image.name);
    }
    Ok(Completion::Completed)
}

fn find(tool: &str) -> Option<PathBuf> {
    let toolkit = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/toolkit/nvidia/cu13/bin");
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/local/cuda/bin".into(), toolkit]);
    folders.map(|folder| folder.join(tool)).find(|file| file.is_file())
}
