//! Whatever is wrong with the input, the grader says so in a sentence and with the right exit code.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{candidate, compiled, folder, graded, script, skipped};

#[test]
fn every_bad_input_has_its_exit_code_and_its_words() {
    let folder = folder("bad_input");
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file for the test");
    write("text.so", "this is no library\n");
    write("broken.cu", "extern \"C\" void solve(const float*, float*, const float*, int) { not_declared(); }\n");
    write("baseline.json", "{\"schema\": 1}\n");
    write("base.c", "void solve(const float* x, float* output, const float* weights, int seq_len) {}\n");
    let no_solve = candidate("no_solve", &folder);
    let (object, no_extern) = (path("base.o"), path("no_extern.so"));
    build("CC", "cc", &["-c", &path("base.c"), "-o", &object]);
    build("CXX", "c++", &["-x", "c++", "-shared", "-fPIC", &path("base.c"), "-o", &no_extern]);
    // Neither const nor __restrict__ is part of what is asked for.
    write("no_const.cc", "void solve(float* x, float* output, float* weights, int seq_len) {}\n");
    let no_const = path("no_const.so");
    build("CXX", "c++", &["-shared", "-fPIC", &path("no_const.cc"), "-o", &no_const]);
    let honest = candidate("honest_plain", &folder);
    let data = compiled("data", "int solve = 5;\n", &folder);
    let takes = "const float* x, float* output, const float* weights, int seq_len";
    let half_handle = format!("void solve({takes}) {{}}\nint solve_block_create(void) {{ return 0; }}\n");
    let half_handle = compiled("half_handle", &half_handle, &folder);

    let library = std::fs::read(&honest).expect("the library that was built");
    let changed = |name: &str, bytes: Vec<u8>| {
        std::fs::write(folder.join(name), bytes).expect("a file for the test");
        path(name)
    };
    let patched = |at: usize, to: u8| library.iter().enumerate().map(|(i, &b)| if i == at { to } else { b }).collect();
    // The byte of the ELF header that names the processor, and the one that says 64 bits.
    let arm = changed("arm.so", patched(18, if cfg!(target_arch = "aarch64") { 62 } else { 183 }));
    let narrow = changed("narrow.so", patched(4, 1));
    let half = changed("half.so", library[..library.len() / 2].to_vec());
    let empty = changed("empty.so", Vec::new());

    let (text, broken, missing) = (path("text.so"), path("broken.cu"), path("nothing.so"));
    let here = folder.to_str().expect("a path in UTF-8").to_string();
    let (baseline, absent) = (path("baseline.json"), path("absent.json"));
    let short = ["--device", "cpu", "--suite", "official", "--max-case", "2", "--no-timing"];
    let (pipe, source_pipe) = (path("pipe.so"), path("pipe.cu"));
    assert!(Command::new("mkfifo").args([&pipe, &source_pipe]).status().expect("mkfifo").success());
    let table: [(&[&str], i32, &str); 33] = [
        (&[&missing], 10, "cannot be loaded: No such file"),
        (&[&text], 10, "cannot be loaded: it is no library"),
        (&[&empty], 10, "cannot be loaded: it is no library"),
        (&[&here], 10, "cannot be loaded: Is a directory"),
        (&["/dev/null"], 10, "cannot be loaded: it is a pipe, a device or a socket"),
        (&[&pipe], 10, "cannot be loaded: it is a pipe, a device or a socket"),
        (&[&source_pipe], 10, "cannot be loaded: it is a pipe, a device or a socket"),
        (&[&arm], 10, "cannot be loaded: it is for "),
        (&[&narrow], 10, "cannot be loaded: it is for "),
        (&[&half], 10, "cannot be loaded: the file is cut short"),
        (&[&path("nothing.cu")], 10, "does not exist"),
        (&[&path("base.c")], 10, "only .cu files are compiled here"),
        (&[&object], 10, "cannot be loaded: it is an object file"),
        (&[&no_solve], 10, "has no symbol solve"),
        (&[&no_extern], 10, "declare it extern \"C\""),
        (&[&no_const], 10, "declare it extern \"C\""),
        (&[&honest, "--api", "prepared"], 10, "has no symbol solve_block_create"),
        (&[&half_handle, "--api", "prepared"], 10, "has no symbol solve_block_forward"),
        (&[&half_handle], 13, "it exports a part of a handle only, without solve_block_forward, solve_block_update"),
        (&[&data], 10, "cannot be loaded: solve is no function but data"),
        (&[&honest, "--baseline", &baseline], 2, "is no report"),
        (&[&honest, "--baseline", &absent], 2, "is no report"),
        (&[&honest, "--baseline", &(here.clone() + "/")], 2, "Is a directory"),
        (&[&honest, "--baseline", ".kept"], 2, "\".kept\" is no name"),
        (&[&honest, "--save-baseline", ""], 2, "\"\" is no name"),
        (&[&honest, "--fail-on-regression", "2"], 2, "--baseline"),
        (&[&honest, "--seq", "0"], 2, "is no length"),
        (&[&honest, "--arch", "foo"], 2, "'foo' for '--arch <ARCH>'"),
        (&[&honest, "--timeout", "nan"], 2, "no number of seconds"),
        (&[&honest, "--json", "/nonexistent/report.json"], 2, "cannot be written"),
        (&["--no-such-flag"], 2, "--no-such-flag"),
        (&["doctor", "--no-such-flag"], 2, "Usage: harness/run doctor"),
        (&[&honest], 0, "PASS"),
    ];
    for (arguments, code, words) in table {
        let all: Vec<&str> =
            if code == 2 && arguments.len() == 1 { arguments.to_vec() } else { [arguments, &short].concat() };
        let (got, said) = graded(&all);
        assert!(got == code && said.contains(words), "{all:?}: expected {code} and {words:?}, got {got}:\n{said}");
    }
    let (code, said) = graded(&[&broken, "--device", "cpu", "--no-timing"]);
    assert!(code == 23 && said.contains("needs a GPU") && !said.contains("not_declared"), "{code}:\n{said}");
    nothing_runs(&folder);
}

