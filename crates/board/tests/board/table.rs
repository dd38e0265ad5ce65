//! The daemon's table and a tenant's record, in one process.

use detshare_board::{
    Class, Daemon, DaemonView, Entry, Limits, Objective, Owner, SLOTS, SlotState, SplitLadder, Tenant, TenantView,
    clock,
};

fn myself() -> Owner {
    Owner::of_process(std::process::id()).expect("alive")
}

#[test]
fn every_slot_can_be_had_once() {
    let daemon = Daemon::create().expect("a group");
    let view = DaemonView::map(daemon.file()).expect("mapped");
    let claims: Vec<_> =
        (0..SLOTS).map(|_| daemon.claim(myself(), &Entry::new(Class::BestEffort)).expect("free")).collect();
    assert!(daemon.claim(myself(), &Entry::new(Class::Latency)).is_err());
    assert_eq!(view.occupants().count(), SLOTS);
    assert!(claims.iter().enumerate().all(|(number, claim)| claim.slot() == number));
    assert!(daemon.release(&claims[7]));
    assert!(!daemon.release(&claims[7]));
    assert_eq!(daemon.claim(myself(), &Entry::new(Class::Latency)).expect("free").slot(), 7);
}

#[test]
fn what_a_tenant_was_given_arrives() {
    let daemon = Daemon::create().expect("a group");
    let view = DaemonView::map(daemon.file()).expect("mapped");
    let claim = daemon.claim(myself(), &Entry::new(Class::Latency)).expect("free");
    let entry = Entry {
        class: Class::BestEffort,
        weight: 300,
        paused: true,
        objective: Objective { p99_ns: Some(5_000_000), ttft_ns: None, tpot_ns: Some(50_000_000) },
        ladder: SplitLadder::new(&[16, 32, 64]).expect("it rises"),
        limits: Limits { memory: Some(1 << 34), longest_hold_ns: 5_000_000, least_share: 50 },
        turnaround_ns: Some(32_000),
    };
    let epoch = view.epoch();
    assert!(daemon.configure(&claim, &entry));
    assert_ne!(view.epoch(), epoch);
    let SlotState::Taken(occupant) = view.slot(claim.slot()) else { panic!("not there") };
    assert_eq!(occupant.entry, entry);
    assert!(!occupant.doubts.any());

    let epoch = view.epoch();
    daemon.set_policy(4);
    assert_ne!(view.epoch(), epoch);
    assert_eq!(view.policy(), 4);
    assert_eq!(view.heartbeat(clock::now()), None);
    let epoch = view.epoch();
    daemon.beat();
    assert!(view.heartbeat(clock::now()).is_some());
    assert_eq!(view.epoch(), epoch, "a heartbeat changes nothing");
}

#[test]
fn a_ladder_rises() {
    assert!(SplitLadder::new(&[]).is_some());
    for wrong in [&[0][..], &[8, 8], &[16, 8], &[1025], &[1; 17]] {
        assert_eq!(SplitLadder::new(wrong), None, "{wrong:?}");
    }
}

#[test]
fn a_tenant_holds_since_its_first_hold() {
    let tenant = Tenant::create(Class::BestEffort).expect("a group");
    let view = TenantView::map(tenant.file()).expect("mapped");
    let first = tenant.hold();
    let since = view.read(clock::now()).holding_since;
    assert!(since.is_some());
    let second = tenant.hold();
    drop(first);
    let state = view.read(clock::now());
    assert_eq!((state.holds, state.holding_since), (2, since));
    drop(second);
    assert_eq!(view.read(clock::now()).holding_since, None);
}

#[test]
fn a_step_ends_when_everything_is_finished() {
    let tenant = Tenant::create(Class::Latency).expect("a group");
    let step = tenant.launch();
    assert_eq!(tenant.launch(), step);
    assert!(!tenant.finish(1, 0));
    assert!(tenant.step().is_busy());
    assert!(tenant.finish(2, 0));
    assert!(!tenant.finish(2, 0), "it is idle already");
    assert!(!tenant.end_step(step, 0), "it has ended");
    let next = tenant.begin_step();
    assert_eq!(next.number(), step.number() + 1);
    assert!(!tenant.end_step(step, 0), "another step");
    assert!(tenant.end_step(next, 0));
}
