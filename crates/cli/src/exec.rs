//! Becoming another program.
//!
//! With our process it takes over our number, terminal, standard streams, process group, limits and signal mask, and
//! whoever started us waits for it. Signals that were ignored stay so: one of them, `SIGPIPE`, Rust changes before
//! `main`, so it is looked at before that.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether whoever started us had `SIGPIPE` ignored.
static IGNORED_BROKEN_PIPES: AtomicBool = AtomicBool::new(false);

// SAFETY: what stands in this section is a list of functions of this type, which the C library calls one after the other
// before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look_at_broken_pipes;

/// Before `main`, hence with nothing of Rust's runtime.
extern "C" fn look_at_broken_pipes() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the pointer is to memory for one action, and no new action is given.
    let looked = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) };
    if looked == 0 {
        // SAFETY: it was zeroed, which is an action, and then filled by the call.
        let action = unsafe { action.assume_init() };
        IGNORED_BROKEN_PIPES.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
    }
}

/// Becomes that program; returns only if that fails.
pub(crate) fn become_program(command: &mut Command) -> std::io::Error {
    // SAFETY: the closure makes one system call that is allowed between fork and exec; here it is this very process.
    unsafe { command.pre_exec(restore_broken_pipes) };
    command.exec()
}

fn restore_broken_pipes() -> std::io::Result<()> {
    if IGNORED_BROKEN_PIPES.load(Ordering::Relaxed) {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
    Ok(())
}
