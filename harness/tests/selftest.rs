//! The grader graded on the CPU: cheats caught with the right exit code, honest candidates accepted, wrong blocks killed.

mod common;

use common::graded;

#[test]
fn the_red_team_is_judged_rightly() {
    let (code, said) = graded(&["redteam", "--device", "cpu"]);
    assert_eq!(code, 0, "{said}");
    println!("{said}");
}

#[test]
fn the_suite_kills_every_wrong_block() {
    let (code, said) = graded(&["mutants"]);
    assert_eq!(code, 0, "{said}");
    println!("{said}");
}
