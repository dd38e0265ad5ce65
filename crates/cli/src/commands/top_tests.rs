//! Frames, as they look on a terminal of that size.

use super::*;
use crate::commands::ps::tests::tenant;
use detshare_api::{Class, ConfigStatus, Isolation, ProfilesStatus, Status, Tenant, TenantPatch};
use feed::News;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

fn status(tenants: usize) -> Box<Status> {
    Box::new(Status {
        version: "0.1.0".to_string(),
        pid: 4242,
        started: "2026-01-01T00:00:00Z".to_string(),
        uptime_s: 11_100,
        policy: "fair".to_string(),
        policy_reason: None,
        aggressiveness: 0.25,
        isolation: Isolation::Mps,
        folder: "/run/user/1000/detshare".into(),
        config: ConfigStatus { file: None, error: None },
        tenants,
        slots: 64,
        mps: None,
        environment: std::collections::BTreeMap::default(),
        profiles: ProfilesStatus { folder: None, files: 0, set_aside: 0 },
        sees_you: true,
    })
}

fn two() -> Vec<Tenant> {
    let mut train = tenant("train", 1_234_567, Class::BestEffort);
    train.busy = false;
    train.step = 0;
    train.steps_per_second = 0.0;
    (train.step_p50_ns, train.step_p99_ns) = (None, None);
    train.lane = "rest16".to_string();
    vec![train, tenant("serve", 7, Class::Latency)]
}

fn seen(tenants: Vec<Tenant>) -> Screen {
    let mut screen = Screen::default();
    screen.take(News::Seen { status: status(tenants.len()), tenants }, Instant::now());
    screen
}

#[test]
fn a_frame_of_eighty_columns() {
    let mut screen = seen(two());
    let mut later = two();
    later[1].step += 100;
    let in_a_minute = Instant::now() + Duration::from_secs(61);
    screen.take(News::Seen { status: status(2), tenants: later }, in_a_minute);
    let expected = "\
detshare: policy fair, isolation mps, 2 tenants, daemon up 3h 05m

tenant          pid class lane    steps    p50    p99 launch holds memory last
                                     /s                   /s    /s        minute
● serve           7 lat   front16  12.0 1.23ms 2.00ms  12.3k  0.50  40.0G ██████
· train     1234567 best  rest16      0      -      -  12.3k  0.50  40.0G ▁▁▁▁▁▁
↑↓ choose  p pause/resume  c class  s sort (by name)  q quit
";
    assert_eq!(text(&screen, 80, 7), expected);
}

#[test]
fn a_wide_frame_has_names_in_full() {
    let frame = text(&seen(two()), 140, 7);
    assert!(frame.contains("best-effort") && frame.contains("latency") && frame.contains("minute"), "{frame}");
}

#[test]
fn a_frame_that_is_far_too_small_is_still_one() {
    for (width, height) in [(1, 1), (20, 3), (79, 4)] {
        text(&seen(two()), width, height);
    }
}

#[test]
fn who_is_quarantined_is_marked() {
    let mut tenants = two();
    tenants[0].quarantined = true;
    let frame = text(&seen(tenants), 80, 7);
    assert!(frame.contains("\n·!train ") && frame.contains("\n● serve "), "{frame}");
}

#[test]
fn who_is_no_client_of_mps_is_marked() {
    let mut tenants = two();
    tenants[0].mps_client = Some(false);
    tenants[1].mps_client = Some(true);
    let frame = text(&seen(tenants), 80, 7);
    assert!(frame.contains("\n·×train ") && frame.contains("\n● serve "), "{frame}");
    assert!(frame.starts_with("detshare: policy fair, isolation mps (× is no client), 2 tenants,"), "{frame}");
}

#[test]
fn nobody_is_there() {
    assert!(text(&seen(Vec::new()), 80, 7).contains("no tenants: start one"));
}

#[test]
fn a_daemon_that_goes_is_waited_for() {
    let mut screen = Screen::default();
    screen.take(News::Gone("no daemon runs".to_string()), Instant::now());
    assert!(text(&screen, 80, 7).starts_with("detshare: no daemon, waiting…"));
    screen = seen(two());
    screen.take(News::Gone("no daemon runs".to_string()), Instant::now());
    let frame = text(&screen, 80, 7);
    assert!(frame.starts_with("detshare: daemon gone, waiting…") && frame.contains("● serve"), "{frame}");
    assert_eq!(screen.press(KeyCode::Char('p'), KeyModifiers::NONE), Action::Nothing);
    screen.take(News::Seen { status: status(2), tenants: two() }, Instant::now());
    assert!(text(&screen, 80, 7).starts_with("detshare: policy fair"));
}

#[test]
fn keys_change_the_chosen_one() {
    let mut screen = seen(two());
    let none = KeyModifiers::NONE;
    let paused = TenantPatch { paused: Some(true), ..TenantPatch::default() };
    assert_eq!(screen.press(KeyCode::Char('p'), none), Action::Change { pid: 7, patch: paused });
    screen.press(KeyCode::Down, none);
    screen.press(KeyCode::Down, none);
    let class = TenantPatch { class: Some(Class::Latency), ..TenantPatch::default() };
    assert_eq!(screen.press(KeyCode::Char('c'), none), Action::Change { pid: 1_234_567, patch: class });
    screen.press(KeyCode::Up, none);
    assert_eq!(screen.press(KeyCode::Char('q'), none), Action::Quit);
    assert_eq!(screen.press(KeyCode::Char('c'), KeyModifiers::CONTROL), Action::Quit);
}

#[test]
fn the_chosen_one_stays_chosen_when_the_order_changes() {
    let mut tenants = two();
    tenants[0].memory = 80 << 30;
    let mut screen = seen(tenants);
    assert_eq!(screen.chosen(), Some(0));
    for _ in 0..5 {
        screen.press(KeyCode::Char('s'), KeyModifiers::NONE);
    }
    let names: Vec<_> = screen.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!((names, screen.chosen()), (vec!["train", "serve"], Some(1)));
    assert!(text(&screen, 80, 7).contains("sort (by memory)"));
}

#[test]
fn what_was_refused_is_said_until_the_next_key() {
    let mut screen = seen(two());
    screen.take(News::Said("no tenant 7".to_string()), Instant::now());
    assert!(text(&screen, 80, 7).contains("no tenant 7"));
    screen.press(KeyCode::Down, KeyModifiers::NONE);
    assert!(!text(&screen, 80, 7).contains("no tenant 7"));
}
