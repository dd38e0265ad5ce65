//! Waiting where the kernel's newer calls are forbidden, as in some containers.

use detshare_board::{Class, LONGEST_WAIT, Tenant, TenantView, Waited, wait};
use rustix::thread::gettid;
use std::sync::mpsc;
use std::time::Instant;

/// `futex_waitv`, which sleeps on several words at once.
const WAIT_FOR_SEVERAL: u32 = 449;

/// From now on the call fails in this thread as it does where a container's filter does not know it.
fn forbid(call: u32) {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).expect("a few bits"), jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let is = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let end = libc::BPF_RET | libc::BPF_K;
    let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    // The number of the call is the first word that the filter sees.
    let mut filter =
        [step(load, 0, 0, 0), step(is, 0, 1, call), step(end, 0, 0, refusal), step(end, 0, 0, libc::SECCOMP_RET_ALLOW)];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: numbers only.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(bound, 0);
    // SAFETY: the program and its steps are there while the kernel copies them.
    let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(filtered, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn who_may_not_sleep_on_several_words_sleeps_on_one() {
    let tenants = [Class::Latency, Class::BestEffort].map(|class| Tenant::create(class).expect("a group"));
    let views = tenants.each_ref().map(|tenant| TenantView::map(tenant.file()).expect("mapped"));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            forbid(WAIT_FOR_SEVERAL);
            let words = views.each_ref().map(|view| view.watch(view.step()));
            tell.send(gettid().as_raw_nonzero()).expect("the test listens");
            let mut begun = Instant::now();
            while wait(&words, LONGEST_WAIT) == Waited::Over {
                assert!(begun.elapsed() >= LONGEST_WAIT, "it has given up");
                begun = Instant::now();
            }
        });
        let thread = told.recv().expect("it begins");
        // Either it sleeps, or it has given up.
        let state = || std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
        while !waiter.is_finished() && !state().contains(") S ") {
            std::thread::yield_now();
        }
        // The one that it does not sleep on.
        tenants[1].launch();
        waiter.join().expect("it sees the change");
    });
}
