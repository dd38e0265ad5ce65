//! Groups that take each other's place while others read.

use crate::{Forged, TENANT_BYTES};
use detshare_board::{Class, Daemon, DaemonView, Entry, MapError, Owner, StepPage, Tenant, TenantView, clock};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[test]
fn a_place_without_a_group_reads_as_nobody() {
    let (tenant, daemon) = (TenantView::none().expect("room"), DaemonView::none().expect("room"));
    let state = tenant.read(clock::now());
    assert!(!state.step.is_busy() && !tenant.is_holding());
    assert_eq!((state.launched, state.finished, state.due), (0, 0, None));
    assert_eq!(daemon.occupants().count(), 0);
}

#[test]
fn groups_take_each_others_place_while_others_read() {
    let (busy, idle) =
        (Tenant::create(Class::Latency).expect("a group"), Tenant::create(Class::BestEffort).expect("a group"));
    busy.launch();
    let view = TenantView::none().expect("room");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let state = view.read(clock::now());
                    assert!(state.launched <= 1 && state.finished == 0);
                }
            });
        }
        for _ in 0..2_000 {
            view.replace(busy.file()).expect("replaced");
            assert!(view.step().is_busy());
            view.replace(idle.file()).expect("replaced");
            assert!(!view.step().is_busy());
            view.clear().expect("cleared");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_is_no_group_takes_nobodys_place() {
    let tenant = Tenant::create(Class::Latency).expect("a group");
    tenant.launch();
    let view = TenantView::map(tenant.file()).expect("mapped");
    let unsealed = Forged::unsealed(TENANT_BYTES);
    assert!(matches!(view.replace(&unsealed.file), Err(MapError::NotSealed)));
    assert!(matches!(view.replace(&Forged::new(TENANT_BYTES, 2).file), Err(MapError::Kind { .. })));
    assert!(view.step().is_busy());
}

#[test]
fn a_daemons_successor_takes_its_place() {
    let (first, second) = (Daemon::create().expect("a group"), Daemon::create().expect("a group"));
    let view = DaemonView::map(first.file()).expect("mapped");
    let owner = Owner::of_process(std::process::id()).expect("myself");
    second.claim(owner, &Entry::new(Class::Latency)).expect("free");
    assert_eq!(view.occupants().count(), 0);
    view.replace(second.file()).expect("replaced");
    assert_eq!(view.occupants().count(), 1);
}

#[test]
fn a_step_word_at_a_place_of_its_own_stays_its_tenants() {
    let is_busy = |page: &StepPage| {
        let word = page.start().cast::<u32>().wrapping_byte_add(StepPage::WORD);
        // SAFETY: the page is there as long as this, and the word is in it, aligned, and only ever used atomically.
        let word = unsafe { AtomicU32::from_ptr(word) };
        word.load(Ordering::Relaxed) & StepPage::BUSY != 0
    };
    let (first, second) =
        (Tenant::create(Class::Latency).expect("a group"), Tenant::create(Class::Latency).expect("a group"));
    let view = TenantView::map(first.file()).expect("mapped");
    let page = view.step_page().expect("mapped once more");
    assert!(!is_busy(&page));
    first.launch();
    assert!(is_busy(&page));
    view.replace(second.file()).expect("replaced");
    assert!(is_busy(&page) && !view.step().is_busy(), "the view shows somebody else");
    assert!(first.finish(1, 0));
    assert!(!is_busy(&page));
    second.launch();
    assert!(!is_busy(&page));
    drop(first);
    assert!(!is_busy(&page), "it stays when its tenant has gone");
    view.clear().expect("cleared");
    assert!(matches!(view.step_page(), Err(MapError::Os { .. })), "nobody has no word");
}
