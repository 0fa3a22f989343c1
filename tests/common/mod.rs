//! What every test needs: numbers to compute on, and a way to compare results.
#![allow(dead_code, reason = "each test program uses its part")]

use libtest_mimic::{Arguments, Trial};
use solve::dims::D;
use solve::weights::{PARAMS, WEIGHTS_LEN, Weights};

/// Runs tests whose program has something to set before the first of them.
pub fn run(tests: &[(&'static str, fn())]) -> std::process::ExitCode {
    let trial = |&(name, test): &(&'static str, fn())| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), tests.iter().map(trial).collect()).exit_code()
}

/// Reproducible numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Uniform in [-1, 1).
    pub fn uniform(&mut self) -> f32 {
        // xorshift64*, whose upper bits are good.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40;
        bits as f32 / (1u32 << 23) as f32 - 1.0
    }

    pub fn uniforms(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.uniform()).collect()
    }
}

/// Weights of the challenge's sizes, except that biases are not zero, so that a lost bias shows.
pub fn weights(seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let mut all = Vec::with_capacity(WEIGHTS_LEN);
    for (name, param, _) in PARAMS {
        let (middle, spread) = match name {
            "gamma1" | "gamma2" => (1.0, 0.2),
            "beta1" | "beta2" => (0.0, 0.1),
            // Uniform of this half-width has the standard deviation 0.02.
            _ => (0.0, 0.034_641),
        };
        all.extend((0..param.len).map(|_| middle + spread * random.uniform()));
    }
    all
}

/// The block as the specification computes it.
pub fn reference(x: &[f32], weights: &[f32], batch: usize, seq_len: usize, causal: bool) -> Vec<f32> {
    let weights: &[f32; WEIGHTS_LEN] = weights.try_into().expect("a whole weight buffer");
    solve::cpu::forward(x, Weights::new(weights), batch, seq_len, causal).expect("the specification runs")
}

/// Worst |got - wanted| / (abs + rel |wanted|); NaN and infinity are infinitely wrong.
pub fn worst(got: &[f32], wanted: &[f32], abs: f32, rel: f32) -> f32 {
    assert_eq!(got.len(), wanted.len());
    let error = |(g, w): (&f32, &f32)| {
        let e = (g - w).abs() / (abs + rel * w.abs());
        if e.is_finite() { e } else { f32::INFINITY }
    };
    got.iter().zip(wanted).map(error).fold(0.0, f32::max)
}

/// The challenge's tolerance.
pub fn check_block(got: &[f32], wanted: &[f32], what: &str) {
    let worst = worst(got, wanted, 1e-3, 1e-3);
    assert!(worst <= 1.0, "{what}: {worst} times the tolerance");
    assert_eq!(got.len() % D, 0);
}