/// Runs a compiler, the one that this variable names or else this one.
fn build(variable: &str, compiler: &str, arguments: &[&str]) {
    let compiler = std::env::var(variable).unwrap_or_else(|_| compiler.into());
    assert!(Command::new(compiler).args(arguments).status().expect("a compiler").success());
}

/// Not in the words of the runtime, which speak of Rust.
#[test]
fn an_exception_that_nobody_catches_is_called_one() {
    let folder = folder("throws");
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let source = "extern \"C\" void solve(const float*, float*, const float*, int) { throw 1; }\n";
    std::fs::write(path("throws.cc"), source).expect("a file for the test");
    build("CXX", "c++", &["-shared", "-fPIC", &path("throws.cc"), "-o", &path("throws.so")]);
    let (code, said) = graded(&[&path("throws.so"), "--device", "cpu", "--suite", "official", "--no-timing"]);
    assert!(code == 11 && said.contains("SIGABRT (it gave up); a C++ exception left it"), "{code}:\n{said}");
    assert!(!said.contains("Rust"), "{said}");
}

/// All have passed by then, and the others are still compared.
#[test]
fn whoever_fails_in_a_comparison_is_named() {
    let folder = folder("compared");
    let honest = candidate("honest_plain", &folder);
    let other = folder.join("other.so");
    std::fs::copy(&honest, &other).expect("another honest one");
    let other = other.to_str().expect("a path in UTF-8");
    let (late, beside) = (folder.join("late.so"), folder.join("late.c"));
    let source = "#include <stdlib.h>\n#include \"candidate.h\"\nvoid solve(const float* x, float* output, const float* weights, int seq_len) {\n\
        static int calls; if (calls++ == 0 && seq_len == 3) abort(); honest_block(x, output, weights, seq_len); }\n";
    std::fs::write(&beside, source).expect("a file for the test");
    let common = Path::new(env!("CARGO_MANIFEST_DIR")).join("redteam/common");
    let [include, block] = [format!("-I{}", common.display()), common.join("honest.c").display().to_string()];
    let late = late.to_str().expect("a path in UTF-8");
    build("CC", "cc", &["-O3", "-shared", "-fPIC", &include, &beside.display().to_string(), &block, "-o", late, "-lm"]);
    let short =
        ["--device", "cpu", "--suite", "official", "--max-case", "1", "--seq", "3", "--quick", "--weights", "fresh"];
    let (code, said) = graded(&[&[honest.as_str(), late, other], &short[..]].concat());
    assert!(code == 11 && said.contains("late.so: killed by SIGABRT"), "{code}:\n{said}");
    assert!(said.contains("not compared: late.so has failed"), "{said}");
    let compared: Vec<&str> = said.lines().filter(|line| line.contains(" of its time [")).collect();
    assert!(matches!(compared[..], [line] if line.contains("other.so is ")), "{said}");
    // There is nobody else to compare with.
    let (code, said) = graded(&[&[late, honest.as_str()], &short[..]].concat());
    assert!(code == 11 && said.contains("late.so: killed by SIGABRT") && !said.contains(" of its time ["), "{said}");
}

