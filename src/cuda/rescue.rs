//! The rule by which the device decides whether a fast result must be computed again (`must_rescue` in cuda/exact/exact.cuh), for a host that has the alarms.

use crate::dims::D;
use crate::precision::SolvePrecision;

/// Words that are alarms, in the order of `Alarm` (cuda/common/alarm.cuh).
pub const ALARMS: usize = 16;
/// The largest weight of each matrix, in the order of the weights.
const LARGEST: [usize; 4] = [0, 1, 2, 3];
/// That some weights are small, or so many bits further on, zero.
pub const TINY: usize = 8;
const VANISHED: u32 = 8;
const GAMMA1: usize = 9;
const BETA1: usize = 10;
const GAMMA2: usize = 11;
const BETA2: usize = 12;
const B_QKV: usize = 13;
const B_FC: usize = 14;
const SHIFT: usize = 15;

/// What a word of 0 stands for.
const USUAL_WEIGHT: f32 = 0.14;
const USUAL_GAMMA: f32 = 1.201;
const USUAL_BETA: f32 = 0.101;
const USUAL_BIAS: f32 = 0.101;

/// The largest number of fp16, and |x - mean| rstd in a row.
const HALF_MAX: f32 = 65504.0;
const NORM_MAX: f32 = 27.72;
/// Weights beyond these would make too much of what fp16 loses of small operands.
const ATTN_MAX: f32 = 1024.0;
const PROJ_MAX: f32 = 512.0;
/// What vanishes in fp16 beside less than this does no harm.
const LOUD: f32 = 16.0;

/// Whether the fast result must not stand. Fast: fp16 might overflow, or lose small weights beside large values. Auto: anything is unusual, but for zeros.
#[must_use]
pub fn must_rescue(alarms: &[u32; ALARMS], precision: SolvePrecision) -> bool {
    let tiny = alarms[TINY] & ((1 << VANISHED) - 1) != 0;
    let large = alarms.iter().enumerate().any(|(alarm, &word)| alarm != TINY && word != 0);
    match precision {
        SolvePrecision::Exact => true,
        SolvePrecision::Auto => tiny || large,
        SolvePrecision::Fast => (tiny && large) || is_beyond_fp16(alarms),
    }
}

