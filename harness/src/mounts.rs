//! What a candidate's process sees of /proc and /sys where the grader is root: settings of the kernel are for reading only, and processes that it did not
//! start are not there. A root without capabilities still owns these files, among them what makes the kernel end the grader first. Where the kernel lets
//! nobody mount, as in most containers, everything stays as it is.

use std::ffi::{CStr, c_ulong};
use std::ptr::null;

/// Below /proc, as containers have it.
const SETTINGS: [&CStr; 5] = [c"/proc/sys", c"/proc/sysrq-trigger", c"/proc/irq", c"/proc/bus", c"/proc/fs"];
/// Threads of the grader have numbers there, too, and it is nobody's child who could be told apart by its group.
const HIDDEN: &CStr = c"hidepid=ptraceable";
/// Mounted below /proc by most systems; nothing else may be hidden by another /proc, such as a container's own word on its GPUs.
const USUAL: &str = "/proc/sys/fs/binfmt_misc";

/// `struct mount_attr` (linux/mount.h).
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const READ_ONLY: u64 = 1;
const AT_RECURSIVE: libc::c_int = 0x8000;

/// In a candidate's process, while it has the rights: another view of both, for it and what it starts.
pub fn narrow() {
    // SAFETY: of this process alone, which has no threads yet.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 || !mount(None, c"/", libc::MS_REC | libc::MS_SLAVE) {
        return;
    }
    if std::fs::read_to_string("/proc/self/mountinfo").is_ok_and(|table| is_plain(&table)) {
        hide_processes();
    }
    for path in SETTINGS {
        if mount(Some(path), path, libc::MS_BIND | libc::MS_REC) {
            make_read_only(path);
        }
    }
    make_read_only(c"/sys");
}

/// Whether nothing of its own is mounted below /proc.
fn is_plain(table: &str) -> bool {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| point.starts_with("/proc/")).all(|point| point == USUAL)
}

fn mount(from: Option<&CStr>, to: &CStr, flags: c_ulong) -> bool {
    // SAFETY: terminated texts, or nothing where the flags ask for nothing.
    unsafe { libc::mount(from.map_or(null(), CStr::as_ptr), to.as_ptr(), null(), flags, null()) == 0 }
}

fn hide_processes() {
    let (proc, flags) = (c"proc".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
    // SAFETY: terminated texts.
    unsafe { libc::mount(proc, c"/proc".as_ptr(), proc, flags, HIDDEN.as_ptr().cast()) };
}

fn make_read_only(path: &CStr) {
    let mut wanted = Attributes { set: READ_ONLY, clear: 0, propagation: 0, user_namespace: 0 };
    let (path, size) = (path.as_ptr(), size_of::<Attributes>());
    // SAFETY: a terminated text, and a local of the size that we say.
    unsafe { libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, path, AT_RECURSIVE, &raw mut wanted, size) };
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn a_proc_that_somebody_mounted_into_is_left() {
        let table =
            |more: &str| format!("22 27 0:21 / /proc rw - proc proc rw\n23 27 0:22 / /sys rw - sysfs sysfs rw\n{more}");
        assert!(
            is_plain(&table(""))
                && is_plain(&table("31 22 0:28 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n"))
        );
        assert!(!is_plain(&table("31 22 0:28 / /proc/driver/nvidia rw - tmpfs tmpfs rw\n")));
    }
}