/// Those who have failed before, too.
#[test]
fn whoever_is_not_compared_is_named() {
    let folder = folder("left_out");
    let [honest, idle] = ["honest_plain", "no_op"].map(|name| candidate(name, &folder));
    let short = ["--device", "cpu", "--suite", "official", "--max-case", "1", "--seq", "3", "--quick"];
    let (code, said) = graded(&[&[idle.as_str(), honest.as_str()], &short[..]].concat());
    assert!(code == 13 && said.contains("not compared: no_op.so has failed"), "{code}:\n{said}");
    // Not where there is nobody to be compared with, or nothing.
    for others in [&[idle.as_str()][..], &[idle.as_str(), &honest, "--no-timing"]] {
        let (_, said) = graded(&[others, &short[..]].concat());
        assert!(!said.contains("not compared"), "{others:?}:\n{said}");
    }
}

/// Not in the middle of a call.
#[test]
fn a_process_that_ends_while_it_loads_is_said_to() {
    let folder = folder("leaves");
    let source = "#include <unistd.h>\n__attribute__((constructor)) static void leave(void) { _exit(3); }\nvoid solve(void) {}\n";
    let (code, said) = graded(&[&compiled("leaves", source, &folder), "--device", "cpu", "--no-timing"]);
    assert!(code == 11 && said.contains("left with exit status 3 while the library was loaded"), "{code}:\n{said}");
}

/// As it was given.
#[test]
fn a_time_limit_is_told_with_its_fraction() {
    let folder = folder("hangs");
    let hangs = compiled("hangs", "void solve(void) { for (;;) __asm__(\"pause\"); }\n", &folder);
    let (code, said) = graded(&[&hangs, "--device", "cpu", "--suite", "official", "--no-timing", "--timeout", "0.3"]);
    assert!(code == 19 && said.contains("no return within 0.3 s (--timeout allows more, "), "{code}:\n{said}");
}

/// Words of a candidate are no marks in the report, which could hide what is said of the others.
#[test]
fn markdown_shows_the_words_of_a_candidate_as_they_are() {
    let folder = folder("marks");
    let path = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let says = "#include <stdio.h>\n#include <stdlib.h>\nvoid solve(void) { fprintf(stderr, \"<details> **won**\\n\"); abort(); }\n";
    let library = compiled("a_b|c", says, &folder);
    let (code, said) =
        graded(&[&library, "--device", "cpu", "--suite", "official", "--no-timing", "--md", &path("r.md")]);
    let report = std::fs::read_to_string(path("r.md")).expect("a report");
    assert!(code == 11 && said.contains("<details> **won**"), "{code}:\n{said}");
    assert!(report.contains(r"## a\_b\|c.so") && report.contains(r"\<details\> \*\*won\*\*"), "{report}");
    assert!(!report.replace(r"\<", "").contains('<'), "{report}");
}

