//! include/solve.h is what the sources say.

use std::fs;
use std::path::Path;

#[test]
fn the_committed_header_is_the_generated_one() {
    let generated = fs::read_to_string(env!("SOLVE_HEADER")).expect("the build wrote a header");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/solve.h");
    if std::env::var_os("SOLVE_BLESS").is_some() {
        fs::write(&path, &generated).expect("include/ is writable");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == generated, "include/solve.h is stale; run: SOLVE_BLESS=1 cargo test --test header");
}
