//! The correctness suites. `official` is the public challenge; `full` adds what the challenge cannot see
//! (biases, sizes around tile edges, attention that is not flat, unusual x); `extreme` adds a range that fp16
//! operands cannot hold without scaling. `hard` is where the contracts of the precisions are tried: biases, outliers,
//! sharp attention, weights and activations of any size, at short and at long lengths.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::contract::Precision;
use crate::inputs::{BIASED, CANCELLED, CHALLENGE, Flavour, Twist, X};
use crate::rng::Stream;

/// Which cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// The challenge's own
    Official,
    /// Those, and what they cannot see: biases, sizes around the edges of tiles, sharp attention, unusual x
    #[default]
    Full,
    /// All of these, and a range that fp16 operands cannot hold without scaling
    Extreme,
    /// The challenge's own, and where the promises of the precisions are tried: outliers, weights and activations of any size
    Hard,
}

/// One input to be right on.
#[derive(Clone, Debug)]
pub struct Case {
    /// Such as `biased:257`; unique in a suite, but the hard one has inputs of its own.
    pub name: String,
    /// Tokens.
    pub seq: usize,
    /// How the numbers are drawn.
    pub flavour: Flavour,
    /// The smallest suite that has it.
    pub suite: Suite,
    /// An error may be this many times the largest that TF32 operands make on this flavour. 0: the plain tolerance.
    pub slack: f64,
}

impl Case {
    /// Its name without its length.
    fn kind(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }

    /// Whether the hard suite tries it under this precision. `auto` goes by the weights alone: on some that look as usual but line up with the activations,
    /// `fast` is 2 to 6 times the tolerance off, and nobody notices. The full suite has such a case under every precision.
    pub fn tried(&self, precision: Option<Precision>) -> bool {
        self.suite != Suite::Hard || precision != Some(Precision::Auto) || self.flavour.twist != Twist::Aligned
    }
}

/// The challenge's sizes; 1024 is the one it times.
const OFFICIAL: [usize; 10] = [1, 2, 4, 16, 30, 64, 100, 128, 256, 1024];

/// Both sides of every tile edge, and odd ones.
const EDGES: [usize; 37] = [
    1, 2, 3, 7, 8, 9, 15, 17, 31, 32, 33, 63, 65, 96, 127, 129, 191, 193, 255, 257, 383, 385, 511, 512, 513, 600, 767,
    769, 1000, 1023, 1025, 1537, 2047, 2048, 2049, 4095, 4096,
];

const fn x(x: X) -> Flavour {
    Flavour { x, ..BIASED }
}

const fn twist(twist: Twist) -> Flavour {
    Flavour { twist, ..BIASED }
}

/// Hard inputs, each with the length at which a study of wrong blocks found it sharpest.
const HARD: [(&str, usize, Flavour); 14] = [
    ("gelu-band", 64, twist(Twist::GeluBand)),
    ("aligned", 64, twist(Twist::Aligned)),
    ("bias-1", 64, Flavour { bias: 1.0, ..BIASED }),
    ("x-1e-3", 64, x(X::Scaled(1e-3))),
    ("x-1e-20", 33, x(X::Scaled(1e-20))),
    ("x-zero", 33, x(X::Zero)),
    ("x-1e4", 64, x(X::Scaled(1e4))),
    ("x-1e5", 64, x(X::Scaled(1e5))),
    ("x+3000", 64, x(X::Shifted(3000.0))),
    ("outliers", 65, x(X::Outliers)),
    ("one-hot", 64, x(X::OneHot)),
    ("near-duplicates", 64, x(X::NearDuplicates)),
    ("qk-x4", 130, Flavour { qk: 4.0, ..BIASED }),
    ("qk-x16", 130, Flavour { qk: 16.0, ..BIASED }),
];

/// Of the hard inputs those that tell what no other does, and so are tried at a drawn length, too: the other GELU, another epsilon, a variance in one pass,
/// a softmax without its maximum, a coarse residual. Where tiles are whole, and at the lengths that are timed, it is one of them, nobody knows which.
const DRAWN: [&str; 5] = ["gelu-band", "x-1e-3", "x+3000", "qk-x16", "cancel"];

/// The longest of the hard inputs of which everybody knows which are tried at which length.
const LONGEST_KNOWN: usize = 130;

/// Fast code has a path of its own where all tiles are whole. Half of the drawn lengths are multiples of this.
const TILE: usize = 128;

/// The shortest whole tiles beyond those: one of the drawn inputs is tried there.
const WHOLE_TILES: usize = 2 * TILE;

