//! What no implementation can beat, and what is worth comparing with: operations and bytes of the block over
//! the rates of the machine.

use crate::dims::{D, FFN, WEIGHTS};
use crate::gpu::Gpu;
use crate::protocol::Api;

/// Floating-point operations of the matrix products.
pub fn flops(seq: usize) -> f64 {
    let (s, d, f) = (seq as f64, D as f64, FFN as f64);
    2.0 * s * (3.0 * d * d + d * d + 2.0 * d * f) + 4.0 * s * s * d
}

/// Bytes that must cross the memory bus at least once: fp32 weights, x and output.
pub fn bytes(seq: usize) -> f64 {
    4.0 * (WEIGHTS + 2 * seq * D) as f64
}

/// Rates of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Sustained: what large copies and products really reach, bytes/s and FLOP/s of fp16.
    pub bytes: f64,
    pub flops: f64,
    /// The data sheet's dense fp16 rate, which nothing exceeds.
    pub peak_flops: f64,
}

impl Rates {
    /// Measured rates where there are some, an estimate from the chip's figures elsewhere.
    pub fn of(gpu: &Gpu) -> Self {
        if gpu.name.contains("H200") {
            // Measured: device-to-device copy, and large fp16 products at the clock the power limit leaves.
            return Self { bytes: 4.3e12, flops: 6.89e14, peak_flops: 9.89e14 };
        }
        let per_sm_and_clock = match gpu.capability {
            (9, _) => 4096.0,
            (10.., _) => 8192.0,
            (8, 0) => 2048.0,
            _ => 1024.0,
        };
        let peak_flops = per_sm_and_clock * gpu.sms as f64 * gpu.max_clock_mhz * 1e6;
        Self { bytes: gpu.bandwidth * 0.9, flops: peak_flops * 0.7, peak_flops }
    }

    /// The larger of the two times in us: a good implementation comes near it.
    pub fn floor_us(&self, seq: usize) -> f64 {
        (bytes(seq) / self.bytes).max(flops(seq) / self.flops) * 1e6
    }

    /// Below this a time is no measurement but a mistake or a cheat, in us. Weights may be in the L2, and a
    /// prepared handle may hold them in half the bytes.
    pub fn impossible_us(&self, seq: usize, api: Api) -> f64 {
        let weights = 4.0 * WEIGHTS as f64 * if api == Api::Prepared { 0.5 } else { 1.0 };
        (weights / (3.0 * self.bytes)).max(flops(seq) / self.peak_flops) * 0.9e6
    }
}

/// As [`Rates::impossible_us`] for a processor: 64 operations a cycle at 5 GHz on every core, or 1024 where it has matrix
/// units (AMX, 16-bit operands).
pub fn impossible_on_cpu_us(seq: usize, cores: usize, matrix_units: bool) -> f64 {
    let a_cycle = if matrix_units { 1024.0 } else { 64.0 };
    flops(seq) / (cores as f64 * 5e9 * a_cycle) * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_block() {
        assert!((flops(1024) / 1e9 - 17.7).abs() < 0.05);
        assert!((bytes(1024) / 1e6 - 34.6).abs() < 0.1);
        let h200 = Rates { bytes: 4.3e12, flops: 6.89e14, peak_flops: 9.89e14 };
        assert!((h200.floor_us(1024) - 25.7).abs() < 0.1 && (h200.floor_us(1) - 6.6).abs() < 0.1);
        for (seq, api, us) in [(1024, Api::Solve, 16.12), (1, Api::Solve, 1.98), (1, Api::Prepared, 0.99)] {
            let impossible = h200.impossible_us(seq, api);
            assert!((impossible / us - 1.0).abs() < 0.01 && impossible < h200.floor_us(seq), "{impossible}");
        }
        assert!((impossible_on_cpu_us(1024, 2, false) / 27_682.0 - 1.0).abs() < 0.01);
        assert!((impossible_on_cpu_us(1024, 2, true) / 1730.0 - 1.0).abs() < 0.01);
    }
}