/// What is wrong has a place, the first there is.
#[test]
fn a_failure_says_where() {
    let folder = folder("where");
    let writes_all = "for (int i = 0; i < 768 * seq_len; i++) output[i] = x[i];";
    for (i, (does, code, words)) in [
        ("output[-3] = output[-2] = 1;", 14, "2 floats before output were written, first at output[-3]"),
        ("((float*)x)[768 * seq_len] = 1;", 14, "1 float behind x was written, first at x[768]"),
        ("((float*)weights)[7087872 + 9] = 1;", 14, "1 float behind weights was written, first at weights[7087881]"),
        ("((float*)x)[5] = 9;", 15, "1 float of x was changed, first at row 0 column 5"),
        (
            "((float*)weights)[70] = ((float*)weights)[90] = 9;",
            15,
            "2 floats of weights were changed, first at weights[70]",
        ),
        ("output[7] = 0.0 / 0.0;", 13, "1 of 768 outputs are NaN or infinite, first at row 0 column 7"),
        ("memcpy(output + 8, kept, 16);", 13, "4 of 768 outputs were never written, first at row 0 column 8"),
    ]
    .into_iter()
    .enumerate()
    {
        let source = format!(
            "#include <string.h>\nvoid solve(const float* x, float* output, const float* weights, int seq_len) {{\n\
             float kept[4]; memcpy(kept, output + 8, 16); {writes_all} {does} }}\n"
        );
        let library = compiled(&format!("wrong{i}"), &source, &folder);
        let (got, said) =
            graded(&[&library, "--device", "cpu", "--suite", "official", "--max-case", "1", "--no-timing"]);
        assert!(got == code && said.contains(words), "{does}: expected {code} and {words:?}, got {got}:\n{said}");
    }
}

/// Where nothing is asked for, nothing has passed.
#[test]
fn what_asks_for_nothing_is_no_pass() {
    let table: [(&[&str], &str); 8] = [
        (
            &["redteam", "--device", "cpu", "nosuchname"],
            "\"nosuchname\" is the name of no candidate of the red team for cpu",
        ),
        (&["redteam", "--device", "cpu", "honest_plain", "late_stream"], "\"late_stream\" is the name of no"),
        (&["redteam", "--repeat", "0"], "'--repeat <REPEAT>'"),
        (&["mutants", "typo"], "\"typo\" is the name of no wrong block"),
        (&["selftest", "typo"], "\"typo\" is the name of no wrong block, and of no candidate of the red team"),
        (&["itself", "--repeat", "0"], "'--repeat <REPEAT>'"),
        (&["--max-case", "0", "--no-timing", "--device", "cpu"], "'--max-case <TOKENS>'"),
        (&["run", "--max-case", "0", "--no-timing", "--device", "cpu"], "'--max-case <TOKENS>'"),
    ];
    for (arguments, words) in table {
        let (code, said) = graded(arguments);
        assert!(code == 2 && said.contains(words), "{arguments:?}: {code}:\n{said}");
    }
    if std::path::Path::new("/dev/nvidiactl").exists() {
        skipped("a name that only a machine without a GPU cannot grade: this one has one");
        return;
    }
    let (code, said) = graded(&["selftest", "late_stream"]);
    assert!(code == 2 && said.contains("\"late_stream\" is the name of no"), "{code}:\n{said}");
}

