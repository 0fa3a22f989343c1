//! Which file is loaded: the one that was named, by that name, as it was before anything ran.

mod common;

use std::os::unix::fs::symlink;
use std::process::Command;

use common::{candidate, compiled, folder, graded};

const SHORT: [&str; 7] = ["--device", "cpu", "--suite", "official", "--max-case", "2", "--no-timing"];

/// As in a farm of links to packages that lie apart.
#[test]
fn a_library_finds_others_beside_its_link() {
    let folder = folder("farm");
    let [apart, view] = ["apart", "view"].map(|name| folder.join(name));
    for made in [&apart, &view] {
        std::fs::create_dir(made).expect("a folder for the test");
    }
    compiled("libbeside", "int beside(void) { return 1; }\n", &view);
    let source = "#include <stdio.h>\nint beside(void);\n\
        void solve(const float* x, float* output, const float* weights, int seq_len) {\n\
          printf(\"beside it: %d\\n\", beside());\n\
          fflush(stdout);\n\
        }\n";
    let file = folder.join("solves.c");
    std::fs::write(&file, source).expect("a file for the test");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN"]).arg(&file).arg("-L").arg(&view).arg("-lbeside");
    assert!(cc.arg("-o").arg(apart.join("solves.so")).status().expect("a C compiler").success());
    let link = view.join("solves.so");
    symlink("../apart/solves.so", &link).expect("a link");

    let (code, said) = graded(&[&[link.to_str().expect("a path in UTF-8")], &SHORT[..]].concat());
    assert!(code == 13 && said.contains("it printed: beside it: 1"), "{code}:\n{said}");
}

/// Whoever is graded first could make the next one slow.
#[test]
fn a_rival_in_whose_place_another_was_put_is_not_loaded() {
    let folder = folder("rival");
    let rival = candidate("honest_plain", &folder);
    let other = compiled("other", "int nothing;\n", &folder);
    let source = format!(
        "#include <stdio.h>\n\
         __attribute__((constructor)) static void swap(void) {{ rename(\"{other}\", \"{rival}\"); }}\n\
         void solve(const float* x, float* output, const float* weights, int seq_len) {{}}\n"
    );
    let first = compiled("swaps", &source, &folder);
    let (code, said) = graded(&[&[first.as_str(), rival.as_str()], &SHORT[..]].concat());
    let words = format!("{rival} cannot be loaded: the file has changed since the start: it is SHA-256 ");
    assert!(code == 13 && said.contains(&words), "{code}:\n{said}");
}
