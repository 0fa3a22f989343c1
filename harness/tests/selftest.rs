//! The grader graded on the CPU: cheats caught with the right exit code, honest candidates accepted, wrong blocks killed.

mod common;

use std::sync::{Mutex, PoisonError};

use common::{compiled, folder, graded, skipped};

/// One after the other: some verdicts rest on times, and two graders at once would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn the_grader_judges_rightly() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    judge(&["redteam", "--device", "cpu"]);
    if std::env::var("SOLVE_SELFTEST").is_ok_and(|v| v == "full") {
        judge(&["mutants"]);
    } else {
        skipped("the wrong blocks (SOLVE_SELFTEST=full grades them, 2 to 3 minutes)");
    }
}

fn judge(arguments: &[&str]) {
    let (code, said) = graded(arguments);
    assert_eq!(code, 0, "{said}");
    println!("{said}");
}

/// A wrong verdict is told, of a candidate that is honest and of a block that makes no difference.
#[test]
fn a_wrong_verdict_fails_the_grader() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder("wrong_verdict");
    for name in ["honest_plain", "control"] {
        compiled(name, "int nothing;\n", &folder);
    }
    let built = folder.to_str().expect("a path in UTF-8");
    for (arguments, words) in [
        (&["redteam", "--device", "cpu", "honest_plain"][..], "0 of 1 verdicts are right"),
        (&["mutants", "control"], "0 of 0 wrong blocks are found wrong; 1 others are equivalent"),
    ] {
        let (code, said) = graded(&[arguments, &["--built", built]].concat());
        assert!(code == 1 && said.contains(words), "{code}:\n{said}");
    }
}
