//! Tenants come, are seen, are changed, and go in every way.

use crate::child::{Child, JOINED, REFUSED};
use crate::house::House;
use crate::tenant::{TestTenant, hello};
use crate::until;
use detshare_api::{Class, ClientError, TenantPatch};
use detshare_board::join::Refusal;
use detshare_board::{SLOTS, Tenant};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_tenant_is_seen_with_what_it_publishes() {
    let house = House::new();
    let hello = detshare_board::join::Hello {
        class: Some(detshare_board::Class::Latency),
        memory: Some(1 << 30),
        objective: detshare_board::Objective { p99_ns: Some(5_000_000), ..Default::default() },
        ..hello("serve")
    };
    let tenant = TestTenant::join(&house.run_folder(), &hello).expect("taken in");
    tenant.page.set_lane(0, 132);
    tenant.page.set_memory(4096);
    (0..10).for_each(|_| tenant.step(1_000_000));
    tenant.page.set_lengths(1_000_000, (500, 1_400_000));
    tenant.page.launch();
    let seen = house.client().tenant("serve").expect("known");
    let lengths: Vec<_> = seen.step_lengths.iter().map(|length| (length.width, length.ns)).collect();
    assert_eq!((lengths[0], lengths.len()), ((132, 1_000_000), 6), "on all SMs, and on the front of each split");
    assert!(lengths.is_sorted_by(|wider, narrower| wider.1 <= narrower.1) && lengths[5].1 > 1_400_000, "{lengths:?}");
    assert_eq!((seen.name.as_str(), seen.pid, seen.slot), ("serve", std::process::id(), tenant.slot));
    assert_eq!((seen.class, seen.paused, seen.busy, seen.doubts), (Class::Latency, false, true, false));
    assert_eq!((seen.lane.as_str(), seen.lane_width, seen.width), ("full", 132, 132));
    assert_eq!((seen.step, seen.launches, seen.finished), (11, 11, 10));
    assert_eq!((seen.memory, seen.memory_limit, seen.objective.p99_ns), (4096, Some(1 << 30), Some(5_000_000)));
    assert!(seen.step_p50_ns.is_some_and(|ns| ns.abs_diff(1_000_000) < 125_000), "{seen:?}");
    assert!(seen.steps_per_second > 0.0 && seen.launches_per_second > 0.0, "{seen:?}");
    assert_eq!((seen.gpu.as_str(), seen.mps_client), ("DetShare software GPU", None));
    assert!(seen.command.contains("daemon"), "{}", seen.command);
    assert!(humantime::parse_rfc3339(&seen.joined).is_ok(), "{}", seen.joined);
    let by_pid = house.client().tenant(&std::process::id().to_string()).expect("known");
    assert_eq!(by_pid.name, "serve");
    assert_eq!(house.client().tenants().expect("answered").len(), 1);

    tenant.page.set_lengths(0, (500, 1_400_000));
    assert_eq!(
        house.client().tenant("serve").expect("known").step_lengths,
        [],
        "no front of a split has half of the SMs"
    );
    // Prompts on all SMs, and tokens on a part of them.
    tenant.page.set_lengths(100_000_000, (484, 18_000_000));
    tenant.page.set_phase(1, 4_000_000);
    let seen = house.client().tenant("serve").expect("known");
    assert_eq!((seen.phase.as_deref(), seen.pace_ns), (Some("decode"), Some(4_000_000)));
    assert_eq!(seen.step_lengths, [], "which of both would be meant?");

    drop(tenant);
    house.until_count(0);
    let gone = house.client().tenant("serve").expect_err("it has gone");
    assert!(matches!(gone, ClientError::Refused { status: 404, .. }), "{gone}");
}

