//! The resident kernel of few rows: which form, from which weights.

use solve::cuda::block::Shape;
use solve::cuda::hopper::plan::{
    FEW, FEW_IN_FP32, FEW_ROWS, FewWeights, Kernel, Launch, MOST_SINGLES, forward, in_fp32,
};
use solve::precision::SolvePrecision;

use super::{SMS, chip, plans};

#[test]
fn few_rows_are_one_resident_launch() {
    for (sms, shape, plan) in plans().filter(|(_, shape, _)| shape.rows() <= FEW_ROWS) {
        let [launch] = &plan[..] else { panic!("{shape:?}: {plan:?}") };
        let form = match launch.kernel {
            Kernel::Few { weights, tile } => {
                assert!(!in_fp32(&shape), "{shape:?} in {launch:?}");
                assert_eq!(weights == FewWeights::Prepared, shape.prepared, "{shape:?} in {launch:?}");
                assert!(weights.tiles().contains(&tile), "no such kernel: {launch:?}");
                FEW[tile]
            }
            Kernel::FewInFp32 { form, .. } => {
                assert!(in_fp32(&shape), "{shape:?} in {launch:?}");
                FEW_IN_FP32[form]
            }
            _ => panic!("{launch:?}"),
        };
        assert!(form.rows >= shape.rows(), "{shape:?} in {launch:?}");
        let fewest = FEW.iter().chain(&FEW_IN_FP32).map(|form| form.rows).filter(|&rows| rows >= shape.rows()).min();
        assert!(form.single || Some(form.rows) <= fewest.max(Some(8)), "{shape:?} in {launch:?}");
        assert!(!form.single || shape.seq_len == 1, "{shape:?} in {launch:?}");
        let may_be_single = shape.seq_len == 1 && (!in_fp32(&shape) || shape.rows() == 1);
        assert_eq!(form.single, may_be_single && (shape.prepared || in_fp32(&shape)), "{shape:?} in {launch:?}");
        assert!(launch.grid[0] as usize <= 2 * chip(sms).clusters[0], "all blocks at once: {launch:?} on {sms}");
        assert!(launch.grid[0].is_multiple_of(2), "whole clusters: {launch:?} on {sms}");
        // The copy engine takes no matrix that is not aligned.
        let of = |prepared, aligned| match forward(chip(sms), Shape { prepared, ..shape }, aligned)[..] {
            [Launch { kernel: Kernel::Few { weights, .. }, .. }] => weights,
            [Launch { kernel: Kernel::FewInFp32 { aligned: true, .. }, .. }] => FewWeights::Aligned,
            [Launch { kernel: Kernel::FewInFp32 { aligned: false, .. }, .. }] => FewWeights::Unaligned,
            _ => panic!("{shape:?} on {sms}"),
        };
        let weights = [(false, true), (false, false), (true, true), (true, false)].map(|(p, aligned)| of(p, aligned));
        let (prepared, [aligned, unaligned]) = (FewWeights::Prepared, [FewWeights::Aligned, FewWeights::Unaligned]);
        assert_eq!(weights, [aligned, unaligned, prepared, prepared], "{shape:?} on {sms}");
    }
}

/// Prepared single tokens need no attention: the resident kernel has more of them, and beyond that a product reads V.
#[test]
fn prepared_single_tokens_have_no_attention() {
    let shape = |batch, seq_len, precision| {
        let (causal, prepared, guarded, rescued) = (batch % 2 == 0, true, precision == SolvePrecision::Auto, false);
        Shape { batch, seq_len, causal, prepared, precision, guarded, rescued }
    };
    for (batch, precision, sms) in (1..=300).chain([1000, 5000]).flat_map(|batch| {
        [SolvePrecision::Fast, SolvePrecision::Auto].into_iter().flat_map(move |p| SMS.map(|sms| (batch, p, sms)))
    }) {
        let plan = forward(chip(sms), shape(batch, 1, precision), true);
        let attends = |kernel| {
            matches!(kernel, Kernel::Attention { .. } | Kernel::AttentionProj { .. } | Kernel::AttentionShort { .. })
        };
        assert!(!plan.iter().any(|launch| attends(launch.kernel)), "{batch} on {sms}: {plan:?}");
        match plan[..] {
            [Launch { kernel: Kernel::Few { tile, .. }, .. }] => {
                assert!(batch <= MOST_SINGLES && FEW[tile].single && FEW[tile].rows >= batch, "{batch} on {sms}");
            }
            _ => assert!(batch > MOST_SINGLES && plan.len() == 5, "{batch} on {sms}: {plan:?}"),
        }
    }
    for sms in SMS {
        let two = forward(chip(sms), shape(20, 2, SolvePrecision::Fast), true);
        assert!(two.len() > 1, "40 rows of two each: {two:?}");
    }
}

/// In exact the fewest rows, of handles too, and where the weights come with the call one row in each precision; but nobody who takes the place of fast
/// kernels.
#[test]
fn the_fewest_rows_are_computed_in_fp32() {
    let most = |precision, prepared, rescued| {
        let shape = |batch, seq_len| {
            let (causal, guarded) = (seq_len % 2 == 0, false);
            in_fp32(&Shape { batch, seq_len, causal, prepared, precision, guarded, rescued })
        };
        let most = (1..=FEW_ROWS).take_while(|&rows| shape(1, rows)).count();
        assert!((1..=FEW_ROWS).all(|rows| shape(rows, 1) == (rows <= most)), "{precision:?} {prepared} {rescued}");
        most
    };
    use SolvePrecision::{Auto, Exact, Fast};
    assert_eq!([Fast, Auto, Exact].map(|precision| most(precision, false, false)), [1, 1, 8]);
    assert_eq!([Fast, Auto, Exact].map(|precision| most(precision, true, false)), [0, 0, 8]);
    assert_eq!([most(Exact, false, true), most(Exact, true, true)], [0, 0]);
}
