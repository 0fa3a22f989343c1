//! Calls from several threads at once, and again: the same bits every time.

use std::{fs, thread};

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

/// A thread that waits for a part of its work takes up other work meanwhile, on the same stack, again and again where there are many threads: only what never
/// waits may need much of it.
#[test]
fn tasks_that_wait_take_little_of_the_stack() {
    let mut random = Random(43);
    run(&random.tokens(700), &random.weights());
    let mut size = 0;
    let mut most = 0;
    for line in fs::read_to_string("/proc/self/smaps").expect("the memory of this process").lines() {
        let kb = |name: &str| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse::<usize>().ok();
        size = kb("Size:").unwrap_or(size);
        // Stacks of threads have 2 MB, and the pages that were ever used stay.
        if let Some(used) = kb("Rss:").filter(|_| size.abs_diff(2048) <= 8) {
            most = used.max(most);
        }
    }
    assert!((128..400).contains(&most), "{most} KB of a stack were used");
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