#[test]
fn a_change_arrives_and_wakes() {
    let house = House::new();
    let tenant = TestTenant::join(&house.run_folder(), &hello("train")).expect("taken in");
    assert_eq!(tenant.entry().expect("its own").class, detshare_board::Class::BestEffort);
    let client = house.client();
    let epoch = tenant.epoch();
    let waiter = std::thread::spawn(move || {
        tenant.wait_for_news(epoch);
        tenant
    });
    let patch = TenantPatch { paused: Some(true), weight: Some(7), ..TenantPatch::default() };
    let changed = client.change("train", &patch).expect("done");
    assert!(changed.paused && changed.weight == 7);
    let tenant = waiter.join().expect("woken");
    let entry = tenant.entry().expect("its own");
    assert!(entry.paused && entry.weight == 7);

    let patch = TenantPatch {
        paused: Some(false),
        class: Some(Class::Latency),
        memory: Some(Some(1 << 20)),
        tpot_ns: Some(Some(9)),
        ..TenantPatch::default()
    };
    let changed = client.change(&std::process::id().to_string(), &patch).expect("done");
    assert_eq!((changed.class, changed.weight, changed.memory_limit), (Class::Latency, 7, Some(1 << 20)));
    let entry = tenant.entry().expect("its own");
    assert_eq!((entry.paused, entry.class), (false, detshare_board::Class::Latency));
    assert_eq!((entry.limits.memory, entry.objective.tpot_ns), (Some(1 << 20), Some(9)));
    let patch = TenantPatch { memory: Some(None), ..TenantPatch::default() };
    assert_eq!(client.change("train", &patch).expect("done").memory_limit, None);
    assert_eq!(tenant.entry().expect("its own").limits.memory, None);

    for patch in [
        TenantPatch { weight: Some(0), ..TenantPatch::default() },
        TenantPatch { weight: Some(10_001), ..TenantPatch::default() },
        TenantPatch { p99_ns: Some(Some(0)), ..TenantPatch::default() },
    ] {
        let refused = client.change("train", &patch).expect_err("out of range");
        assert!(matches!(refused, ClientError::Refused { status: 422, hint: Some(_), .. }), "{refused}");
    }
}

#[test]
fn all_are_told_of_each_other() {
    let house = House::new();
    let mut first = TestTenant::join(&house.run_folder(), &hello("first")).expect("taken in");
    assert_eq!(until("its own arrival", || Some(first.known_slots()).filter(|slots| !slots.is_empty())), [0]);
    let mut second = Child::join(&house.run_folder(), "second");
    until("the second", || (first.known_slots() == [0, 1]).then_some(()));
    assert_eq!(second.tell(b'l'), b'l');
    until("the second's slot is free", || (first.known_slots() == [0]).then_some(()));
    assert_eq!(second.tell(b'j'), JOINED);
    until("it has come again", || (first.known_slots() == [0, 1]).then_some(()));
}

#[test]
fn a_killed_tenant_is_gone_at_once_for_all() {
    let house = House::new();
    let first = TestTenant::join(&house.run_folder(), &hello("first")).expect("taken in");
    let mut second = Child::join(&house.run_folder(), "second");
    assert_eq!(first.occupants(), 2);
    let epoch = first.epoch();
    second.process.kill().expect("killed");
    first.wait_for_news(epoch);
    assert_eq!(first.occupants(), 1);
    house.until_count(1);
    let metrics = house.client().metrics().expect("answered");
    assert!(metrics.contains("detshare_deaths_total 1\n"), "{metrics}");
}

#[test]
fn a_stopped_tenant_is_not_dead() {
    let house = House::new();
    let mut stopped = Child::join(&house.run_folder(), "stopped");
    let pid = Pid::from_child(&stopped.process);
    kill_process(pid, Signal::STOP).expect("it lives");
    until("it has stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).expect("it lives");
        stat.rsplit_once(')')?.1.trim_start().starts_with('T').then_some(())
    });
    // The daemon has had to do with it meanwhile.
    let other = Child::join(&house.run_folder(), "other");
    house.until_count(2);
    drop(other);
    house.until_count(1);
    assert_eq!(house.client().tenant("stopped").expect("still here").pid, stopped.pid());
    kill_process(pid, Signal::CONT).expect("it lives");
    assert_eq!(stopped.tell(b's'), b's');
    house.until_tenant("stopped", "its step", |tenant| tenant.step == 1);
}

#[test]
fn names_are_unique_and_can_be_had_again() {
    let house = House::new();
    let mut first = Child::join(&house.run_folder(), "train");
    let _second = Child::join(&house.run_folder(), "train");
    let nameless = Child::join(&house.run_folder(), "");
    let mut names: Vec<String> = house.client().tenants().expect("answered").into_iter().map(|t| t.name).collect();
    names.sort();
    assert_eq!(names[1..], ["train", "train-2"]);
    assert!(names[0].starts_with("daemon-"), "the test binary's own name: {names:?}");
    assert_eq!(house.client().tenant(&names[0]).expect("known").pid, nameless.pid());
    first.tell(b'l');
    house.until_count(2);
    assert_eq!(first.tell(b'j'), JOINED);
    assert_eq!(house.client().tenant("train").expect("known").pid, first.pid());
}

#[test]
fn a_process_that_connects_again_has_one_place_and_keeps_what_was_changed() {
    let house = House::new();
    let mut first = TestTenant::join(&house.run_folder(), &hello("train")).expect("taken in");
    let patch = TenantPatch { paused: Some(true), ..TenantPatch::default() };
    house.client().change("train", &patch).expect("done");
    let second = TestTenant::join(&house.run_folder(), &hello("train")).expect("taken in");
    first.until_alone();
    let tenants = house.client().tenants().expect("answered");
    assert_eq!(tenants.len(), 1);
    assert!(tenants[0].name == "train" && tenants[0].paused);
    assert!(second.entry().expect("its own").paused);
    assert_eq!(second.occupants(), 1);
}

