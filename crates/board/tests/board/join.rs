//! What tenant and daemon say to each other when the tenant joins.

use detshare_board::join::{Arrived, Hello, JoinError, Refusal, Welcome, is_name};
use detshare_board::{Class, Daemon, Entry, LAYOUT, Objective, Owner, SLOTS, Tenant, TenantView, send_fds};
use rustix::fd::AsFd;
use std::os::unix::net::UnixStream;

fn hello() -> Hello {
    Hello {
        class: Some(Class::Latency),
        name: "serve-1".into(),
        objective: Objective { p99_ns: Some(5_000_000), ttft_ns: None, tpot_ns: Some(1) },
        memory: Some(40 << 30),
        gpu: "NVIDIA H200".into(),
        gpu_id: 0xfeed_beef,
        width: 132,
        driver: "580.82.07".to_string(),
        block_level: true,
    }
}

#[test]
fn everything_that_is_said_arrives() {
    let (one, other) = UnixStream::pair().expect("a pair");
    let (tenant, daemon) = (Tenant::create(Class::Latency).expect("a group"), Daemon::create().expect("a group"));
    for said in [hello(), Hello::default()] {
        said.send(&one, tenant.file()).expect("said");
        let (heard, group) = Hello::receive(&other).expect("heard");
        assert_eq!(heard, said);
        TenantView::map(group).expect("its group");
    }
    let owner = Owner::of_process(std::process::id()).expect("myself");
    let claim = daemon.claim(owner, &Entry::new(Class::Latency)).expect("free");
    let (slot, generation) = (claim.slot(), claim.generation());
    for said in
        [Welcome::Accepted { slot, generation }, Welcome::Refused(Refusal::Full), Welcome::Refused(Refusal::Page)]
    {
        said.send(&other, daemon.file()).expect("said");
        let (heard, group) = Welcome::receive(&one).expect("heard");
        assert_eq!(heard, said);
        assert_eq!(group.is_some(), matches!(said, Welcome::Accepted { .. }));
    }
    Arrived { slot, generation }.send(&other, tenant.file()).expect("said");
    assert_eq!(Arrived::receive(&one).expect("heard").0, Arrived { slot, generation });
}

#[test]
fn texts_are_cut_where_they_must_be() {
    let (one, other) = UnixStream::pair().expect("a pair");
    let tenant = Tenant::create(Class::Latency).expect("a group");
    let long = Hello { gpu: "ü".repeat(100), ..hello() };
    long.send(&one, tenant.file()).expect("said");
    assert_eq!(Hello::receive(&other).expect("heard").0.gpu, "ü".repeat(31));
}

#[test]
fn names() {
    for name in ["a", "serve-1", "x.y_z", &"n".repeat(63)] {
        assert!(is_name(name), "{name}");
    }
    for name in ["", "a b", "ü", "a/b", "a\n", &"n".repeat(64)] {
        assert!(!is_name(name), "{name:?}");
    }
}

/// A message with one word changed at a time, and cut short anywhere, is heard or refused, and nothing else.
#[test]
fn nonsense_is_refused() {
    let tenant = Tenant::create(Class::Latency).expect("a group");
    let mut good = [0; 320];
    let (one, other) = UnixStream::pair().expect("a pair");
    hello().send(&one, tenant.file()).expect("said");
    detshare_board::receive_fds(&other, &mut good).expect("the bytes");
    let mut refused = 0;
    for place in 0..good.len() {
        for value in [0, 1, b'\n', 0x7f, 0xff] {
            let (one, other) = UnixStream::pair().expect("a pair");
            let mut bytes = good;
            bytes[place] = value;
            send_fds(&one, &bytes, &[tenant.file()]).expect("sent");
            drop(one);
            refused += usize::from(Hello::receive(&other).is_err());
        }
    }
    assert!(refused > 100, "only {refused} were refused");
    for length in 1..good.len() {
        let (one, other) = UnixStream::pair().expect("a pair");
        send_fds(&one, &good[..length], &[tenant.file()]).expect("sent");
        drop(one);
        assert!(matches!(Hello::receive(&other), Err(JoinError::Socket(_))));
    }
    let mut older = good;
    older[8..12].copy_from_slice(&(LAYOUT - 1).to_le_bytes());
    let (one, other) = UnixStream::pair().expect("a pair");
    send_fds(&one, &older, &[tenant.file()]).expect("sent");
    assert!(matches!(Hello::receive(&other), Err(JoinError::Layout { found }) if found == LAYOUT - 1));
}

#[test]
fn files_are_counted() {
    let tenant = Tenant::create(Class::Latency).expect("a group");
    let mut good = [0; 320];
    let (one, other) = UnixStream::pair().expect("a pair");
    hello().send(&one, tenant.file()).expect("said");
    detshare_board::receive_fds(&other, &mut good).expect("the bytes");
    for files in [0, 2, SLOTS] {
        send_fds(&one, &good, &vec![tenant.file().as_fd(); files]).expect("sent");
        let heard = Hello::receive(&other);
        assert!(matches!(heard, Err(JoinError::Files { expected: 1, found }) if found == files));
    }
}
