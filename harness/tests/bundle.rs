//! What `run-all` of a bundle makes of its parts, with programs that only say what they were called with.

mod common;

use std::path::Path;
use std::process::Command;

use common::{folder, program, script};

#[test]
fn gpu_tests_that_break_off_have_failed() {
    let root = folder("bundle");
    program(&Path::new(env!("CARGO_MANIFEST_DIR")).join("run-all"), &root.join("run-all"));
    for driver in ["c/linked", "c/loaded"] {
        script(&root.join(driver), "");
    }
    script(&root.join("harness"), "echo PASS: $*");
    for (tests, told, code) in [
        ("echo 'test result: ok. 5 passed; 0 failed; 0 ignored'", "5,0", 0),
        ("echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored'; exit 101", "3,2", 1),
        ("echo 'test first ... ok'; kill -s SEGV $$", "0,1", 1),
        ("echo 'test first ... ok'; exit 124", "0,1", 1),
    ] {
        script(&root.join("tests/gpu"), tests);
        let output = Command::new(root.join("run-all")).arg(root.join("out")).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&format!("--gpu-tests {told} ")), "{tests}:\n{said}");
        assert_eq!(output.status.code(), Some(code), "{tests}:\n{said}");
    }
}
