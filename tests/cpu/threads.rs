//! Calls from several threads at once, and again: the same bits every time.

use std::thread;

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
