//! Every compiled form is chosen somewhere, and on an H200 the one that was measured to be the fastest.

use solve::cuda::arch::Arch;
use solve::cuda::block::Shape;
use solve::cuda::hopper::kernels::symbol;
use solve::cuda::hopper::plan::{
    ATTENTION_PROJ, Chip, FEW_IN_FP32, FEW_ROWS, FewWeights, Gemm, Kernel, Launch, SHORT, attention_forms, direct,
    forward, product, qkv_attention, shared,
};
use solve::precision::SolvePrecision;

use super::{SMS, chip, short_sequences};

/// Every tile and form that is compiled is the choice for some call on some chip.
#[test]
fn every_form_is_chosen_somewhere() {
    let mut chosen = std::collections::HashSet::new();
    let mut choose = |sms, shape, aligned| {
        chosen.extend(forward(chip(sms), shape, aligned).into_iter().map(|launch| launch.kernel));
    };
    let rows = (1..4300).chain((4300..40_000).step_by(97)).chain([65_536, 131_072, 1 << 20]);
    for seq_len in rows {
        for sms in 78..=144 {
            // In precision exact these launches are of the fewest rows only.
            let (fast, exact) = (SolvePrecision::Fast, SolvePrecision::Exact);
            let precision = if seq_len <= 8 && sms % 4 < 2 { exact } else { fast };
            for (prepared, causal) in [(false, false), (true, false), (true, true)] {
                // Some of the few rows are sequences of one token.
                let (batch, seq_len) = if seq_len <= FEW_ROWS && causal { (seq_len, 1) } else { (1, seq_len) };
                let shape = Shape { batch, seq_len, causal, prepared, precision, guarded: true, rescued: false };
                choose(sms, shape, (seq_len + sms) % 2 == 0);
            }
        }
    }
    for shape in short_sequences() {
        choose(132, shape, true);
    }
    // A handle's attention and projection are two kernels at up to 64 rows only where one of both does not fit: in a share of a GPU.
    for sms in Arch::Sm90a.fewest_sms()..SMS[1] {
        let precision = SolvePrecision::Fast;
        let (batch, seq_len, causal, prepared) = (1, 64, false, true);
        choose(sms, Shape { batch, seq_len, causal, prepared, precision, guarded: true, rescued: false }, true);
    }
    let mut all = Vec::new();
    all.extend((0..qkv_attention::BLOCKS.len()).map(|form| Kernel::QkvAttention { form }));
    for gemm in Gemm::ALL {
        all.extend((0..product::tiles(gemm).len()).map(|tile| Kernel::Gemm { gemm, tile }));
        all.extend(direct::tile(gemm).map(|_| Kernel::Direct { gemm }));
    }
    all.extend((0..shared::SHARED.len()).map(|form| Kernel::Shared { form }));
    all.extend((0..ATTENTION_PROJ.len()).map(|form| Kernel::AttentionProj { form }));
    all.extend((0..product::tiles(Gemm::AttnProj).len()).map(|tile| Kernel::Apart { tile }));
    all.extend((0..product::tiles(Gemm::Fc).len()).map(|tile| Kernel::FcScaled { tile }));
    all.extend((0..SHORT.len()).map(|form| Kernel::AttentionShort { form }));
    for causal in [false, true] {
        all.extend(attention_forms(causal).map(|form| Kernel::Attention { form, causal }));
    }
    for weights in FewWeights::ALL {
        all.extend(weights.tiles().map(|tile| Kernel::Few { weights, tile }));
    }
    for aligned in [false, true] {
        all.extend((0..FEW_IN_FP32.len()).map(|form| Kernel::FewInFp32 { aligned, form }));
    }
    let unused: Vec<_> = all.into_iter().filter(|kernel| !chosen.contains(kernel)).collect();
    assert!(unused.is_empty(), "compiled in vain: {unused:?}");
}

