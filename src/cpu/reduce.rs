//! Reductions over a row. Sixteen running values side by side, since the compiler may not reorder floating-point sums itself:
//! one AVX-512 register, two of AVX2, and a smaller rounding error than one running sum.

const LANES: usize = 16;

#[inline(always)]
fn fold(values: &[f32], start: f32, f: impl Fn(f32, f32) -> f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let (chunks, tail) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = f(*lane, v);
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(tail) {
        *lane = f(*lane, v);
    }
    lanes.into_iter().reduce(join).unwrap_or(start)
}

#[inline(always)]
pub fn sum(values: &[f32]) -> f32 {
    fold(values, 0.0, |a, v| a + v, |a, b| a + b)
}

#[inline(always)]
pub fn sum_of_squares(values: &[f32]) -> f32 {
    fold(values, 0.0, |a, v| a + v * v, |a, b| a + b)
}

#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let larger = |a, b| if a > b { a } else { b };
    fold(values, f32::NEG_INFINITY, larger, larger)
}
