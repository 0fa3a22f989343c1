//! Landlock's scope for signals (Linux 6.12): a candidate's process and what it starts signal each other, and nobody else. What the filter
//! cannot tell, whose number a number is, the kernel then does.

use libc::{c_int, c_long, c_uint};

/// `struct landlock_ruleset_attr` (linux/landlock.h). Files and the network are nobody's business here.
#[repr(C)]
struct Ruleset {
    files: u64,
    network: u64,
    scoped: u64,
}

const VERSION: c_uint = 1;
const SIGNAL: u64 = 1 << 1;
/// The first version that has scopes.
const WITH_SCOPES: c_long = 6;

/// Whether this kernel has it.
pub fn available() -> bool {
    let nothing = std::ptr::null::<Ruleset>();
    // SAFETY: asks for a number, and passes none of ours.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, VERSION) >= WITH_SCOPES }
}

/// Begins the scope. Returns whether there is one; it takes a process that cannot gain privileges.
pub fn begin() -> bool {
    if !available() {
        return false;
    }
    let rules = Ruleset { files: 0, network: 0, scoped: SIGNAL };
    // SAFETY: a local, of the size that we say.
    let made = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const rules, size_of::<Ruleset>(), 0) };
    let Ok(fd @ 0..) = c_int::try_from(made) else { return false };
    // SAFETY: a descriptor of ours, closed once.
    unsafe {
        let begun = libc::syscall(libc::SYS_landlock_restrict_self, fd, 0) == 0;
        libc::close(fd);
        begun
    }
}