/// The forms that were measured to be the fastest on an H200, and who casts from which chunk on: what another figure anywhere in the plan would change
/// without any result being wrong.
#[test]
fn an_h200_runs_what_was_measured_to_be_the_fastest() {
    let chip = Chip { sms: 132, clusters: [66, 30, 15], heads: [17, 15, 15] };
    let plan = |batch, seq_len, causal, prepared| {
        let precision = SolvePrecision::Fast;
        forward(chip, Shape { batch, seq_len, causal, prepared, precision, guarded: true, rescued: false }, true)
    };
    let names = |plan: &[Launch]| {
        let names: Vec<_> = plan[1..].iter().map(|launch| symbol(launch.kernel)).collect();
        names.join(" ").replace("gemm_", "").replace("_f16", "")
    };
    for ((batch, seq_len), casts, kernels) in [
        ((1, 64), &[][..], "qkv_direct_64x32 attention_proj_direct_64 fc_direct_64x32 proj_direct_64x64_k8"),
        ((1, 96), &[432, 1332][..], "qkv_shared_64x48 attention_proj_packed_128 fc_shared_64x64 proj_64x64_k4"),
        ((1, 128), &[432, 1152][..], "qkv_shared_64x48 attention_proj_packed_128 fc_shared_64x64 proj_64x64_k4"),
        ((1, 256), &[432, 1296][..], "qkv_shared_128x48 attention_1x2 attn_proj_64x96 fc_shared_128x64 proj_128x64_k4"),
        (
            (1, 257),
            &[0, 432, 792, 1152, 1440][..],
            "qkv_128x96 attention_1x2 attn_proj_64x96 fc_128x96 proj_32x64_k1_swapped",
        ),
        (
            (1, 400),
            &[0, 432, 720, 1224, 1512][..],
            "qkv_128x96 attention_1x2 attn_proj_64x96 fc_128x96 proj_48x128_k2_swapped",
        ),
        (
            (1, 512),
            &[0, 432, 864, 1440][..],
            "qkv_128x96 attention_1x2 attn_proj_64x96 fc_128x96 proj_56x128_k2_swapped",
        ),
        (
            (1, 576),
            &[0, 432, 1152, 1440][..],
            "qkv_160x128_swapped attention_1x2 attn_proj_64x128 fc_128x128 proj_64x128_k2_swapped",
        ),
        (
            (1, 640),
            &[0, 432, 504, 1224, 1512][..],
            "qkv_128x96 attention_1x2 attn_proj_64x128 fc_128x128 proj_64x128_k2_swapped",
        ),
        ((1, 700), &[0, 432, 1512][..], "qkv_attention_6 attn_proj_64x128 fc_144x128_swapped proj_72x128_k2_swapped"),
        ((1, 896), &[0, 432, 1512][..], "qkv_attention_7 attn_proj_64x128 fc_128x192 proj_96x128_k2_swapped"),
        ((1, 1024), &[0, 432][..], "qkv_attention_8 attn_proj_64x128 fc_128x192 proj_104x128_k2_swapped"),
        (
            (1, 1025),
            &[0, 432, 720, 1458][..],
            "qkv_128x192 attention_2x1 attn_proj_64x128 fc_144x192_swapped proj_104x128_k2_swapped",
        ),
        (
            (1, 1500),
            &[0, 432, 504, 1440][..],
            "qkv_224x128_swapped attention_3x1 attn_proj_128x96 fc_192x192 proj_152x64_k1_swapped",
        ),
        ((1, 2048), &[0, 432][..], "qkv_192x192 attention_3x1 attn_proj_128x96 fc_128x192 proj_104x128_k1_swapped"),
        (
            (1, 3000),
            &[0, 432, 504, 1440][..],
            "qkv_224x128_swapped attention_3x1_dealt attn_proj_128x192 fc_192x192 proj_160x128_k1_swapped",
        ),
        ((1, 4096), &[0, 432][..], "qkv_192x192 attention_3x1 attn_proj_128x192 fc_128x192 proj_208x128_k1_swapped"),
        (
            (1, 8192),
            &[0, 432, 468][..],
            "qkv_192x192 attention_3x1_dealt attn_proj_128x192 fc_128x192 proj_208x128_k1_swapped",
        ),
        (
            (2, 360),
            &[0, 432, 983, 1368, 1512][..],
            "qkv_160x128_swapped attention_3x1x2 attn_proj_64x128 fc_144x128_swapped proj_72x128_k2_swapped",
        ),
        (
            (2, 512),
            &[0, 432, 1026, 1584][..],
            "qkv_128x192 attention_3x1x2 attn_proj_64x128 fc_128x192 proj_104x128_k2_swapped",
        ),
        (
            (8, 112),
            &[0, 432, 787, 1368, 1512][..],
            "qkv_160x128_swapped attention_3x1x2 attn_proj_64x128 fc_128x192 proj_96x128_k2_swapped",
        ),
    ] {
        let plan = plan(batch, seq_len, false, false);
        let starts: Vec<_> =
            plan.iter().map(|launch| &launch.cast).filter(|cast| !cast.is_empty()).map(|cast| cast.start).collect();
        assert_eq!((&starts[..], &*names(&plan)), (casts, kernels), "solve of {batch} x {seq_len}");
    }
    for (rows, kernels, causal) in [
        (64, "qkv_64x64 attention_proj_packed_64 fc_64x64 proj_64x64_k4", "attention_proj_packed_64"),
        (128, "qkv_64x64 attention_1x2 attn_proj_apart_64x96 fc_scaled_64x96 proj_64x64_k4", "attention_1x2"),
        (256, "qkv_64x96 attention_1x2 attn_proj_apart_64x96 fc_scaled_64x96 proj_128x64_k4", "attention_1x2"),
        (
            400,
            "qkv_128x96 attention_1x2 attn_proj_apart_64x96 fc_scaled_128x96 proj_48x128_k2_swapped",
            "attention_1x2",
        ),
        (
            512,
            "qkv_128x96 attention_1x2 attn_proj_apart_64x96 fc_scaled_128x96 proj_56x128_k2_swapped",
            "attention_1x2",
        ),
        (
            640,
            "qkv_128x96 attention_1x2 attn_proj_apart_64x128 fc_scaled_128x128 proj_64x128_k2_swapped",
            "attention_1x2",
        ),
        (
            700,
            "qkv_128x144 attention_3x1x2 attn_proj_apart_64x128 fc_scaled_144x128_swapped proj_72x128_k2_swapped",
            "attention_1x2",
        ),
        (
            1024,
            "qkv_128x144 attention_3x1x2 attn_proj_apart_64x128 fc_scaled_128x192 proj_104x128_k2_swapped",
            "attention_1x2",
        ),
        (
            1025,
            "qkv_160x128_swapped attention_2x1 attn_proj_apart_64x128 fc_scaled_144x192_swapped proj_104x128_k2_swapped",
            "attention_1x2",
        ),
        (
            1500,
            "qkv_224x128_swapped attention_3x1 attn_proj_apart_128x96 fc_scaled_192x192 proj_152x64_k1_swapped",
            "attention_1x2",
        ),
        (
            2048,
            "qkv_128x144 attention_3x1 attn_proj_apart_128x96 fc_scaled_128x192 proj_104x128_k1_swapped",
            "attention_2x1",
        ),
        (
            3000,
            "qkv_224x128_swapped attention_3x1_dealt attn_proj_apart_128x192 fc_scaled_192x192 proj_160x128_k1_swapped",
            "attention_3x1",
        ),
        (
            4096,
            "qkv_192x192 attention_3x1 attn_proj_apart_128x192 fc_scaled_128x192 proj_208x128_k1_swapped",
            "attention_3x1",
        ),
    ] {
        assert_eq!(names(&plan(1, rows, false, true)), kernels, "a handle, {rows} rows");
        let of_causal = names(&plan(1, rows, true, true));
        assert_eq!(
            of_causal.split(' ').nth(1),
            Some(&*if rows > 64 { format!("{causal}_causal") } else { causal.into() })
        );
    }
    let early = [32, 64, 65, 512, 513, 640, 641].map(product::early);
    assert_eq!(early, [3, 3, u32::MAX >> 1, u32::MAX >> 1, 3, 3, 1]);
}
