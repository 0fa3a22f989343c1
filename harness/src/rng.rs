//! Counter-based random numbers: value `i` of a stream depends on nothing but the key and `i`, so buffers
//! fill in parallel and any one value can be had again.

use rayon::prelude::*;

/// One stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: u64,
}

/// The finaliser of SplitMix64, a bijection that scatters neighbouring inputs.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Stream {
    /// The stream called `name` under `seed`.
    pub fn new(seed: u64, name: u64) -> Self {
        Self { key: mix(mix(seed) ^ name.wrapping_mul(0x9e37_79b9_7f4a_7c15)) }
    }

    /// A stream of its own below this one.
    pub fn child(self, name: u64) -> Self {
        Self::new(self.key, name)
    }

    /// Random word `i`.
    pub fn word(self, i: u64) -> u64 {
        mix(mix(self.key ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(self.key))
    }

    /// A number below `n`.
    pub fn below(self, i: u64, n: usize) -> usize {
        ((u128::from(self.word(i)) * n as u128) >> 64) as usize
    }

    /// Uniform in [lo, hi).
    pub fn uniform(self, i: u64, lo: f64, hi: f64) -> f64 {
        lo + (hi - lo) * (self.word(i) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal with mean 0, by Box and Muller.
    pub fn normal(self, i: u64, sigma: f64) -> f64 {
        let w = self.word(i);
        let u = ((w >> 32) as f64 + 1.0) / 4_294_967_296.0;
        let angle = (w & 0xffff_ffff) as f64 / 4_294_967_296.0 * std::f64::consts::TAU;
        sigma * (-2.0 * u.ln()).sqrt() * angle.cos()
    }

    /// Fills a buffer with `value(i)`, in parallel.
    pub fn fill(self, out: &mut [f32], value: impl Fn(Self, u64) -> f64 + Sync) {
        out.par_chunks_mut(1 << 14).enumerate().for_each(|(block, chunk)| {
            for (i, v) in chunk.iter_mut().enumerate() {
                *v = value(self, ((block << 14) + i) as u64) as f32;
            }
        });
    }

    /// A random order of 0..n.
    pub fn permutation(self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i as u64, i + 1));
        }
        order
    }
}

/// A seed from the operating system.
pub fn secret() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is ours and as long as we say; a short read leaves zeros, which is a valid seed.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_right() {
        let mut v = vec![0f32; 200_000];
        Stream::new(1, 2).fill(&mut v, |s, i| s.normal(i, 2.0));
        let n = v.len() as f64;
        let mean = v.iter().map(|&a| f64::from(a)).sum::<f64>() / n;
        let var = v.iter().map(|&a| (f64::from(a) - mean).powi(2)).sum::<f64>() / n;
        assert!(mean.abs() < 0.02 && (var - 4.0).abs() < 0.06, "{mean} {var}");
        Stream::new(1, 3).fill(&mut v, |s, i| s.uniform(i, -1.0, 1.0));
        assert!(v.iter().all(|a| (-1.0..=1.0).contains(a)));
        assert!(v.iter().sum::<f32>().abs() < 2_000.0);
    }

    #[test]
    fn permutation_holds_every_index_once() {
        let mut p = Stream::new(5, 5).permutation(1000);
        assert_ne!(p[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        p.sort_unstable();
        assert!(p.iter().enumerate().all(|(i, &v)| i as u32 == v));
    }
}