/// What cannot be loaded ends as some candidates should, and as wrong blocks do.
#[test]
fn what_was_never_built_is_no_right_verdict() {
    let folder = folder("never_built");
    let here = folder.to_str().expect("a path in UTF-8").to_string();
    let nowhere = format!("{here}/nowhere");
    for (arguments, missing) in
        [(&["redteam", "--device", "cpu", "no_solve"][..], "no_solve.so"), (&["mutants", "gelu_erf"], "gelu_erf.so")]
    {
        for (built, words) in [(&nowhere, "there is no such folder"), (&here, &*format!("there is no {missing} in it"))]
        {
            let (code, said) = graded(&[arguments, &["--built", built]].concat());
            let words = format!("--built {built}: {words}");
            assert!(code == 2 && said.contains(&words), "{arguments:?}: expected {words:?}, got {code}:\n{said}");
        }
    }
}

#[test]
fn two_reports_without_a_timing_in_common_are_told() {
    let folder = folder("untimed");
    let [honest, json] = [candidate("honest_plain", &folder), folder.join("r.json").display().to_string()];
    let short = ["--device", "cpu", "--suite", "official", "--max-case", "1", "--no-timing", "--json", &json];
    let (code, said) = graded(&[&[honest.as_str()], &short[..]].concat());
    assert_eq!(code, 0, "{said}");
    let nothing = "nothing to compare: the two reports have no timing in common";
    let (code, said) = graded(&["compare", &json, &json]);
    assert!(code == 0 && said.contains(nothing), "{code}:\n{said}");
    let (code, said) = graded(&["compare", &json, &json, "--fail-on-regression", "5"]);
    assert!(code == 2 && said.contains("cannot be answered") && !said.contains(nothing), "{code}:\n{said}");
}

#[test]
fn options_that_would_be_ignored_are_refused_or_told() {
    let folder = folder("ignored");
    let file = folder.join("r").to_str().expect("a path in UTF-8").to_string();
    let table: [(&[&str], &str); 14] = [
        (
            &["a.so", "--no-timing", "--baseline", &file, "--fail-on-regression", "2"],
            "'--no-timing' cannot be used with",
        ),
        (&["a.so", "--gpu-tests", "1,0,2"], "--record"),
        (&["a.so", "--record-to", &file], "--record"),
        (&["a.so", "--peers", &file], "--html <FILE>"),
        (&["a.so", "--device", "cpu", "--peers", &file, "--html", &file], "r: No such file"),
        (&["a.so", "--device", "cpu", "--peers", file!(), "--html", &file], "bad_input.rs: "),
        (&["--record", "--seq", "4"], "cannot be used with '--seq <SEQ>'"),
        (&["--record", "--quick"], "cannot be used with '--quick'"),
        (&["--record", "--precision", "auto"], "cannot be used with '--precision <PRECISION>'"),
        (&["--record", "--device", "cpu", "a.so", "b.so"], "--record takes one library, and there are 2"),
        (&["a.so", "--timeout", "0.01"], "\"0.01\" is no number of seconds from 0.1 to 86400"),
        (&["profile", "a.so", "--json", &file], "unexpected argument '--json'"),
        (&["itself", "a.so", "b.so", "--device", "cpu"], "one library with itself, not a.so with b.so"),
        (&["mutants", "--short"], "unexpected argument '--short'"),
    ];
    for (arguments, words) in table {
        let (code, said) = graded(arguments);
        assert!(code == 2 && said.contains(words), "{arguments:?}: {code}:\n{said}");
    }
    let idle = ["--arch", "sm80", "--copies", "--processes", "2"];
    let (code, said) = graded(&[&["a.so", "--device", "cpu", "--no-timing"], &idle[..]].concat());
    assert!(code == 10 && said.contains("Of no effect on a CPU: --arch, --copies, --processes."), "{code}:\n{said}");
}

