//! The tests of a module of the shim, whose library cannot be tested by itself: what a kernel takes, from two events.

#[path = "../src/timing.rs"]
mod timing;

use timing::{Made, Measured, kernel_took};

/// As on an H200: nothing between two events takes so long, and the host so long to make a launch.
const EMPTY: u64 = 1_310;
const HOST: u64 = 3_700;
const KERNEL: u64 = 5_000;

const fn made(was_idle: bool, has_begun: bool, ns: u64) -> Made {
    Made { was_idle, has_begun, ns }
}

const fn sure(ns: u64) -> Measured {
    Measured { ns, is_sure: true }
}

const fn unsure(ns: u64) -> Measured {
    Measured { ns, is_sure: false }
}

#[test]
fn behind_other_work_the_events_themselves_do_not_count() {
    assert_eq!(kernel_took(KERNEL + EMPTY, EMPTY, HOST, made(false, false, HOST)), sure(KERNEL));
}

#[test]
fn where_the_gpu_waited_for_the_host_the_hosts_time_does_not_count() {
    assert_eq!(kernel_took(KERNEL + HOST, EMPTY, HOST, made(true, true, HOST)), sure(KERNEL));
    // What the host sees of the event may come later than the event.
    assert_eq!(kernel_took(KERNEL + HOST, EMPTY, HOST, made(true, false, HOST)), sure(KERNEL));
    let faster_than_the_gpu = made(true, true, 100);
    assert_eq!(kernel_took(KERNEL + EMPTY, EMPTY, HOST, faster_than_the_gpu), sure(KERNEL));
}

#[test]
fn where_it_is_not_known_since_when_the_gpu_waited_a_short_time_is_in_doubt() {
    let between = KERNEL + HOST;
    assert_eq!(kernel_took(between, EMPTY, HOST, made(false, true, HOST)), unsure(between));
    let long = 100 * KERNEL;
    let measured = kernel_took(long + EMPTY, EMPTY, HOST, made(false, true, HOST));
    assert_eq!(measured, sure(long), "it makes no difference to it");
}

/// Interrupted after the launch was there, while the kernel runs already.
#[test]
fn an_interrupted_host_makes_no_kernel_shorter() {
    let between = KERNEL + HOST;
    for interrupted in [HOST / 2, KERNEL, 1_000 * KERNEL, u64::MAX - HOST] {
        let made = made(true, true, HOST + interrupted);
        assert_eq!(kernel_took(between, EMPTY, HOST, made), unsure(between), "{interrupted}");
    }
    assert_eq!(kernel_took(between, EMPTY, 0, made(true, true, HOST)), unsure(between), "nobody knows what is usual");
}

#[test]
fn nothing_is_never_nothing() {
    assert_eq!(kernel_took(0, 0, 0, made(false, false, 0)), unsure(1));
    assert_eq!(kernel_took(0, EMPTY, HOST, made(true, true, 0)), unsure(1));
    assert_eq!(kernel_took(u64::MAX, u64::MAX, u64::MAX, made(true, true, u64::MAX)), unsure(u64::MAX));
}
