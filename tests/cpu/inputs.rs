//! Fresh numbers from a seed, in the ranges of the public challenge, with biases that are not zero.

use solve::cpu;
use solve::dims::D;
use solve::weights::{self, Param, WEIGHTS_LEN, Weights};

/// splitmix64
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn uniform(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    pub fn normal(&mut self, deviation: f32) -> f32 {
        let radius = (-2.0 * f64::from(self.uniform(1e-7, 1.0)).ln()).sqrt();
        (radius * f64::from(self.uniform(0.0, std::f32::consts::TAU)).cos()) as f32 * deviation
    }

    pub fn uniforms(&mut self, len: usize, low: f32, high: f32) -> Vec<f32> {
        (0..len).map(|_| self.uniform(low, high)).collect()
    }

    /// `rows` tokens, U(-1, 1).
    pub fn tokens(&mut self, rows: usize) -> Vec<f32> {
        self.uniforms(rows * D, -1.0, 1.0)
    }

    /// gamma U(.8, 1.2), beta U(-.1, .1), everything else N(0, .02).
    pub fn weights(&mut self) -> Buffer {
        let mut buffer = Buffer((0..WEIGHTS_LEN).map(|_| self.normal(0.02)).collect());
        for gamma in [weights::GAMMA1, weights::GAMMA2] {
            buffer.part(gamma).fill_with(|| self.uniform(0.8, 1.2));
        }
        for beta in [weights::BETA1, weights::BETA2] {
            buffer.part(beta).fill_with(|| self.uniform(-0.1, 0.1));
        }
        buffer
    }
}

/// A whole weight buffer.
#[derive(Clone)]
pub struct Buffer(pub Vec<f32>);

impl Buffer {
    pub fn part(&mut self, p: Param) -> &mut [f32] {
        &mut self.0[p.offset..p.offset + p.len]
    }

    pub fn scale(&mut self, p: Param, factor: f32) {
        self.part(p).iter_mut().for_each(|w| *w *= factor);
    }

    pub fn view(&self) -> Weights<'_> {
        Weights::new(self.0.as_slice().try_into().expect("a whole buffer"))
    }
}

/// The block on one sequence, every key visible.
pub fn run(x: &[f32], weights: &Buffer) -> Vec<f32> {
    cpu::forward(x, weights.view(), 1, x.len() / D, false).expect("the shape fits")
}

/// Euclidean length of a - b over that of b - origin: with origin = x, the error of what the block adds to x.
pub fn relative_error<B: Copy + Into<f64>>(a: &[f32], b: &[B], origin: &[f32]) -> f64 {
    assert_eq!((a.len(), b.len()), (b.len(), origin.len()));
    let (mut error, mut size) = (0.0, 0.0);
    for ((&a, &b), &o) in a.iter().zip(b).zip(origin) {
        let b: f64 = b.into();
        error += (f64::from(a) - b).powi(2);
        size += (b - f64::from(o)).powi(2);
    }
    (error / size).sqrt()
}