fn is_beyond_fp16(alarms: &[u32; ALARMS]) -> bool {
    let value = |alarm: usize, usual: f32| if alarms[alarm] == 0 { usual } else { f32::from_bits(alarms[alarm]) };
    let [qkv, attn, fc, proj] = LARGEST.map(|alarm| value(alarm, USUAL_WEIGHT));
    let (gamma1, beta1) = (value(GAMMA1, USUAL_GAMMA), value(BETA1, USUAL_BETA));
    let (gamma2, beta2) = (value(GAMMA2, USUAL_GAMMA), value(BETA2, USUAL_BETA));
    let operands = [
        NORM_MAX * gamma1 + beta1,
        NORM_MAX * gamma2 + beta2,
        D as f32 * qkv * (gamma1 + beta1) + value(B_QKV, USUAL_BIAS),
        D as f32 * fc * (gamma2 + beta2) + value(B_FC, USUAL_BIAS),
    ];
    // False, too, where anything is not a number
    let fits = operands.iter().all(|&value| value < HALF_MAX) && attn < ATTN_MAX && proj < PROJ_MAX;
    let loudest =
        [qkv, attn, fc, proj, gamma1, beta1, gamma2, beta2, value(B_QKV, USUAL_BIAS), value(B_FC, USUAL_BIAS)]
            .into_iter()
            .fold(0.0, f32::max);
    !fits || alarms[SHIFT] != 0 || (alarms[TINY] >> VANISHED != 0 && loudest > LOUD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use SolvePrecision::{Auto, Exact, Fast};

    /// With these alarms raised
    fn rescued(raised: &[(usize, f32)]) -> [bool; 3] {
        let mut alarms = [0; ALARMS];
        for &(alarm, value) in raised {
            alarms[alarm] = value.to_bits();
        }
        [Fast, Exact, Auto].map(|precision| must_rescue(&alarms, precision))
    }

    #[test]
    fn fast_is_rescued_where_fp16_might_not_do() {
        assert_eq!(rescued(&[]), [false, true, false]);
        let unusual = [(LARGEST[0], 3.0), (GAMMA1, 20.0), (B_FC, 5.0), (TINY, f32::from_bits(2))];
        for raised in &unusual {
            assert_eq!(rescued(std::slice::from_ref(raised)), [false, true, true], "{raised:?}");
        }
        assert_eq!(rescued(&unusual), [true; 3], "small weights beside large values");
        let [zeros, tiny] = [1 << VANISHED, 1].map(|bits| (TINY, f32::from_bits(bits)));
        assert_eq!(rescued(&[zeros]), [false, true, false]);
        assert_eq!(rescued(&[zeros, (LARGEST[2], 3.0)]), [false, true, true]);
        assert_eq!(rescued(&[zeros, (B_FC, 17.0)]), [true; 3], "zeros beside large values");
        assert_eq!(rescued(&[tiny, (B_FC, 0.2)]), [true; 3]);
        let beyond = [
            (LARGEST[0], 66.0),
            (LARGEST[1], 1024.0),
            (LARGEST[2], 66.0),
            (LARGEST[3], 512.0),
            (LARGEST[3], f32::INFINITY),
            (GAMMA1, 2400.0),
            (BETA2, 65500.0),
            (B_QKV, 65500.0),
            (B_FC, f32::NAN),
            (SHIFT, 17.0),
        ];
        for raised in beyond {
            assert_eq!(rescued(&[raised]), [true; 3], "{raised:?}");
        }
        for alarm in (0..ALARMS).filter(|alarm| LARGEST.contains(alarm) || (GAMMA1..SHIFT).contains(alarm)) {
            assert_eq!(rescued(&[(alarm, 16.5)]), [false, true, true], "alarm {alarm}");
            assert_eq!(rescued(&[zeros, (alarm, 16.5)]), [true; 3], "zeros beside alarm {alarm}");
        }
    }

    /// The same alarms and numbers as on the device
    #[test]
    fn the_device_has_the_same_rule() {
        let alarm = include_str!("../../cuda/common/alarm.cuh");
        let exact = include_str!("../../cuda/exact/exact.cuh");
        let after = |text: &'static str, name: &str| -> f32 {
            let at = text.find(&format!("{name} = ")).unwrap_or_else(|| panic!("{name} is not there")) + name.len() + 3;
            let number = text[at..].split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap_or_default();
            number.parse().unwrap_or_else(|_| panic!("{name} = {number}"))
        };
        assert_eq!(after(alarm, "ALARM_LARGEST") as usize, LARGEST[0]);
        assert_eq!(after(alarm, "ALARM_TINY") as usize, TINY);
        assert_eq!(after(alarm, "ALARMS") as usize, ALARMS);
        assert_eq!(after(alarm, "VANISHED") as u32, VANISHED);
        let names = ["TINY", "GAMMA1", "BETA1", "GAMMA2", "BETA2", "B_QKV", "B_FC", "SHIFT"];
        let places = names.map(|name| alarm.find(&format!("  ALARM_{name}")));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "they follow each other: {places:?}");
        assert_eq!([GAMMA1, BETA1, GAMMA2, BETA2, B_QKV, B_FC, SHIFT], std::array::from_fn(|i| TINY + 1 + i));
        for (name, value) in [
            ("USUAL_WEIGHT", USUAL_WEIGHT),
            ("USUAL_GAMMA", USUAL_GAMMA),
            ("USUAL_BETA", USUAL_BETA),
            ("USUAL_BIAS", USUAL_BIAS),
        ] {
            assert_eq!(after(alarm, name), value, "{name}");
        }
        for (name, value) in [
            ("HALF_MAX", HALF_MAX),
            ("NORM_MAX", NORM_MAX),
            ("ATTN_MAX", ATTN_MAX),
            ("PROJ_MAX", PROJ_MAX),
            ("LOUD", LOUD),
        ] {
            assert_eq!(after(exact, name), value, "{name}");
        }
    }
}
