//! Expected values, computed once and used for every candidate of a run.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cases::{Case, Suite};
use crate::check;
use crate::content::{Base, Content};
use crate::contract::{Beside, Errors, Limits, Precision};
use crate::dims::D;
use crate::inputs::{self, BIASED, CHALLENGE, Flavour};
use crate::oracle::{self, Operands, Rounding};
use crate::rng::Stream;

/// Bases per length: contents that follow each other are of different ones.
const BASES: usize = 2;
/// Rows that are checked of a long sequence, where the machine is too small for all.
const SAMPLED: usize = 160;
/// What timed calls compute on: biases too small to be unusual for a library that looks at the weights.
const TIMED: Flavour = Flavour { bias: 0.02, ..CHALLENGE };
/// Generated contents allow so many times the largest error of TF32 operands.
const GENERATED: f64 = 2.0;
/// Rows that are checked of a content that is used once.
const ANEW_ROWS: usize = 64;
/// Operations that the oracle may spend on one case for every core.
const FLOPS_PER_CORE: f64 = 3e9;

/// The hard suite is the same in every run, down to the rows that are looked at, so that its errors can be compared from one record to the next. Whether a
/// precision keeps its promise there is not for a draw to decide.
const HARD: u64 = 4;

/// All that is known so far.
pub struct Bank {
    stream: Stream,
    weights: HashMap<String, Arc<Vec<f32>>>,
    tf32: HashMap<String, f64>,
    cases: HashMap<(Suite, String), Arc<Content>>,
    beside: HashMap<(Suite, String), Beside>,
    exact: HashMap<String, f64>,
    bases: HashMap<(usize, Option<Precision>), Arc<Vec<Base>>>,
    /// What is asked of the candidate, and held to in all contents that are made from now on.
    pub precision: Option<Precision>,
    drawn: u64,
}

