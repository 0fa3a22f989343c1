//! Values of options, from the words on the command line.

use clap::builder::RangedU64ValueParser;

use crate::record::Tests;

/// Lengths of sequences.
#[derive(Clone, Debug)]
pub struct Seqs(pub Vec<usize>);

/// A list or a range of lengths. One that is named twice is measured once: nobody could tell the rows apart.
pub fn seqs(text: &str) -> Result<Seqs, String> {
    let number = |s: &str| match s.trim().parse::<usize>() {
        Ok(n) if (1..=131_072).contains(&n) => Ok(n),
        _ => Err(format!("{s:?} is no length from 1 to 131072")),
    };
    if let [from, to, factor] = text.split(':').collect::<Vec<_>>()[..] {
        let factor = factor.strip_prefix('x').ok_or("a range is FROM:TO:xFACTOR")?;
        let (mut at, to, factor) = (number(from)?, number(to)?, number(factor)?);
        let mut seqs = Vec::new();
        while at <= to && factor > 1 {
            seqs.push(at);
            at *= factor;
        }
        return if seqs.is_empty() { Err("an empty range".into()) } else { Ok(Seqs(seqs)) };
    }
    let mut seqs = Vec::new();
    for seq in text.split(',') {
        let seq = number(seq)?;
        if !seqs.contains(&seq) {
            seqs.push(seq);
        }
    }
    Ok(Seqs(seqs))
}

/// A count of what there is to be.
pub fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// Decimal, or hexadecimal after 0x.
pub fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is no 64-bit number"))
}

/// How long to wait.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s: &f64| (0.1..=86_400.0).contains(s));
    seconds.ok_or_else(|| format!("{text:?} is no number of seconds from 0.1 to 86400"))
}

/// A share.
pub fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|p: &f64| p.is_finite() && *p >= 0.0);
    percent.ok_or_else(|| format!("{text:?} is no percentage from 0 on"))
}

/// The name of a run that is kept, or a path. Without a slash, what begins with a dot would be a file that nobody sees, if any.
pub fn baseline(text: &str) -> Result<String, String> {
    let is_one = text.contains('/') || !(text.is_empty() || text.starts_with('.'));
    if is_one { Ok(text.into()) } else { Err(format!("{text:?} is no name: it is empty or begins with a dot")) }
}

/// How tests went.
pub fn tests(text: &str) -> Result<Tests, String> {
    let counts: Result<Vec<usize>, _> = text.split(',').map(|count| count.trim().parse()).collect();
    match counts.as_deref() {
        Ok(&[passed, failed]) => Ok(Tests { passed, failed, ignored: None }),
        Ok(&[passed, failed, ignored]) => Ok(Tests { passed, failed, ignored: Some(ignored) }),
        _ => Err(format!("{text:?} is not PASSED,FAILED or PASSED,FAILED,IGNORED")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_parse() {
        assert_eq!(seqs("1,16,1024").unwrap().0, [1, 16, 1024]);
        assert_eq!(seqs("32,16, 32,8,16").unwrap().0, [32, 16, 8]);
        assert_eq!(seqs("128:1024:x2").unwrap().0, [128, 256, 512, 1024]);
        for bad in ["", "0", "a", "1:2", "4:2:x2", "1:8:x1", "1:8:2", "-1", "999999999"] {
            assert!(seqs(bad).is_err(), "{bad}");
        }
        assert_eq!(seed("0xff"), Ok(255));
        assert_eq!([percent("0"), percent("2.5")], [Ok(0.0), Ok(2.5)]);
        assert_eq!(seconds("0.5"), Ok(0.5));
        for bad in ["0", "0.01", "1e6"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        for bad in ["nan", "inf", "-1", "", "1%"] {
            assert!(percent(bad).is_err() && seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_baseline_has_a_name() {
        for good in ["kept", "kept.json", "v1.2", "./.kept", "../kept.json", "/tmp/"] {
            assert_eq!(baseline(good).as_deref(), Ok(good));
        }
        for bad in ["", ".", "..", ".kept", ".json"] {
            assert!(baseline(bad).is_err_and(|words| words.contains(&format!("{bad:?} is no name"))), "{bad}");
        }
    }

    #[test]
    fn results_of_tests_parse() {
        assert_eq!(tests("138, 2"), Ok(Tests { passed: 138, failed: 2, ignored: None }));
        assert_eq!(tests("138,2,0"), Ok(Tests { passed: 138, failed: 2, ignored: Some(0) }));
        for bad in ["", "138", "138,", "a,2", "-1,2", "1,2,", "1,2,a", "1,2,3,4"] {
            assert!(tests(bad).is_err(), "{bad}");
        }
    }
}
