//! What a candidate's process may ask of the kernel: nothing that reaches for the memory of another process, and signals and limits for itself only, or,
//! where the kernel sees to it (`scope`), signals for what it started, too. The grader's threads have numbers, and as nobody can list those that are still
//! to come, it is listed what may be reached instead. Signals to others fail with EPERM. Nor may it say on which processors the grader runs and how
//! urgently, or start a process that is not below its own.

use libc::{c_long, pid_t, sock_filter};

/// Where a filter finds the call's number, the architecture, and the arguments: of these the low half, which is all that a process's number has.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: [u32; 3] = [16, 24, 32];

const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
const ENDED: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

/// Requests that say whom a file sends its signals to (linux/fcntl.h, asm/sockios.h).
const F_SETOWN: u32 = 8;
const F_SETOWN_EX: u32 = 15;
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn load(offset: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

/// Skips so many statements unless what was loaded is this.
fn unless(k: u32, skip: usize) -> sock_filter {
    sock_filter { jf: skip as u8, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k) }
}

fn answer(k: u32) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, k)
}

/// The answer where what was loaded is one of these.
fn where_it_is(any: &[u32], outcome: u32) -> Vec<sock_filter> {
    any.iter().flat_map(|&k| [unless(k, 1), answer(outcome)]).collect()
}

/// Statements for one call.
fn of(call: c_long, rules: &[sock_filter]) -> Vec<sock_filter> {
    [&[load(NUMBER), unless(call as u32, rules.len())], rules].concat()
}

/// Other numbers of calls than those below: for 32 bits (int 0x80) and for x32.
fn other_doors() -> Vec<sock_filter> {
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    const X32: u32 = 0x4000_0000;
    let if_it_is = sock_filter { jt: 1, ..unless(AUDIT_ARCH_X86_64, 0) };
    let if_below = sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32) };
    vec![load(ARCHITECTURE), if_it_is, answer(ENDED), load(NUMBER), if_below, answer(ENDED)]
}

/// Signals, and limits that end in one. Whoever aims at the grader is ended. Others than itself are for the kernel to judge where signals are `scoped`.
fn signals(own: pid_t, grader: pid_t, group: pid_t, scoped: bool) -> Vec<sock_filter> {
    // A group that began outside of this namespace has no number here: 0.
    let forbidden: Vec<u32> = [grader, -group, -1].into_iter().filter(|&pid| pid != 0).map(|pid| pid as u32).collect();
    let forbidden = [&[load(ARGUMENTS[0])], &where_it_is(&forbidden, ENDED)[..]].concat();
    // Its own group is that of nobody else: it has begun a session.
    let itself = where_it_is(&[own, -own, 0].map(|pid| pid as u32), ALLOWED);
    let only_itself = [&[load(ARGUMENTS[0])], &itself[..], &[answer(REFUSED)]].concat();
    let aimed = [libc::SYS_kill, libc::SYS_tkill, libc::SYS_rt_sigqueueinfo];
    // These name a thread and the process that it must be of.
    let of_a_process = [libc::SYS_tgkill, libc::SYS_rt_tgsigqueueinfo];
    let ended = aimed.into_iter().chain(of_a_process).flat_map(|call| of(call, &forbidden));
    let own_alone = if scoped { &[][..] } else { &aimed[..] };
    let refused = own_alone.iter().chain(&[libc::SYS_prlimit64]).flat_map(|&call| of(call, &only_itself));
    let by_descriptor = if scoped { Vec::new() } else { of(libc::SYS_pidfd_send_signal, &[answer(REFUSED)]) };
    ended.chain(refused).chain(by_descriptor).collect()
}

/// Signals that come of a file. An owner that is not in the argument but behind it cannot be looked at.
fn signals_of_files(own: pid_t) -> Vec<sock_filter> {
    let owner = [&[load(ARGUMENTS[2])], &where_it_is(&[own as u32, 0], ALLOWED)[..], &[answer(REFUSED)]].concat();
    let request = [&[load(ARGUMENTS[1])], &where_it_is(&[F_SETOWN_EX], REFUSED)[..]].concat();
    let control = [&request[..], &[unless(F_SETOWN, owner.len())], &owner].concat();
    let other = [&[load(ARGUMENTS[1])], &where_it_is(&[FIOSETOWN, SIOCSPGRP], REFUSED)[..]].concat();
    [of(libc::SYS_fcntl, &control), of(libc::SYS_ioctl, &other)].concat()
}

/// Where and how urgently a process runs. Pools of threads may say so of their own threads, whose numbers nobody knows beforehand.
fn scheduling(grader: pid_t) -> Vec<sock_filter> {
    // One that began outside of this namespace has no number here: 0, which is the caller.
    let grader: &[u32] = if grader == 0 { &[] } else { &[grader as u32] };
    let aimed = |argument| [&[load(ARGUMENTS[argument])], &where_it_is(grader, ENDED)[..]].concat();
    let calls =
        [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr];
    // Not of groups and users.
    let process = [&aimed(1)[..], &[answer(ALLOWED)]].concat();
    let priority = [&[load(ARGUMENTS[0]), unless(libc::PRIO_PROCESS, process.len())], &process[..]].concat();
    let priority = [&priority[..], &[answer(REFUSED)]].concat();
    calls.into_iter().flat_map(|call| of(call, &aimed(0))).chain(of(libc::SYS_setpriority, &priority)).collect()
}

/// Processes that would not be below the caller. What `clone3` is asked for lies in memory: without it, libraries ask `clone`.
fn heirs() -> Vec<sock_filter> {
    let no_call = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let unless_sibling =
        sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, libc::CLONE_PARENT as u32) };
    let sibling = [load(ARGUMENTS[0]), unless_sibling, answer(REFUSED)];
    let reaper = [&[load(ARGUMENTS[0])], &where_it_is(&[libc::PR_SET_CHILD_SUBREAPER as u32], REFUSED)[..]].concat();
    [of(libc::SYS_clone, &sibling), of(libc::SYS_clone3, &[answer(no_call)]), of(libc::SYS_prctl, &reaper)].concat()
}

/// Memory by a process's number. Some libraries read their own in this way, where an address may be wrong.
fn memory(own: pid_t) -> Vec<sock_filter> {
    let own = [&[load(ARGUMENTS[0])], &where_it_is(&[own as u32], ALLOWED)[..], &[answer(ENDED)]].concat();
    let copies = [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev].into_iter().flat_map(|call| of(call, &own));
    of(libc::SYS_ptrace, &[answer(ENDED)]).into_iter().chain(copies).collect()
}

/// Puts the filter over this process and all that it will start, as the child of the grader. The process cannot gain privileges any more, and its signals
/// may be `scoped` already.
pub fn confine(scoped: bool) {
    // SAFETY: no arguments, and a number.
    let (own, grader, group) = unsafe { (libc::getpid(), libc::getppid(), libc::getpgid(libc::getppid())) };
    let mut filter = if cfg!(target_arch = "x86_64") { other_doors() } else { Vec::new() };
    filter.extend(memory(own));
    // A descriptor of the grader's is refused, not punished: the driver may ask for one of its own.
    filter.extend(of(libc::SYS_pidfd_getfd, &[answer(REFUSED)]));
    filter.extend(signals(own, grader, group, scoped));
    filter.extend(signals_of_files(own));
    filter.extend(scheduling(grader));
    filter.extend(heirs());
    filter.push(answer(ALLOWED));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let filter_mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: the program outlives the call, which copies it.
    unsafe { libc::prctl(libc::PR_SET_SECCOMP, filter_mode, &raw const program) };
}
