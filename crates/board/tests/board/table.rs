//! The daemon's table and a tenant's record, in one process.

use detshare_board::{
    ASKED_NS, Class, Daemon, DaemonView, Entry, KERNEL_MODELS, KERNEL_WIDTHS, KernelNote, Limits, Objective, Owner,
    SLOTS, SlotState, SplitLadder, Tenant, TenantView, clock,
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
fn launches_are_asked_about_for_a_time() {
    let daemon = Daemon::create().expect("a group");
    let view = DaemonView::map(daemon.file()).expect("mapped");
    let claim = daemon.claim(myself(), &Entry::new(Class::BestEffort)).expect("free");
    let other = daemon.claim(myself(), &Entry::new(Class::BestEffort)).expect("free");
    let (epoch, before) = (view.epoch(), clock::now());
    assert!(!view.is_asked(claim.slot(), before), "by nobody yet");
    daemon.ask(&claim);
    let after = clock::now();
    assert!(view.is_asked(claim.slot(), before), "by who has looked at the clock a little earlier");
    assert!(view.is_asked(claim.slot(), before + ASKED_NS - 1));
    assert!(!view.is_asked(claim.slot(), after + ASKED_NS), "it is over");
    assert!(!view.is_asked(claim.slot(), before - 2 * ASKED_NS), "by a clock that has gone back it is not believed");
    assert!(!view.is_asked(other.slot(), before), "of another one");
    assert_eq!(view.epoch(), epoch, "nobody has to read anything again for it");
    // Whoever has the slot next was not meant.
    daemon.release(&claim);
    let next = daemon.claim(myself(), &Entry::new(Class::BestEffort)).expect("free");
    assert!(next.slot() == claim.slot() && !view.is_asked(next.slot(), before));
}

/// Where tokens run on a part of the SMs beside a training, the few steps that had all of them were prompts.
#[test]
fn others_are_told_how_long_steps_last_lately() {
    const MS: u64 = 1_000_000;
    let tenant = Tenant::create(Class::Latency).expect("a group");
    let view = TenantView::map(tenant.file()).expect("mapped");
    (0..20).for_each(|_| tenant.note_step(18 * MS));
    assert_eq!(view.step_lengths().on_all_ns, 0, "those may have been steps on a few SMs");
    tenant.set_lengths(300 * MS, (484, 18 * MS));
    let lasts_ns = view.outlook(clock::now()).lasts_ns;
    assert!(lasts_ns.abs_diff(18 * MS) < 1_000, "{lasts_ns}");
    assert_eq!((view.step_lengths().on_all_ns, view.step_lengths().narrow), (300 * MS, Some((484, 18 * MS))));
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

fn kernel(identity: u64, widths: &[(u32, u64, u32)]) -> KernelNote {
    KernelNote { identity, name: format!("kernel {identity}"), widths: widths.to_vec() }
}

#[test]
fn kernels_of_two_models_keep_their_widths() {
    let daemon = Daemon::create().expect("a group");
    let view = DaemonView::map(daemon.file()).expect("mapped");
    let large = kernel(1, &[(132, 1_000, 10), (16, 8_000, 5)]);
    let small = kernel(2, &[(114, 2_000, 10), (98, 2_500, 3)]);
    daemon.publish_kernels(0, std::slice::from_ref(&large));
    daemon.publish_kernels(1, std::slice::from_ref(&small));
    assert_eq!(view.kernel(1), Some(large.clone()));
    assert_eq!(view.kernel(2), Some(small.clone()));

    // A further width, and another time on one that is there.
    daemon.publish_kernels(0, &[kernel(1, &[(116, 1_100, 1), (16, 7_000, 6)])]);
    let now = kernel(1, &[(132, 1_000, 10), (16, 7_000, 6), (116, 1_100, 1)]);
    assert_eq!((view.kernel(1), view.kernel(2)), (Some(now.clone()), Some(small.clone())));
    // One that says that it is another model's is not believed.
    daemon.publish_kernels(1, &[kernel(1, &[(114, 7, 7)])]);
    assert_eq!(view.kernel(1), Some(now));

    let most = u32::try_from(KERNEL_WIDTHS).expect("few");
    let all: Vec<_> = (1..=most + 4).map(|width| (width, 9, 9)).collect();
    daemon.publish_kernels(2, &[kernel(3, &all)]);
    assert_eq!(view.kernel(3).expect("there").widths, all[..KERNEL_WIDTHS], "as many as there is room for");
    daemon.publish_kernels(KERNEL_MODELS, &[kernel(4, &[(132, 1, 1)])]);
    daemon.publish_kernels(3, &[kernel(5, &[(0, 1, 1), (u32::MAX, 1, 1)])]);
    assert_eq!((view.kernel(4), view.kernel(5)), (None, None), "no room, and no widths");
    assert_eq!(view.kernel(2), Some(small));
}
