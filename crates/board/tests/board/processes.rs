//! Publishing, reading, waiting and dying, with a second process.

use crate::child::{Child, PATIENCE};
use detshare_board::{
    Class, Daemon, DaemonView, Entry, Owner, SlotState, Tenant, TenantView, Waited, clock, peer, receive_fds, send_fds,
    wait,
};
use rustix::event::{PollFd, PollFlags, poll};

fn group_of(child: &Child) -> TenantView {
    let received = receive_fds(&child.stream, &mut [0]).expect("a group");
    TenantView::map(&received.files[0]).expect("mapped")
}

#[test]
fn another_process_sees_what_a_tenant_publishes() {
    let mut child = Child::start("tenant");
    let view = group_of(&child);
    let state = view.read(clock::now());
    assert_eq!((state.class, state.step.is_busy(), state.step.number()), (Class::Latency, false, 0));
    assert_eq!((state.due, state.holding_since, state.launched), (None, None, 0));

    child.tell(b'b');
    child.tell(b'b');
    child.tell(b'l');
    child.tell(b'h');
    let now = clock::now();
    let state = view.read(now);
    assert!(state.step.is_busy());
    assert_eq!((state.step.number(), state.launched, state.finished), (1, 2, 0));
    assert_eq!((state.lane, state.holds), (3, 1));
    assert!(state.holding_since.is_some_and(|since| since <= now));

    child.tell(b'i');
    let state = view.read(clock::now());
    assert!(!state.step.is_busy());
    assert_eq!((state.step.number(), state.finished), (1, 2));
    assert_eq!(state.due, view.due(clock::now()));
    assert!(state.due.is_some());
    child.tell(b'b');
    assert_eq!(view.step().number(), 2);
    assert!(!view.read(clock::now()).doubts.any());
}

#[test]
fn a_process_that_sleeps_is_woken_when_the_step_ends() {
    const STEPS: u32 = 500;
    let mut child = Child::start("waiter");
    let tenant = Tenant::create(Class::Latency).expect("a group");
    send_fds(&child.stream, b"t", &[tenant.file()]).expect("sent");
    for step in 1..=STEPS {
        assert_eq!(tenant.launch().number(), step);
        assert_eq!(child.tell(b'b'), b'w');
        assert!(tenant.finish(tenant.launched(), 0));
        assert_eq!(child.answer(), b'r');
    }
}

#[test]
fn a_killed_owner_is_recognised_and_its_slot_taken() {
    let daemon = Daemon::create().expect("a group");
    let table = DaemonView::map(daemon.file()).expect("mapped");
    let mut child = Child::start("tenant");
    let view = group_of(&child);
    let peer = peer(&child.stream).expect("known");
    assert_eq!(peer.pid, child.process.id());
    assert_eq!(peer.uid, rustix::process::getuid().as_raw());

    let owner = Owner::of_peer(&child.stream).expect("alive");
    let claim = daemon.claim(owner, &Entry::new(Class::Latency)).expect("a free slot");
    let SlotState::Taken(occupant) = table.slot(claim.slot()) else { panic!("not there") };
    assert_eq!(occupant.pid, child.process.id());
    assert_eq!(occupant.start_time, claim.owner().start_time());
    assert!(!daemon.take_back(&claim), "it lives");

    // It dies busy. Who waits for its step is released by the daemon.
    child.tell(b'b');
    let (step, epoch) = (view.step(), table.epoch());
    assert!(step.is_busy());
    std::thread::scope(|scope| {
        let words = [view.watch(step), table.watch(epoch)];
        let waiter = scope.spawn(move || while wait(&words, PATIENCE) == Waited::Over {});
        child.process.kill().expect("killed");
        poll(&mut [PollFd::new(claim.owner(), PollFlags::IN)], None).expect("its end can be waited for");
        // Not waited for by its parent yet: dead all the same.
        assert!(claim.owner().is_dead());
        assert!(daemon.take_back(&claim));
        waiter.join().expect("no panic");
    });
    assert!(!daemon.take_back(&claim), "only once");
    assert!(!daemon.configure(&claim, &Entry::new(Class::Latency)), "it has no slot any more");
    assert_eq!(table.slot(claim.slot()), SlotState::Free);

    let owner = Owner::of_process(std::process::id()).expect("alive");
    let next = daemon.claim(owner, &Entry::new(Class::BestEffort)).expect("a free slot");
    assert_eq!(next.slot(), claim.slot());
    assert!(!daemon.release(&claim), "it belongs to another now");
    let SlotState::Taken(next) = table.slot(next.slot()) else { panic!("not there") };
    assert_ne!(next.generation, occupant.generation);
}

#[test]
fn a_process_that_has_ended_owns_nothing() {
    let mut child = Child::start("tenant");
    let pid = child.process.id();
    child.process.kill().expect("killed");
    child.process.wait().expect("ended");
    assert!(Owner::of_peer(&child.stream).is_err());
    assert!(Owner::of_process(pid).is_err());
}