const fn of_x(x: X) -> Flavour {
    Flavour { x, ..CHALLENGE }
}

const fn of_std(std: f64) -> Flavour {
    Flavour { std, ..CHALLENGE }
}

const fn of_twist(twist: Twist) -> Flavour {
    Flavour { twist, ..CHALLENGE }
}

/// The hard suite: each with a short and a long length, and others between them where that is not enough.
const CONTRACT: [(&str, &str, &[usize], Flavour); 25] = [
    ("bias-.02", "biases N(0, 0.02)", &[7, 1024], Flavour { bias: 0.02, ..CHALLENGE }),
    ("bias-1", "biases N(0, 1)", &[1, 600], Flavour { bias: 1.0, ..CHALLENGE }),
    ("x-zero", "x = 0", &[1, 1024], of_x(X::Zero)),
    ("x-1e-20", "x within 1e-20", &[64, 600], of_x(X::Scaled(1e-20))),
    ("x-1e-3", "x within 0.001", &[7, 130], of_x(X::Scaled(1e-3))),
    ("x-1e4", "x within 10,000", &[7, 1024], of_x(X::Scaled(1e4))),
    ("x+30", "x around 30", &[1, 600], of_x(X::Shifted(30.0))),
    ("x+3000", "x around 3000", &[7, 4096], of_x(X::Shifted(3000.0))),
    ("channels", "two columns of x around 900 and -3000", &[64, 4096], of_x(X::Channels)),
    ("one-hot", "one-hot rows", &[7, 600], of_x(X::OneHot)),
    ("nearly-equal", "rows equal to 0.001", &[64, 1024], of_x(X::NearDuplicates)),
    ("qk-x4", "weights of q and k 4 times as large", &[64, 600], Flavour { qk: 4.0, ..CHALLENGE }),
    ("qk-x16", "weights of q and k 16 times as large", &[7, 1024], Flavour { qk: 16.0, ..CHALLENGE }),
    ("std-1e-6", "weights N(0, 0.000001)", &[1, 130], of_std(1e-6)),
    ("std-.05", "weights N(0, 0.05)", &[64, 4096], of_std(0.05)),
    ("std-.14", "weights N(0, 0.14)", &[7, 600], of_std(0.14)),
    // The softmax is all but one-hot: whether two scores of a row are close decides, and with few rows that is for a draw to say.
    ("std-2", "weights N(0, 2)", &[7, 17, 64, 130, 600, 1024], of_std(2.0)),
    ("v-weights", "v beyond 65,504 by its weights", &[1, 1024], of_twist(Twist::HugeValues)),
    ("v-bias", "v beyond 65,504 by its bias", &[64, 600], of_twist(Twist::BiasedValues)),
    ("ffn-range", "hidden layer beyond 65,504", &[7, 4096], of_twist(Twist::Range)),
    ("aligned", "sums of one sign that `b_proj` takes away again", &[65, 1024], of_twist(Twist::Aligned)),
    ("gamma-x80", "a few elements of gamma 80 times as large", &[1, 1024], of_twist(Twist::GammaOutliers)),
    ("pruned", "a head and 32 hidden numbers pruned, gamma around 8", &[80, 600], of_twist(Twist::Pruned)),
    (
        "quiet-norm",
        "gamma1 around 1e-6, weights of v and `W_attn` N(0, 10) and N(0, 100)",
        &[1, 600],
        of_twist(Twist::QuietNorm),
    ),
    (
        "moved-rows",
        "all of `W_attn` 0.02, v moved by 0.1, x within 0.1",
        &[65, 600],
        Flavour { x: X::Scaled(0.1), ..of_twist(Twist::MovedRows) },
    ),
];

/// The names of the hard cases, without their lengths, and what they are in words.
pub fn hard_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    CONTRACT.iter().map(|(name, words, ..)| (*name, *words))
}

/// Random lengths are at most this, but for one of ordinary inputs and one of hard ones, which are above it.
const LONGEST_RANDOM: usize = 1500;

/// What is said where the hard suite does not reach as far as it could.
pub fn left_out(suite: Suite, max_seq: usize) -> Option<String> {
    let longest = CONTRACT.iter().flat_map(|(_, _, lengths, _)| lengths.iter().copied()).max()?;
    (suite == Suite::Hard && max_seq < longest).then(|| {
        format!("hard cases of up to {longest} tokens were tried with {max_seq} at most: --max-case {longest} has them")
    })
}