/// A report for a pipe comes once, whole.
#[test]
fn a_report_goes_down_a_pipe() {
    let honest = candidate("honest_plain", &folder("piped"));
    let short = ["--device", "cpu", "--suite", "official", "--max-case", "2", "--no-timing", "--json", "/dev/fd/1"];
    let (code, said) = graded(&[&[honest.as_str()], &short[..]].concat());
    let report = said.split_once("\n{").map(|(_, rest)| format!("{{{rest}")).unwrap_or_default();
    assert!(code == 0 && serde_json::from_str::<serde_json::Value>(&report).is_ok(), "{code}:\n{said}");
}

/// The name of a file is bytes, not text.
#[test]
fn a_name_that_is_no_text_is_as_good_as_another() {
    let folder = folder("no_text");
    let library = folder.join(OsStr::from_bytes(b"x\xff.so"));
    std::fs::rename(candidate("honest_plain", &folder), &library).expect("a name in bytes");
    let mut grader = Command::new(env!("CARGO_BIN_EXE_harness"));
    grader.arg(&library).args(["--device", "cpu", "--suite", "official", "--max-case", "2", "--no-timing"]);
    let output = grader.output().expect("the grader starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("PASS"), "{said}");
    let output = grader.args(["--api", "prepared"]).output().expect("the grader starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(10) && said.contains(r"/x\xff.so' --device cpu"), "{said}");
}

/// A reader that goes is no error of the grader's; a disk without room is told.
#[test]
fn output_that_nobody_takes_ends_the_grader_quietly() {
    let folder = folder("unread");
    let honest = candidate("honest_plain", &folder);
    let mut grader = Command::new(env!("CARGO_BIN_EXE_harness"));
    grader.args([&honest, "--device", "cpu", "--suite", "official", "--max-case", "2", "--no-timing"]);
    grader.env("TMPDIR", &folder).stderr(Stdio::piped());
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
    let (reader, gone) = std::io::pipe().expect("a pipe");
    drop(reader);
    for (stdout, code, words) in [(Stdio::from(gone), 141, ""), (full.into(), 2, "cannot be written: No space")] {
        let output = grader.stdout(stdout).output().expect("the grader starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words) && said.is_empty() == words.is_empty(), "{said}");
        assert_eq!(output.status.code(), Some(code), "{said}");
        let left: Vec<_> = std::fs::read_dir(&folder).expect("the folder").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["honest_plain.so"]);
    }
    nothing_runs(&folder);
}

/// No process has a library of this folder loaded.
fn nothing_runs(folder: &Path) {
    assert_eq!(running(folder), 0, "processes still run");
}

/// Processes that have a library of this folder loaded.
fn running(folder: &Path) -> usize {
    let folder = folder.to_str().expect("a path in UTF-8");
    let entries = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    entries
        .filter(|entry| std::fs::read_to_string(entry.path().join("maps")).is_ok_and(|maps| maps.contains(folder)))
        .count()
}

/// The number of a process that comes to be written into a file.
fn number_in(file: &Path) -> u32 {
    let start = Instant::now();
    loop {
        if let Some(line) = std::fs::read_to_string(file).ok().filter(|text| text.ends_with('\n')) {
            return line.trim().parse().expect("a number");
        }
        assert!(start.elapsed().as_secs() < 60, "nothing was written into {}", file.display());
        sleep(Duration::from_millis(20));
    }
}

/// Is this a process that has not ended?
fn runs(process: u32) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_ok()
}

fn send(signal: &str, process: u32) {
    let sent = Command::new("kill").args(["-s", signal, &process.to_string()]).status();
    assert!(sent.expect("kill").success(), "SIG{signal} to {process}");
}

/// Daemons that outlive the candidate's process, one of which holds the grader's pipes and its channel open.
#[test]
fn what_a_candidate_leaves_behind_is_ended() {
    let folder = folder("left_behind");
    for (name, code) in [("late_daemon", 17), ("exit_with_heir", 11)] {
        let daemon = candidate(name, &folder);
        let start = std::time::Instant::now();
        let arguments = ["--device", "cpu", "--suite", "official", "--max-case", "16", "--no-timing"];
        let (got, said) = graded(&[&[daemon.as_str()], &arguments[..]].concat());
        assert_eq!(got, code, "{name}:\n{said}");
        assert!(start.elapsed().as_secs() < 30, "{name} was waited for");
        nothing_runs(&folder);
    }
}

/// Each way to another process's memory by a child of its own, so that one candidate tries them all.
#[test]
fn whoever_reaches_for_memory_by_a_number_is_ended() {
    let source = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <sys/ptrace.h>\n#include <sys/uio.h>\n\
        #include <sys/wait.h>\n#include <unistd.h>\n\
        void solve(const float* x, float* output, const float* weights, int seq_len) {\n\
          char seen[8];\n\
          struct iovec here = {seen, sizeof seen};\n\
          pid_t grader = getppid();\n\
          for (int way = 0; way < 3; way++) {\n\
            int status = 0;\n\
            pid_t child = fork();\n\
            if (!child) {\n\
              if (way == 0) process_vm_readv(grader, &here, 1, &here, 1, 0);\n\
              if (way == 1) process_vm_writev(grader, &here, 1, &here, 1, 0);\n\
              if (way == 2) ptrace(PTRACE_TRACEME, 0, 0, 0);\n\
              _exit(0);\n\
            }\n\
            waitpid(child, &status, 0);\n\
            printf(\"way %d: %d\\n\", way, WIFSIGNALED(status) ? WTERMSIG(status) : 0);\n\
          }\n\
          fflush(stdout);\n\
        }\n";
    let library = compiled("reaches", source, &folder("reaches"));
    let (code, said) = graded(&[&library, "--device", "cpu", "--suite", "official", "--max-case", "1", "--no-timing"]);
    for way in 0..3 {
        let ended = format!("it printed: way {way}: {}\n", libc::SIGSYS);
        assert!(code == 13 && said.contains(&ended), "{code}:\n{said}");
    }
}

/// A folder for compiled candidates is made only where there is something to compile.
#[test]
fn a_library_needs_no_temporary_folder() {
    let honest = candidate("honest_plain", &folder("no_temporary"));
    let mut grader = Command::new(env!("CARGO_BIN_EXE_harness"));
    grader.arg(&honest).args(["--device", "cpu", "--suite", "official", "--max-case", "2", "--no-timing"]);
    let output = grader.env("TMPDIR", "/proc/nowhere").output().expect("the grader starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("PASS"), "{said}");
}

/// An interrupt ends the compiler, too, and takes the folder away that it writes into.
#[test]
fn an_interrupt_ends_the_compiler() {
    let folder = folder("interrupted_compiler");
    let (temporary, cc) = (folder.join("temporary"), folder.join("cc"));
    std::fs::create_dir_all(&temporary).expect("a folder for the test");
    script(&cc, &format!("echo $$ >'{}'\nexec sleep 600", folder.join("compiler").display()));
    let mut grader = Command::new(env!("CARGO_BIN_EXE_harness"));
    grader.args(["redteam", "--device", "cpu", "honest_plain"]).env("TMPDIR", &temporary).env("CC", &cc);
    let mut grader = grader.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the grader starts");
    let compiler = number_in(&folder.join("compiler"));
    assert_eq!(std::fs::read_dir(&temporary).expect("the folder").count(), 1);
    send("TERM", grader.id());
    assert_eq!(grader.wait().expect("the grader ends").code(), Some(143));
    assert!(!runs(compiler), "the compiler still runs");
    assert_eq!(std::fs::read_dir(&temporary).expect("the folder").count(), 0);
}

/// A shell that becomes the grader leaves it children that are no candidate's: they go on, as busy as they are, and so do theirs when they end.
#[test]
fn children_of_a_shell_that_became_the_grader_are_let_alone() {
    let folder = folder("given");
    let file = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_string();
    let honest = candidate("honest_plain", &folder);
    let hang = compiled("hang", "#include <unistd.h>\nvoid solve(void) { for (;;) pause(); }\n", &folder);
    let (child, orphan) = (file("child"), file("orphan"));
    let start = format!(
        "yes >/dev/null & echo $! >'{child}'\n\
         {{ sleep 0.3; sleep 600 >/dev/null 2>&1 & echo $! >'{orphan}'; }} &\n\
         exec \"$0\" \"$@\" --device cpu --suite official --max-case 16 --no-timing"
    );
    for (library, code) in [(&honest, 0), (&hang, 143)] {
        let mut grader = Command::new("sh");
        grader.args(["-c", &start, env!("CARGO_BIN_EXE_harness"), library]);
        let mut grader = grader.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the grader starts");
        let left = [number_in(Path::new(&child)), number_in(Path::new(&orphan))];
        if code == 143 {
            send("TERM", grader.id());
        }
        let got = grader.wait().expect("the grader ends").code();
        let alive = left.map(runs);
        left.into_iter().filter(|&process| runs(process)).for_each(|process| send("KILL", process));
        // An interrupt cannot tell an orphan from what a compiler leaves behind.
        assert!(got == Some(code) && alive[0] && (alive[1] || code == 143), "{library}: {got:?}, {alive:?}");
        for file in [&child, &orphan] {
            std::fs::remove_file(file).expect("the file of a number");
        }
    }
    nothing_runs(&folder);
}

/// Whoever interrupts the grader leaves neither a hanging candidate behind nor what that has started.
#[test]
fn an_interrupt_ends_the_candidate_and_its_daemons() {
    let folder = folder("interrupted");
    let temporary = folder.join("temporary");
    std::fs::create_dir_all(&temporary).expect("a folder for the test");
    let source = "#include <unistd.h>\n\
        void solve(const float* x, float* output, const float* weights, int seq_len) {\n\
          if (fork() == 0 && setsid() && fork() == 0) for (;;) pause();\n\
          for (;;) pause();\n\
        }\n";
    let library = compiled("hang_with_daemon", source, &folder);

    for (signal, code) in [("INT", 130), ("QUIT", 131), ("TERM", 143)] {
        let mut grader = Command::new(env!("CARGO_BIN_EXE_harness"));
        grader.arg(&library).args(["--device", "cpu", "--suite", "official", "--max-case", "2", "--no-timing"]);
        grader.env("TMPDIR", &temporary);
        // A shell ignores SIGINT and SIGQUIT for what it runs in the background, and the grader leaves it at that.
        // SAFETY: signal() may be called between fork and exec.
        unsafe {
            grader.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                libc::signal(libc::SIGQUIT, libc::SIG_DFL);
                Ok(())
            })
        };
        let mut grader = grader.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the grader starts");
        let start = Instant::now();
        while running(&folder) < 3 {
            assert!(start.elapsed().as_secs() < 60, "the candidate and its daemon did not start");
            sleep(Duration::from_millis(20));
        }
        send(signal, grader.id());
        let status = grader.wait().expect("the grader ends");
        assert_eq!(status.code(), Some(code), "after SIG{signal}");
        nothing_runs(&folder);
        assert_eq!(std::fs::read_dir(&temporary).expect("the folder").count(), 0, "left after SIG{signal}");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_unfit_environment() {
    if std::path::Path::new("/dev/nvidia0").exists() {
        skipped("a GPU that is not there: this machine has one");
        return;
    }
    for arguments in [&["nothing.so", "--device", "cuda"][..], &["redteam", "--device", "cuda", "no_op"]] {
        let (code, said) = graded(arguments);
        assert!(code == 23 && (said.contains("no NVIDIA driver") || said.contains("CUDA_ERROR")), "{code}:\n{said}");
        assert!(!said.contains("redteam/build"), "nothing is compiled: {said}");
    }
}
