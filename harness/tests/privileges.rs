//! What a candidate can do to the machine and to the grader where both run as root.

mod common;

use std::process::Command;

use common::{compiled, folder, graded, skipped};

/// Opened for writing, and left as they are.
const SOURCE: &str = "#include <fcntl.h>\n#include <stdio.h>\n#include <unistd.h>\n\
    static void try(const char* path) { printf(\"%s: %s\\n\", path, open(path, O_WRONLY) < 0 ? \"closed\" : \"open\"); }\n\
    void solve(const float* x, float* output, const float* weights, int seq_len) {\n\
      char path[64];\n\
      snprintf(path, sizeof path, \"/proc/%d/oom_score_adj\", getppid());\n\
      try(path);\n\
      try(\"/proc/sys/kernel/core_pattern\");\n\
      try(\"/sys/kernel/mm/ksm/run\");\n\
      try(\"/proc/self/oom_score_adj\");\n\
      fflush(stdout);\n\
    }\n";

fn may_mount() -> bool {
    let unshared = Command::new("unshare").args(["--mount", "true"]).output();
    unshared.is_ok_and(|output| output.status.success())
}

#[test]
fn a_root_that_is_a_candidate_changes_no_setting_of_the_kernel_and_nothing_of_the_grader() {
    if !may_mount() {
        return skipped("settings of the kernel: nobody may mount here");
    }
    let library = compiled("settings", SOURCE, &folder("settings"));
    let (code, said) = graded(&[&library, "--device", "cpu", "--suite", "official", "--max-case", "1", "--no-timing"]);
    let printed: Vec<&str> = said.lines().filter_map(|line| line.trim().strip_prefix("it printed: ")).collect();
    assert!(code == 13 && printed.len() == 4, "{code}:\n{said}");
    assert!(printed[..3].iter().all(|line| line.ends_with(": closed")), "{printed:?}");
    assert_eq!(printed[3], "/proc/self/oom_score_adj: open");
}

/// Whoever starts the grader: to read any file and to lock memory is all that is left of root's rights, and nothing that is executed later has more.
#[test]
fn a_candidate_keeps_no_rights_but_to_read_files_and_to_lock_memory() {
    // Five lines, which is what a report has of them: the ambient set is part of the inheritable one.
    let source = "#include <stdio.h>\n#include <string.h>\n\
        void solve(const float* x, float* output, const float* weights, int seq_len) {\n\
          char line[256];\n\
          FILE* status = fopen(\"/proc/self/status\", \"r\");\n\
          while (status && fgets(line, sizeof line, status))\n\
            if ((!strncmp(line, \"Cap\", 3) && line[3] != 'A') || !strncmp(line, \"NoNewPrivs\", 10)) fputs(line, stdout);\n\
          fflush(stdout);\n\
        }\n";
    let library = compiled("rights", source, &folder("rights"));
    let (code, said) = graded(&[&library, "--device", "cpu", "--suite", "official", "--max-case", "1", "--no-timing"]);
    assert_eq!(code, 13, "{said}");
    let number = |name: &str| {
        let (_, rest) = said.split_once(&format!("it printed: {name}:")).unwrap_or_else(|| panic!("{name}:\n{said}"));
        rest.lines().next().and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).expect("a number")
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd"] {
        // Nobody but root can take anything out of what may be gained by executing; whoever it is, nothing is gained.
        let left = if set == "CapBnd" && !is_root() { 0 } else { number(set) };
        assert_eq!(left & !(1 << 2 | 1 << 14), 0, "{set}: {left:#x}");
    }
    assert_eq!(number("NoNewPrivs"), 1);
}

fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}
