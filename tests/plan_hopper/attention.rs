//! Groups, units and clusters of attention.

use solve::cuda::block::Shape;
use solve::cuda::hopper::plan::{ATTENTION, Chip, Dealing, Gemm, Kernel, Launch, dealing, forward, row_groups};
use solve::precision::SolvePrecision;

use super::{SMS, chip, plans};

/// Clusters of attention find the head of a group of rows by a multiplication (`RowGroups` in cuda/attention/attention_tile_sm90a.cuh), which is exact where
/// the number of the last group times a sequence's groups is below 2^31.
#[test]
fn attention_has_few_enough_groups_where_clusters_take_them() {
    // More rows than a GPU has memory for.
    let many = (1..=2048).map(|groups| ((1 << 24) / (64 * groups), 64 * groups));
    let batches = many.flat_map(|(batch, seq_len)| {
        let shape = |prepared| Shape {
            batch,
            seq_len,
            causal: false,
            prepared,
            precision: SolvePrecision::Fast,
            guarded: true,
            rescued: false,
        };
        [shape(false), shape(true)]
            .into_iter()
            .flat_map(|shape| SMS.map(|sms| (shape, forward(chip(sms), shape, true))))
    });
    let mut clusters = 0;
    for (shape, plan) in plans().map(|(_, shape, plan)| (shape, plan)).chain(batches) {
        for launch in plan {
            let Kernel::Attention { form, .. } = launch.kernel else { continue };
            if ATTENTION[form].blocks > 1 {
                let (groups, inverse) = row_groups(shape.seq_len);
                let (groups, inverse) = (groups as usize, u64::from(inverse));
                let heads = 12 * shape.batch;
                assert!(heads * groups * groups < 1 << 31, "{shape:?}");
                for head in [0, heads / 2, heads - 1] {
                    for group in [head * groups, (head + 1) * groups - 1] {
                        let found = (2 * group as u64 * inverse) >> 32;
                        assert_eq!(found as usize, head, "{shape:?}, group {group}");
                    }
                }
                clusters += 1;
            }
        }
    }
    assert!(clusters > 0, "no plan has clusters");
}

/// Scores would be taken for small ones where nobody has measured queries and keys. The products that read the caller's weights do not.
#[test]
fn queries_and_keys_are_measured_for_attention_that_asks() {
    let mut asking = 0;
    for (sms, shape, plan) in plans() {
        let asks = |launch: &Launch| matches!(launch.kernel, Kernel::Attention { form, .. } if ATTENTION[form].wants_lengths());
        if plan.iter().any(asks) {
            let measures = |launch: &Launch| matches!(launch.kernel, Kernel::Gemm { gemm: Gemm::Qkv, .. });
            assert!(plan.iter().any(measures), "{shape:?} on {sms}: {plan:?}");
            asking += 1;
        }
    }
    assert!(asking > 0, "no plan asks");
}

/// Where attention's work is dealt out, a unit has rows of two heads rather than too few of one, unless blocks get whole ones without that.
#[test]
fn dealt_units_are_full_or_go_round() {
    let form = *ATTENTION.iter().find(|form| form.dealt).expect("a form that deals work out");
    let dealt = |sms: usize, batch: usize, seq_len: usize| {
        let precision = SolvePrecision::Fast;
        let shape = Shape { batch, seq_len, causal: false, prepared: true, precision, guarded: true, rescued: false };
        form.takes(shape).then(|| dealing(sms, shape, &form))
    };
    for seq_len in 1..=5000 {
        for (sms, batch) in SMS.into_iter().flat_map(|sms| [1, 2, 7, 100].map(|batch| (sms, batch))) {
            let Some(Dealing { rows, key_tiles, share, longer }) = dealt(sms, batch, seq_len) else { continue };
            let full = rows as usize == seq_len.next_multiple_of(64);
            let whole = longer == 0 && share.is_multiple_of(key_tiles);
            assert!(full || whole, "{batch} of {seq_len} on {sms}");
        }
    }
    let rows = |batch, seq_len| dealt(132, batch, seq_len).map(|dealing| dealing.rows);
    assert_eq!([rows(1, 2113), rows(1, 4096), rows(2, 2048), rows(3, 1000)], [2176, 4224, 2112, 1024].map(Some));
    assert_eq!([rows(1, 2048), rows(100, 64)], [None; 2], "too few rows, and units of three heads");
}

/// Where the chip has no room for all heads and the cast, QKV and attention are two kernels.
#[test]
fn qkv_and_attention_are_one_kernel_where_its_clusters_fit() {
    let together = |heads: [usize; 3], seq_len: usize, batch: usize, prepared: bool| {
        let precision = SolvePrecision::Fast;
        let shape = Shape { batch, seq_len, causal: false, prepared, precision, guarded: true, rescued: false };
        let plan = forward(Chip { heads, ..chip(132) }, shape, true);
        plan.iter().any(|launch| matches!(launch.kernel, Kernel::QkvAttention { .. }))
    };
    let enough = [16, 15, 15];
    for rows in 500..1200 {
        assert_eq!(together(enough, rows, 1, false), (641..=1024).contains(&rows), "{rows} rows");
        assert!(!together([15, 14, 14], rows, 1, false) && !together(enough, rows, 1, true), "{rows} rows");
    }
    assert!(!together(enough, 512, 2, false));
}
