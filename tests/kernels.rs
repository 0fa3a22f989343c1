//! Every kernel that a plan may name is in the files of its architecture: otherwise a GPU of that kind would find out.

use std::collections::HashSet;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use solve::cuda::arch::Arch;
use solve::cuda::exact::{chain, long};
use solve::cuda::hopper;
use solve::cuda::images::IMAGES;
use solve::cuda::portable;

fn main() -> ExitCode {
    let trials = Arch::ALL.map(|arch| Trial::ignorable_test(arch.name(), move || check(arch)));
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

fn portable_names() -> Vec<String> {
    use portable::plan::{Gemm, Kernel, TILES};
    let mut all = vec![Kernel::CastLayernorm, Kernel::Layernorm];
    all.extend([false, true].map(|causal| Kernel::Attention { causal }));
    for gemm in Gemm::ALL {
        all.extend((0..TILES.len()).map(|tile| Kernel::Gemm { gemm, tile }));
    }
    all.into_iter().map(portable::kernels::symbol).chain(["exact".into()]).collect()
}

fn hopper_names() -> Vec<String> {
    use hopper::plan::{
        ATTENTION_PROJ, FEW_IN_FP32, FewWeights, Gemm, Kernel, SHORT, attention_forms, direct, product, qkv_attention,
        shared,
    };
    let mut all = vec![
        Kernel::CastLayernorm,
        Kernel::LayernormVectors,
        Kernel::Layernorm,
        Kernel::FewPrepare,
        Kernel::FewMerge,
        Kernel::TransposeQkv,
        Kernel::FoldLayernorm2,
    ];
    all.extend((0..product::tiles(Gemm::AttnProj).len()).map(|tile| Kernel::Apart { tile }));
    all.extend((0..product::tiles(Gemm::Fc).len()).map(|tile| Kernel::FcScaled { tile }));
    all.extend((0..shared::SHARED.len()).map(|form| Kernel::Shared { form }));
    all.extend((0..SHORT.len()).map(|form| Kernel::AttentionShort { form }));
    all.extend((0..qkv_attention::BLOCKS.len()).map(|form| Kernel::QkvAttention { form }));
    for causal in [false, true] {
        all.extend(attention_forms(causal).map(|form| Kernel::Attention { form, causal }));
    }
    for gemm in Gemm::ALL {
        all.extend((0..product::tiles(gemm).len()).map(|tile| Kernel::Gemm { gemm, tile }));
        all.extend(direct::tile(gemm).map(|_| Kernel::Direct { gemm }));
    }
    all.extend((0..ATTENTION_PROJ.len()).map(|form| Kernel::AttentionProj { form }));
    for weights in FewWeights::ALL {
        all.extend(weights.tiles().map(|tile| Kernel::Few { weights, tile }));
    }
    for aligned in [false, true] {
        all.extend((0..FEW_IN_FP32.len()).map(|form| Kernel::FewInFp32 { aligned, form }));
    }
    all.into_iter()
        .map(hopper::kernels::symbol)
        .chain(["exact", "exact_few", "wake"].map(Into::into))
        .chain(chain::Kernel::all().map(chain::Kernel::symbol))
        .chain(long::Kernel::all().map(long::Kernel::symbol))
        .collect()
}

/// In a cubin as in PTX a kernel's name stands as it is, between bytes that belong to no name.
fn check(arch: Arch) -> Result<Completion, Failed> {
    for ptx in [false, true] {
        let images: Vec<_> = IMAGES.iter().filter(|image| image.arch == arch && image.ptx == ptx).collect();
        if images.is_empty() {
            match (ptx, arch) {
                (true, Arch::Sm90a) => continue,
                _ => return Ok(Completion::ignored_with(format!("skipped: this build has no {}", arch.name()))),
            }
        }
        let names = if arch == Arch::Sm90a { hopper_names() } else { portable_names() };
        let different: HashSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "two have one name: {names:?}");
        // As the driver reads them (src/cuda/images.rs)
        for image in &images {
            let end = image.bytes.iter().position(|&byte| byte == 0);
            let whole = if ptx { end == Some(image.bytes.len() - 1) } else { image.bytes.starts_with(b"\x7fELF") };
            assert!(whole && (ptx || image.bytes.as_ptr().addr().is_multiple_of(16)), "{}", image.name);
        }
        for name in names {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let end = name.len() + 1;
            let found = images.iter().any(|image| {
                let mut places = image.bytes.windows(end + 1);
                places.any(|bytes| &bytes[1..end] == name.as_bytes() && !is_name(bytes[0]) && !is_name(bytes[end]))
            });
            assert!(found, "{name} is in no file of {} (PTX: {ptx})", arch.name());
        }
    }
    Ok(Completion::Completed)
}