#[test]
fn a_page_that_makes_no_sense_is_refused_and_one_that_stops_to_is_shown() {
    let house = House::new();
    let nonsense = Tenant::create(detshare_board::Class::Latency).expect("a group");
    nonsense.finish(10, 0);
    let refused = TestTenant::join_with(&house.run_folder(), &hello("liar"), nonsense).err();
    assert_eq!(refused, Some(Refusal::Page), "it has finished what it has not launched");

    let tenant = TestTenant::join(&house.run_folder(), &hello("liar")).expect("taken in");
    assert!(!house.client().tenant("liar").expect("known").doubts);
    tenant.page.finish(10, 0);
    let count = || house.log().matches("its page holds what cannot be").count();
    until("it is logged", || (count() == 1).then_some(()));
    let seen = house.client().tenant("liar").expect("known");
    assert!(seen.doubts && seen.finished == 0, "{seen:?}");
    (0..10).for_each(|_| _ = tenant.page.launch());
    assert!(house.client().tenant("liar").expect("known").doubts, "once is enough");
    // Two beats at least: a configuration is only looked at on one.
    for weight in ["1", "2"] {
        tenant.page.finish(u64::MAX, 0);
        house.write_config(&format!("[tenants.liar]\nweight = {weight}\n"));
        until("a beat", || tenant.entry().filter(|entry| entry.weight.to_string() == weight));
    }
    assert_eq!(count(), 1);
}

#[test]
fn tenants_outlive_the_daemon_and_its_successor_learns_them_again() {
    let mut house = House::new();
    let mut tenant = TestTenant::join(&house.run_folder(), &hello("serve")).expect("taken in");
    (0..5).for_each(|_| tenant.step(1_000));
    house.client().change("serve", &TenantPatch { paused: Some(true), ..TenantPatch::default() }).expect("done");
    house.kill();
    tenant.until_alone();
    tenant.step(1_000);
    house.start();
    assert_eq!(house.client().tenants().expect("answered"), []);
    let tenant = TestTenant::join_with(&house.run_folder(), &hello("serve"), tenant.leave()).expect("taken in");
    let seen = house.client().tenant("serve").expect("known");
    assert_eq!((seen.launches, seen.paused), (6, false), "what it did is in its page; a pause ends with the daemon");
    house.stop();
    assert!(!house.run_folder().join("tenants.sock").exists() && !house.run_folder().join("daemon.sock").exists());
    tenant.step(1_000);
}

#[test]
fn there_is_room_for_sixty_four() {
    let house = House::new();
    let mut children: Vec<Child> =
        (0..SLOTS).map(|number| Child::start(&house.run_folder(), &format!("tenant-{number}"))).collect();
    children.iter_mut().for_each(|child| child.say(b'j'));
    children.iter_mut().for_each(|child| assert_eq!(child.answer(), JOINED));
    let status = house.client().status().expect("answered");
    assert_eq!((status.tenants, status.slots), (SLOTS, SLOTS));
    let mut slots: Vec<usize> = house.client().tenants().expect("answered").iter().map(|tenant| tenant.slot).collect();
    slots.sort_unstable();
    assert!(slots.into_iter().eq(0..SLOTS));
    let mut last = Child::start(&house.run_folder(), "one-too-many");
    assert_eq!(last.tell(b'j'), REFUSED);
    children.pop();
    house.until_count(SLOTS - 1);
    assert_eq!(last.tell(b'j'), JOINED);
    drop(children);
    house.until_count(1);
}

/// Many more than a socket holds.
const MOST_MESSAGES: usize = 10_000;

#[test]
fn nobody_reads_for_a_tenant_that_does_not() {
    let house = House::new();
    let mut deaf = Child::join(&house.run_folder(), "deaf");
    kill_process(Pid::from_child(&deaf.process), Signal::STOP).expect("it lives");
    let pid = deaf.pid().to_string();
    // Each that comes is a message to it, until there is no room for more.
    let client = house.client();
    let mut passing = TestTenant::join(&house.run_folder(), &hello("passing")).expect("taken in");
    let sent_away = (0..MOST_MESSAGES).any(|_| {
        // The one before is replaced: it is the same process.
        passing = TestTenant::join(&house.run_folder(), &hello("passing")).expect("taken in");
        client.tenant(&pid).is_err()
    });
    assert!(sent_away, "{}", house.log());
    kill_process(Pid::from_child(&deaf.process), Signal::CONT).expect("it lives");
    assert_eq!(deaf.tell(b'j'), JOINED, "it can come again");
}
