//! The grader graded on the CPU: cheats caught with the right exit code, honest candidates accepted, wrong blocks killed.

mod common;

use common::{graded, skipped};

/// One after the other: some verdicts rest on times, and two graders at once would disturb each other.
#[test]
fn the_grader_judges_rightly() {
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