/// Those up to a length; on a smaller scale the longest one shrinks rather than be left out.
fn lengths_up_to(lengths: &[usize], max: usize) -> Vec<usize> {
    let Some((&longest, others)) = lengths.split_last() else { return Vec::new() };
    let mut kept: Vec<usize> = others.iter().copied().filter(|&length| length <= max).collect();
    if kept.last().is_some_and(|&length| length < longest.min(max)) {
        kept.push(longest.min(max));
    }
    kept
}

/// The next multiple of a tile's length, or the one before where that is too long; the length itself where neither is within these.
fn whole_tiles(length: usize, from: usize, to: usize) -> usize {
    let next = length.next_multiple_of(TILE);
    let whole = if next <= to { next } else { to / TILE * TILE };
    if whole >= from { whole } else { length }
}

/// The cases of a suite up to a length, cheap and telling ones first. None of the lengths to time is without hard inputs.
pub fn suite(suite: Suite, max_seq: usize, timed: &[usize], seed: u64) -> Vec<Case> {
    let case = |name: String, seq, flavour, suite, slack| Case { name, seq, flavour, suite, slack };
    let official = |seq| case(format!("official:{seq}"), seq, CHALLENGE, Suite::Official, 0.0);
    let zero = Flavour { x: X::Zero, ..CHALLENGE };
    let (short, long): (Vec<usize>, Vec<usize>) = OFFICIAL.iter().partition(|&&seq| seq <= 256);

    let mut cases: Vec<Case> = short.into_iter().map(official).collect();
    cases.push(case("official-zero:4".into(), 4, zero, Suite::Official, 0.0));
    for (name, seq, flavour) in HARD {
        cases.push(case(format!("{name}:{seq}"), seq, flavour, Suite::Full, 4.0));
    }
    let cancel = Flavour { x: X::Shifted(CANCELLED), ..twist(Twist::Cancel) };
    cases.push(case("cancel:64".into(), 64, cancel, Suite::Full, 0.0));
    let drawn: Vec<Case> = cases.iter().filter(|c| DRAWN.contains(&c.kind())).cloned().collect();
    let at = |c: &Case, seq| Case { name: format!("{}:{seq}", c.kind()), seq, ..c.clone() };
    let stream = Stream::new(seed, 78);
    let whole_or_not =
        |k, length, from, to| if stream.child(1).below(k, 2) == 0 { whole_tiles(length, from, to) } else { length };
    // A block that takes a shortcut from some length on is right at all of the lengths above. Every octave is as likely: long ones are dear.
    let (first, last) = (LONGEST_KNOWN + 1, max_seq.min(LONGEST_RANDOM));
    if first <= last {
        let octaves = (last as f64 / first as f64).log2();
        let length = |k| ((first as f64 * stream.uniform(k, 0.0, octaves).exp2()) as usize).clamp(first, last);
        cases.extend((0..).zip(&drawn).map(|(k, c)| at(c, whole_or_not(k, length(k), first, last))));
    }
    cases.push(case("v-x4:2".into(), 2, twist(Twist::LoudValues), Suite::Full, 2.0));
    cases.push(case("range:64".into(), 64, twist(Twist::Range), Suite::Extreme, 4.0));
    for seq in EDGES {
        cases.push(case(format!("biased:{seq}"), seq, BIASED, Suite::Full, 2.0));
    }
    // A block that is wrong at one length only survives every fixed list.
    for k in 0..2 {
        let seq = 1 + Stream::new(seed, 77).below(k, LONGEST_RANDOM.min(max_seq));
        cases.push(case(format!("random-{k}:{seq}"), seq, BIASED, Suite::Full, 2.0));
    }
    if let Some(longer @ 1..) = max_seq.checked_sub(LONGEST_RANDOM) {
        let seq = LONGEST_RANDOM + 1 + Stream::new(seed, 77).below(2, longer);
        cases.push(case(format!("random-2:{seq}"), seq, BIASED, Suite::Full, 2.0));
        let one = &drawn[stream.below(10, drawn.len())];
        let (first, last) = (LONGEST_RANDOM + 1, LONGEST_RANDOM + longer.min(LONGEST_RANDOM));
        let length = first + stream.below(11, longer.min(LONGEST_RANDOM));
        cases.push(at(one, whole_or_not(11, length, first, last)));
    }
    // A block that takes its shortcut at whole tiles only, or where it is timed, is right at the others. One of the drawn inputs tells: long ones are dear.
    for &seq in [WHOLE_TILES].iter().chain(timed) {
        if !cases.iter().any(|c| c.seq == seq && DRAWN.contains(&c.kind())) {
            cases.push(at(&drawn[stream.child(2).below(seq as u64, drawn.len())], seq));
        }
    }
    cases.extend(long.into_iter().map(official));
    if suite == Suite::Hard {
        cases.retain(|c| c.suite == Suite::Official);
        cases.extend(CONTRACT.iter().flat_map(|(name, _, lengths, flavour)| {
            let of = |seq| case(format!("{name}:{seq}"), seq, *flavour, Suite::Hard, 0.0);
            lengths_up_to(lengths, max_seq).into_iter().map(of).collect::<Vec<_>>()
        }));
    }
    cases.retain(|c| c.suite <= suite && c.seq <= max_seq);
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_nest_and_names_are_unique() {
        let names = |s| suite(s, usize::MAX, &[], 1).into_iter().map(|c| c.name).collect::<Vec<_>>();
        let (official, full, extreme) = (names(Suite::Official), names(Suite::Full), names(Suite::Extreme));
        assert_eq!(official.len(), OFFICIAL.len() + 1);
        assert!(official.iter().all(|n| full.contains(n)) && full.iter().all(|n| extreme.contains(n)));
        let mut unique = extreme.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), extreme.len());
        let hard = names(Suite::Hard);
        assert!(official.iter().all(|n| hard.contains(n)));
        assert!(hard.iter().all(|n| official.contains(n) || !extreme.contains(n)), "a name means one input");
        assert_eq!(hard.len(), official.len() + CONTRACT.iter().map(|(_, _, lengths, _)| lengths.len()).sum::<usize>());
        assert!(suite(Suite::Full, 300, &[], 1).iter().all(|c| c.seq <= 300));
    }

    #[test]
    fn every_length_of_the_challenge_may_be_tried() {
        let random =
            |max, seed| suite(Suite::Full, max, &[], seed).into_iter().filter(|c| c.name.starts_with("random-"));
        let longest = |seed| random(4096, seed).map(|c| c.seq).max().unwrap_or(0);
        let lengths: Vec<usize> = (0..2000).map(longest).collect();
        assert!(lengths.iter().all(|l| (LONGEST_RANDOM + 1..=4096).contains(l)));
        assert!(lengths.iter().any(|l| *l < LONGEST_RANDOM + 20) && lengths.iter().any(|l| *l > 4096 - 20));
        assert!(random(LONGEST_RANDOM, 1).count() == 2 && random(LONGEST_RANDOM + 1, 1).any(|c| c.seq == 1501));
        assert!(suite(Suite::Full, 40, &[], 1).iter().all(|c| c.seq <= 40));
    }

    #[test]
    fn what_hard_inputs_alone_tell_is_tried_at_lengths_that_nobody_knows() {
        let lengths = |max, seed| -> Vec<(String, usize)> {
            let cases = suite(Suite::Full, max, &[], seed).into_iter().filter(|c| DRAWN.contains(&c.kind()));
            cases.filter(|c| c.seq > LONGEST_KNOWN).map(|c| (c.kind().to_string(), c.seq)).collect()
        };
        for seed in 0..200 {
            let all = lengths(4096, seed);
            let (drawn, others) = all.split_at(DRAWN.len());
            assert!(drawn.iter().zip(DRAWN).all(|(c, kind)| c.0 == kind && c.1 <= LONGEST_RANDOM), "{all:?}");
            let (longer, whole) = others.split_at(1);
            assert!((LONGEST_RANDOM + 1..=4096).contains(&longer[0].1), "{all:?}");
            assert!(whole.iter().all(|c| c.1 == WHOLE_TILES) && whole.len() <= 1, "{all:?}");
            assert!(lengths(300, seed).iter().all(|c| c.1 <= 300) && lengths(300, seed).len() >= DRAWN.len());
            assert!(lengths(200, seed).len() == DRAWN.len() && lengths(200, seed).iter().all(|c| c.1 <= 200));
        }
        assert!(lengths(LONGEST_KNOWN, 1).is_empty() && lengths(4096, 1) != lengths(4096, 2));
        let known = suite(Suite::Full, LONGEST_KNOWN, &[], 1).into_iter().filter(|c| c.slack > 2.0);
        assert_eq!(known.map(|c| c.seq).max(), Some(LONGEST_KNOWN));
        assert!(left_out(Suite::Hard, 4096).is_none() && left_out(Suite::Full, 7).is_none());
        assert!(
            left_out(Suite::Hard, 300).is_some_and(|words| words.contains("4096 tokens were tried with 300 at most"))
        );
    }

    #[test]
    fn hard_inputs_are_tried_where_tiles_are_whole() {
        let mut whole = 0;
        for seed in 0..200 {
            let cases = suite(Suite::Full, 4096, &[], seed).into_iter().filter(|c| DRAWN.contains(&c.kind()));
            let cases: Vec<Case> = cases.filter(|c| c.seq > LONGEST_KNOWN).collect();
            assert!(cases.iter().any(|c| c.seq == WHOLE_TILES), "seed {seed}");
            whole += cases.iter().take(DRAWN.len() + 1).filter(|c| c.seq % TILE == 0).count();
        }
        // A half of six of each seed, and a few of the others by chance.
        assert!((500..720).contains(&whole), "{whole}");
        assert_eq!([whole_tiles(131, 131, 1500), whole_tiles(256, 131, 300), whole_tiles(257, 131, 300)], [256; 3]);
        assert_eq!([whole_tiles(140, 131, 200), whole_tiles(1501, 1501, 1510)], [140, 1501]);
    }

    #[test]
    fn hard_inputs_are_tried_at_the_lengths_that_are_timed() {
        let timed = [1, 16, 33, 64, 1000, 1024, 4096, 8192];
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let cases = suite(Suite::Full, 4096, &timed, seed);
            let hard = |seq| cases.iter().filter(move |c| c.seq == seq && DRAWN.contains(&c.kind()));
            assert!(timed.iter().all(|&seq| hard(seq).count() > 0 || seq > 4096), "seed {seed}");
            // All but the one that is tried at 130.
            assert_eq!([64, 4096, 8192].map(|seq| hard(seq).count()), [DRAWN.len() - 1, 1, 0], "seed {seed}");
            kinds.extend(hard(4096).map(|c| c.kind().to_string()));
            let names: std::collections::BTreeSet<&str> = cases.iter().map(|c| c.name.as_str()).collect();
            assert_eq!(names.len(), cases.len(), "seed {seed}");
            for other in [Suite::Official, Suite::Hard] {
                let names = |timed| suite(other, 4096, timed, seed).into_iter().map(|c| c.name).collect::<Vec<_>>();
                assert_eq!(names(&timed), names(&[]), "{other:?}");
            }
        }
        assert_eq!(kinds.len(), DRAWN.len(), "nobody knows which: {kinds:?}");
    }

    #[test]
    fn hard_cases_shrink_with_the_longest_length() {
        let kinds = |max| {
            let cases = suite(Suite::Hard, max, &[], 1).into_iter().filter(|c| c.suite == Suite::Hard);
            cases.map(|c| (c.name.split(':').next().unwrap_or_default().to_string(), c.seq)).collect::<Vec<_>>()
        };
        for (name, _, lengths, _) in CONTRACT {
            let at_100: Vec<usize> = kinds(100).into_iter().filter(|k| k.0 == name).map(|k| k.1).collect();
            assert!(at_100.first() == lengths.first() && at_100.last() == Some(&100), "{name}: {at_100:?}");
        }
        assert!(kinds(64).iter().all(|k| k.1 <= 64) && kinds(64).len() > CONTRACT.len());
        for seq in [1, 7, 64, 130, 600, 1024, 4096] {
            assert!(kinds(usize::MAX).iter().any(|k| k.1 == seq), "{seq}");
        }
    }

    #[test]
    fn only_the_hard_suite_spares_auto_weights_along_the_activations() {
        let spared =
            |s, precision| suite(s, usize::MAX, &[], 1).into_iter().filter(|c| !c.tried(Some(precision))).count();
        assert_eq!(spared(Suite::Hard, Precision::Auto), 2);
        assert_eq!(spared(Suite::Extreme, Precision::Auto), 0);
        assert_eq!(spared(Suite::Hard, Precision::Exact) + spared(Suite::Hard, Precision::Fast), 0);
        let hard = suite(Suite::Hard, usize::MAX, &[], 1);
        assert_eq!(hard.iter().filter(|c| c.name.starts_with("aligned:") && c.tried(None)).count(), 2);
    }

    #[test]
    fn nobody_knows_the_random_lengths() {
        let lengths = |seed| {
            let cases = suite(Suite::Full, 4096, &[], seed).into_iter().filter(|case| case.name.starts_with("random-"));
            cases.map(|case| case.seq).collect::<Vec<_>>()
        };
        let (one, other) = (lengths(1), lengths(2));
        assert!(one.len() == 3 && one.iter().zip(&other).all(|(a, b)| a != b), "{one:?}, {other:?}");
    }
}