impl Bank {
    /// An empty bank under this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            stream: Stream::new(seed, 1),
            weights: HashMap::new(),
            tf32: HashMap::new(),
            cases: HashMap::new(),
            beside: HashMap::new(),
            exact: HashMap::new(),
            bases: HashMap::new(),
            precision: None,
            drawn: 0,
        }
    }

    /// The rows of a sequence whose expected output is computed: all, or the first, the last, those around
    /// multiples of 64 near the ends, and random ones.
    fn rows(root: Stream, seq: usize) -> Vec<usize> {
        let cores = rayon::current_num_threads() as f64;
        if crate::floor::flops(seq) <= FLOPS_PER_CORE * cores {
            return (0..seq).collect();
        }
        let stream = root.child(seq as u64);
        let mut rows: Vec<usize> = vec![0, 1, 63, 64, 65, 127, 128, 255, 256, 511, 512, 1023, 1024];
        rows.extend([seq - 1, seq - 2, seq - 64, seq - 65, seq / 2]);
        rows.extend((0..SAMPLED as u64).map(|i| stream.below(i, seq)));
        rows.retain(|&r| r < seq);
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// Weights of a flavour and the stream they came from. Cases that differ in x alone share them.
    fn weights(&mut self, flavour: Flavour) -> (Arc<Vec<f32>>, Stream) {
        self.weights_from(flavour, self.stream)
    }

    fn weights_from(&mut self, flavour: Flavour, root: Stream) -> (Arc<Vec<f32>>, Stream) {
        let key = format!("{} {} {} {:?} {}", flavour.bias, flavour.qk, flavour.std, flavour.twist, root.word(0));
        let stream = root.child(2).child(flavour.bias.to_bits() ^ flavour.qk.to_bits().rotate_left(7));
        let drawn = || Arc::new(inputs::weights(flavour, stream));
        (self.weights.entry(key).or_insert_with(drawn).clone(), stream)
    }

    /// The largest error that TF32 operands make on this flavour. Where attention is sharp, one key more or less decides: there it is that of this length.
    fn tf32_error(&mut self, flavour: Flavour, content: &Content) -> f64 {
        let key = if flavour.qk == 1.0 { format!("{flavour:?}") } else { format!("{flavour:?} {}", content.seq) };
        if let Some(&error) = self.tf32.get(&key) {
            return error;
        }
        let rounded = oracle::forward(&content.x, &content.weights, &content.rows, Rounding::Tf32).output;
        let error = rounded.iter().zip(&content.expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        self.tf32.insert(key, error);
        error
    }

    /// A case with its answer.
    pub fn case(&mut self, case: &Case) -> Arc<Content> {
        // The hard suite has inputs of its own in cases that are named as those of others.
        let key = (case.suite, case.name.clone());
        if let Some(content) = self.cases.get(&key) {
            return content.clone();
        }
        let root = if case.suite == Suite::Hard { Stream::new(HARD, 1) } else { self.stream };
        // Of the many lengths of one flavour odd ones have weights of their own: what is kept from one length to another shows.
        let of_weights = if case.flavour == BIASED && case.seq % 2 == 1 { root.child(8) } else { root };
        let (weights, drawn) = self.weights_from(case.flavour, of_weights);
        let stream = root.child(3).child(case.seq as u64);
        let x = inputs::tokens_for(case.flavour, case.seq, drawn, stream);
        // What the challenge itself asks for is checked to the last element.
        let official = case.suite == Suite::Official;
        let rows = if official { (0..case.seq).collect() } else { Self::rows(root, case.seq) };
        let mut content = Content::new(x, weights, rows);
        if case.slack > 0.0 {
            content.limits = Limits::tolerance(case.slack * self.slack_base(case, &content));
        }
        let content = Arc::new(content);
        self.cases.insert(key, content.clone());
        content
    }

    /// What plain fp32 arithmetic, in the worst of several orders of summation, and TF32 operands make of a case.
    pub fn beside(&mut self, case: &Case, content: &Content) -> Beside {
        let key = (case.suite, case.name.clone());
        if let Some(&beside) = self.beside.get(&key) {
            return beside;
        }
        let x: Vec<f32> = content.rows.iter().flat_map(|&r| &content.x[r * D..(r + 1) * D]).copied().collect();
        let rows: Vec<usize> = (0..content.rows.len()).collect();
        let errors = |got: Vec<f32>| Errors::from(&check::compare(&got, &content.expected, &x, &rows, 0.0));
        let (inputs, weights) = (&content.x, &content.weights);
        let in_order = |operands| errors(oracle::emulate(inputs, weights, &content.rows, operands));
        let fp32 = oracle::ORDERS
            .map(|order| errors(oracle::emulate_in_order(inputs, weights, &content.rows, Operands::Fp32, order)))
            .into_iter()
            .fold(in_order(Operands::Fp32), Errors::worst);
        let beside = Beside { fp32, tf32: in_order(Operands::Tf32) };
        self.beside.insert(key, beside);
        beside
    }

    /// The largest error over the tolerance that exact was seen to make: `of` names the library, its path and the case.
    pub fn exact(&self, of: &str) -> Option<f64> {
        self.exact.get(of).copied()
    }

    /// Keeps it.
    pub fn saw_exact(&mut self, of: String, worst_over_tol: f64) {
        self.exact.insert(of, worst_over_tol);
    }

    /// The error to scale: of the case itself, but for the many biased ones that of one length.
    fn slack_base(&mut self, case: &Case, content: &Content) -> f64 {
        if case.flavour == BIASED { self.biased_error() } else { self.tf32_error(case.flavour, content) }
    }

    /// The largest error of TF32 operands on ordinary inputs with biases.
    fn biased_error(&mut self) -> f64 {
        let (weights, drawn) = self.weights(BIASED);
        if let Some(&error) = self.tf32.get(&format!("{BIASED:?}")) {
            return error;
        }
        let x = inputs::tokens_for(BIASED, 192, drawn, self.stream.child(4));
        self.tf32_error(BIASED, &Content::new(x, weights, (0..192).collect()))
    }

    /// Bases of a length, for contents that have never been seen.
    pub fn bases(&mut self, seq: usize) -> Arc<Vec<Base>> {
        if let Some(bases) = self.bases.get(&(seq, self.precision)) {
            return bases.clone();
        }
        let limits = self.limits();
        let drawn = self.bases.iter().find(|((of, _), _)| *of == seq).map(|(_, bases)| bases.clone());
        let bases = match drawn {
            Some(bases) => bases.iter().cloned().map(|base| base.under(limits)).collect::<Vec<_>>(),
            None => self.draw(seq).into_iter().map(|base| base.under(limits)).collect(),
        };
        let bases = Arc::new(bases);
        self.bases.insert((seq, self.precision), bases.clone());
        bases
    }

    fn draw(&self, seq: usize) -> Vec<Base> {
        let rows = Self::rows(self.stream, seq);
        let stream = self.stream.child(5).child(seq as u64);
        let base = |k: u64| {
            let weights = Arc::new(inputs::weights(TIMED, stream.child(2 * k)));
            let x = inputs::tokens(TIMED, seq, stream.child(2 * k + 1));
            Base::new(x, weights, rows.clone())
        };
        (0..BASES as u64).map(base).collect()
    }

    /// On contents of the timed flavour.
    fn limits(&mut self) -> Limits {
        Limits::of_usual(self.precision, GENERATED * self.biased_error())
    }

    /// Content number `k` that nothing else is made from, but for weights that are given.
    pub fn anew(&mut self, seq: usize, k: u64, weights: Option<Arc<Vec<f32>>>) -> Content {
        self.drawn += 1;
        let stream = self.stream.child(7).child(seq as u64).child(k + 1000 * self.drawn);
        let weights = weights.unwrap_or_else(|| Arc::new(inputs::weights(TIMED, stream.child(0))));
        let rows = Self::drawn_rows(seq, stream.child(2));
        let content = Content::new(inputs::tokens(TIMED, seq, stream.child(1)), weights, rows);
        Content { limits: self.limits(), ..content }
    }

    /// Rows that are checked of a content that is used once: the last one and random ones, all as likely, so that whoever leaves some out is found.
    fn drawn_rows(seq: usize, stream: Stream) -> Vec<usize> {
        let others = stream.permutation(seq - 1).into_iter().map(|row| row as usize);
        let mut rows: Vec<usize> = others.take(ANEW_ROWS - 1).chain([seq - 1]).collect();
        rows.sort_unstable();
        rows
    }

    /// The relative L2 errors of `output - x` that number formats give on short challenge data.
    pub fn formats(&mut self) -> Vec<(&'static str, f64)> {
        let (weights, drawn) = self.weights(BIASED);
        let x = inputs::tokens_for(BIASED, 48, drawn, self.stream.child(6));
        let content = Content::new(x, weights, (0..48).collect());
        let error = |rounding| {
            let got = oracle::forward(&content.x, &content.weights, &content.rows, rounding).output;
            let square = |v: f64| v * v;
            let error: f64 = got.iter().zip(&content.expected).map(|(a, b)| square(a - b)).sum();
            let delta: f64 = content.expected.iter().zip(&content.x).map(|(a, &b)| square(a - f64::from(b))).sum();
            (error / delta).sqrt()
        };
        debug_assert_eq!(content.expected.len(), 48 * D);
        vec![
            ("fp32", error(Rounding::Fp32)),
            ("TF32 or fp16", error(Rounding::Tf32)),
            ("bf16", error(Rounding::Bf16)),
            ("FP8", error(Rounding::Fp8)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_contents_are_held_to_the_precision_that_is_asked_for() {
        let mut bank = Bank::new(1);
        let mut judged = |precision: Option<Precision>, error: f64| {
            bank.precision = precision;
            let contents = [bank.bases(3)[1].fresh(Stream::new(1, 1)), bank.anew(3, 0, None)];
            let verdicts = contents.map(|content| {
                // Both signs, so that the relative error is as large as each one.
                let off = |(i, v): (usize, &f64)| (v + if i % 2 == 0 { error } else { -error }) as f32;
                let got: Vec<f32> = content.expected.iter().enumerate().map(off).collect();
                let x: Vec<f32> = content.rows.iter().flat_map(|&row| content.x[row * D..][..D].to_vec()).collect();
                let rows: Vec<usize> = (0..content.rows.len()).collect();
                content.judge(&check::compare(&got, &content.expected, &x, &rows, content.limits.slack)).is_ok()
            });
            assert_eq!(verdicts[0], verdicts[1], "{precision:?}, {error}");
            verdicts[0]
        };
        use Precision::{Auto, Exact, Fast};
        // What TF32 makes is beyond exact, and what is beyond the tolerance is beyond auto.
        for (error, right) in
            [(1e-7, [true; 4]), (3e-4, [true, true, true, false]), (1.2e-3, [true, true, false, false])]
        {
            for (precision, right) in [None, Some(Fast), Some(Auto), Some(Exact)].into_iter().zip(right) {
                assert_eq!(judged(precision, error), right, "{precision:?}, {error}");
            }
        }
    }

    #[test]
    fn which_rows_of_a_content_are_checked_that_is_used_once_nobody_knows() {
        let mut bank = Bank::new(1);
        for seq in [1, ANEW_ROWS - 1, ANEW_ROWS] {
            assert_eq!(bank.anew(seq, 0, None).rows, (0..seq).collect::<Vec<_>>());
        }
        // Both where all rows could be checked and where they could not.
        for seq in [ANEW_ROWS + 1, 256, 1024] {
            let [one, two] = [0, 1].map(|k| bank.anew(seq, k, None).rows);
            for rows in [&one, &two] {
                assert!(rows.len() == ANEW_ROWS && rows.is_sorted_by(|a, b| a < b) && rows.last() == Some(&(seq - 1)));
            }
            assert!(one != two || seq == ANEW_ROWS + 1, "{seq} tokens");
        }
    }

    /// As when a record takes both suites.
    #[test]
    fn cases_of_one_name_are_different_in_the_hard_suite() {
        let mut bank = Bank::new(1);
        let [full, hard] = [Suite::Full, Suite::Hard].map(|suite| {
            let case = Case { name: "case".into(), seq: 3, flavour: CHALLENGE, suite, slack: 0.0 };
            let content = bank.case(&case);
            (content.x.clone(), bank.beside(&case, &content).fp32.worst_over_tol)
        });
        assert!(full.0 != hard.0 && full.1 != hard.1);
    }

    #[test]
    fn the_hard_suite_is_the_same_under_every_seed() {
        let cores = rayon::current_num_threads() as f64;
        let sampled = (1..).map(|i| 64 * i).find(|&seq| crate::floor::flops(seq) > FLOPS_PER_CORE * cores);
        let of = |suite, seq, seed| {
            let case = Case { name: "case".into(), seq, flavour: CHALLENGE, suite, slack: 0.0 };
            Bank::new(seed).case(&case)
        };
        for seq in [7, sampled.expect("a length of which not all rows are looked at")] {
            let (one, two) = (of(Suite::Hard, seq, 1), of(Suite::Hard, seq, 2));
            assert!(one.x == two.x && one.weights == two.weights && one.rows == two.rows, "{seq} rows");
            let (one, two) = (of(Suite::Full, seq, 1), of(Suite::Full, seq, 2));
            assert!(one.x != two.x && one.weights != two.weights, "{seq} rows");
        }
    }

    fn case_of(flavour: Flavour, suite: Suite, seq: usize) -> Case {
        Case { name: format!("case:{seq}"), seq, flavour, suite, slack: 0.0 }
    }

    #[test]
    fn of_a_long_sequence_both_ends_and_random_rows_are_checked() {
        const LONG: usize = 131_072;
        let [one, two] = [1, 2].map(|seed| Bank::rows(Stream::new(seed, 1), LONG));
        for rows in [&one, &two] {
            assert!([0, 1, 63, 64, 1023, 1024, LONG - 65, LONG - 64, LONG - 1].iter().all(|row| rows.contains(row)));
            assert!(rows.len() > SAMPLED && rows.is_sorted_by(|a, b| a < b) && rows.iter().all(|&row| row < LONG));
        }
        assert!(one != two, "nobody knows which");
    }

    /// With one core, which is too few for all rows of other cases of this length.
    #[test]
    fn the_challenges_cases_are_checked_in_full() {
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let rows = |suite| alone.install(|| Bank::new(1).case(&case_of(CHALLENGE, suite, 256)).rows.len());
        assert!(rows(Suite::Official) == 256 && rows(Suite::Full) < 256);
    }

    #[test]
    fn weights_and_inputs_that_are_to_be_new_are() {
        let mut bank = Bank::new(1);
        let [odd, even, other] = [3, 4, 6].map(|seq| bank.case(&case_of(BIASED, Suite::Full, seq)).weights.clone());
        assert!(odd != even && Arc::ptr_eq(&even, &other));
        let [one, two] = [(); 2].map(|()| bank.anew(2, 0, None));
        assert!(one.x != two.x && one.weights != two.weights);
    }

    /// What a single order of summation makes of a case is a matter of luck.
    #[test]
    fn fp32_is_that_of_the_worst_order() {
        let mut bank = Bank::new(1);
        for seq in 1..=4 {
            let case = case_of(CHALLENGE, Suite::Hard, seq);
            let content = bank.case(&case);
            let Content { x, weights, rows, expected, .. } = &*content;
            let orders = oracle::ORDERS.map(|o| oracle::emulate_in_order(x, weights, rows, Operands::Fp32, o));
            let all = orders.into_iter().chain([oracle::emulate(x, weights, rows, Operands::Fp32)]);
            let errors: Vec<f64> = all.map(|got| check::compare(&got, expected, x, rows, 0.0).max_abs).collect();
            let worst = errors.into_iter().fold(0.0, f64::max);
            assert!(bank.beside(&case, &content).fp32.max_abs > 0.999 * worst, "{seq} tokens");
        }
    }
}
