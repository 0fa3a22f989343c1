//! The grader graded on the CPU: cheats caught with the right exit code, honest candidates accepted, wrong blocks killed.

mod common;

use common::graded;

/// One after the other: some verdicts rest on times, and two graders at once would disturb each other.
#[test]
fn the_grader_judges_rightly() {
    for arguments in [&["mutants"][..], &["redteam", "--device", "cpu"]] {
        let (code, said) = graded(arguments);
        assert_eq!(code, 0, "{said}");
        println!("{said}");
    }
}
