//! Calls from several threads at once, and again: the same bits every time.

use std::thread;

use solve::cpu;

use crate::inputs::{Random, run};

#[test]
fn calls_at_once_give_the_bits_of_calls_in_turn() {
    let weights = Random(40).weights();
    let lengths = [1, 16, 40, 129, 257, 3];
    let inputs: Vec<Vec<f32>> = lengths.iter().map(|&n| Random(50 + n as u64).tokens(n)).collect();
    let want: Vec<Vec<f32>> = inputs.iter().map(|x| run(x, &weights)).collect();
    thread::scope(|scope| {
        for (x, want) in inputs.iter().zip(&want) {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert!(run(x, &weights) == *want, "another result for {} tokens", x.len() / 768);
                }
            });
        }
    });
}

#[test]
fn the_result_may_replace_x() {
    let mut random = Random(41);
    let weights = random.weights();
    let mut x = random.tokens(20);
    let (once, twice) = (run(&x, &weights), run(&run(&x, &weights), &weights));
    for want in [once, twice] {
        let result = run(&x, &weights);
        x.copy_from_slice(&result);
        assert_eq!(x, want);
    }
}

/// Nor does it matter how the work was shared out, which depends on how many rows there are, and on the threads.
#[test]
fn a_row_alone_has_the_bits_of_the_row_among_others() {
    let (k, n, rows) = (3072, 768, 150);
    let mut random = Random(42);
    let (w, bias) = (random.uniforms(k * n, -0.03, 0.03), random.uniforms(n, -0.1, 0.1));
    let a = random.uniforms(rows * k, -1.0, 1.0);
    let linear = |a: &[f32]| {
        let mut out = vec![f32::NAN; a.len() / k * n];
        cpu::linear(a, &w, &bias, &mut out);
        out
    };
    let all = linear(&a);
    for count in [1, 2, 7, 18, 19, 31, 40] {
        assert!(linear(&a[k * (rows - count)..]) == all[n * (rows - count)..], "{count} rows");
    }
}
