//! What tenants measure of their kernels is there for those who come later.

use crate::house::House;
use crate::tenant::{TestTenant, hello};
use crate::until;
use detshare_board::join::Hello;
use detshare_board::{Class, KernelNote, Tenant};
use std::fs;

fn join(house: &House, hello: &Hello) -> TestTenant {
    let page = Tenant::create(Class::BestEffort).expect("a group");
    page.set_lane(0, hello.width);
    page.set_widths(&[132, 16, 116]);
    TestTenant::join_with(&house.run_folder(), hello, page).expect("taken in")
}

fn leave(house: &House, tenant: TestTenant) {
    drop(tenant);
    house.until_count(0);
}

fn gemm(widths: &[(u32, u64, u32)]) -> Option<KernelNote> {
    Some(KernelNote { identity: 7, name: "gemm".to_string(), widths: widths.to_vec() })
}

/// The only profile on disk.
fn on_disk(house: &House) -> serde_json::Value {
    let files = fs::read_dir(house.path("state/detshare/profiles")).expect("made");
    let files: Vec<_> = files.map(|entry| entry.expect("read").path()).collect();
    assert_eq!(files.len(), 1, "one GPU and driver, one file: {files:?}");
    serde_json::from_slice(&fs::read(&files[0]).expect("read")).expect("JSON")
}

#[test]
fn the_next_run_knows_what_the_last_one_measured() {
    let mut house = House::new();
    let first = join(&house, &hello("train"));
    first.page.note_kernel(7, "gemm", 0, 1_000, 10);
    first.page.note_kernel(7, "gemm", 1, 8_000, 3);
    assert_eq!(first.known_kernel(7), None);
    leave(&house, first);

    let second = join(&house, &hello("train"));
    assert_eq!(second.known_kernel(7), gemm(&[(132, 1_000, 10), (16, 8_000, 3)]));
    second.page.note_kernel(7, "gemm", 0, 1_200, 20);
    leave(&house, second);
    let mut third = join(&house, &hello("train"));
    assert_eq!(third.known_kernel(7), gemm(&[(132, 1_200, 20), (16, 8_000, 3)]), "with what was corrected");
    third.page.note_kernel(7, "gemm", 2, 1_100, 1);

    // While it is here: what it has measured so far is not lost.
    house.stop();
    third.until_alone();
    drop(third);
    let kernel = &on_disk(&house)["kernels"]["0000000000000007 gemm"];
    assert_eq!((&kernel["saves"], &kernel["widths"]["116"]["mean_ns"]), (&1.into(), &1_100.into()), "{kernel}");
    house.start();
    let mut known = join(&house, &hello("train")).known_kernel(7).expect("known");
    known.widths.sort_unstable();
    assert_eq!(Some(known), gemm(&[(16, 8_000, 3), (116, 1_100, 1), (132, 1_200, 20)]));
}

#[test]
fn what_is_measured_is_saved_and_shown_while_the_tenant_runs() {
    let house = House::with_arguments(&["--save-every", "50ms"]);
    let tenant = join(&house, &hello("train"));
    tenant.page.note_kernel(7, "gemm", 0, 1_000, 10);
    until("it is on the board", || tenant.known_kernel(7));
    tenant.page.note_kernel(7, "gemm", 0, 1_200, 20);
    until("it is corrected", || (tenant.known_kernel(7) == gemm(&[(132, 1_200, 20)])).then_some(()));
    until("it is on disk", || (house.client().status().ok()?.profiles.files == 1).then_some(()));
}

#[test]
fn kernels_of_another_model_stay_apart() {
    let house = House::new();
    let other_hello = |name: &str| Hello { gpu: "DetShare small GPU".to_string(), width: 114, ..hello(name) };
    let large = join(&house, &hello("large"));
    large.page.note_kernel(7, "gemm", 0, 1_000, 10);
    leave(&house, large);
    let small = join(&house, &other_hello("small"));
    small.page.set_widths(&[114, 98]);
    small.page.note_kernel(8, "gemm", 0, 2_000, 10);
    small.page.note_kernel(8, "gemm", 1, 2_500, 3);
    leave(&house, small);
    let tenant = join(&house, &hello("large"));
    assert_eq!(tenant.known_kernel(7), gemm(&[(132, 1_000, 10)]), "at the width that it was measured on");
    assert_eq!(tenant.known_kernel(8).expect("known").widths, [(114, 2_000, 10), (98, 2_500, 3)]);
}

#[test]
fn nothing_is_learnt_from_a_page_that_makes_no_sense() {
    let mut house = House::new();
    let honest = join(&house, &hello("train"));
    honest.page.note_kernel(7, "gemm", 0, 1_000, 10);
    honest.step(1_000_000);
    leave(&house, honest);

    let liar = join(&house, &hello("liar"));
    liar.step(1_000_000);
    for identity in 7..500 {
        liar.page.note_kernel(identity, "made up", 0, 1, u32::MAX);
    }
    // More than it has launched, once: it makes sense again before anybody learns from it.
    liar.page.finish(10, 0);
    until("it is noticed", || house.log().contains("its page holds what cannot be").then_some(()));
    (0..10).for_each(|_| _ = liar.page.launch());
    leave(&house, liar);
    let tenant = join(&house, &hello("train"));
    assert_eq!(tenant.known_kernel(7), gemm(&[(132, 1_000, 10)]));
    assert_eq!(tenant.known_kernel(8), None);
    drop(tenant);
    house.stop();
    let learnt = on_disk(&house);
    let keys = |what: &str| learnt[what].as_object().expect("a map").keys().cloned().collect::<Vec<_>>();
    assert_eq!((keys("kernels"), keys("tenants")), (vec!["0000000000000007 gemm".into()], vec!["train".into()]));
}

#[test]
fn each_release_of_the_driver_has_its_own_file() {
    let mut house = House::new();
    for (driver, ns) in [("580.82.07", 1_000), ("580.95.05", 2_000)] {
        let tenant = join(&house, &Hello { driver: driver.to_string(), ..hello("train") });
        tenant.page.note_kernel(ns, "gemm", 0, ns, 10);
        leave(&house, tenant);
    }
    house.stop();
    let files = fs::read_dir(house.path("state/detshare/profiles")).expect("made");
    let mut drivers: Vec<_> = files
        .map(|entry| fs::read(entry.expect("read").path()).expect("read"))
        .map(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).expect("JSON")["driver"].clone())
        .collect();
    drivers.sort_by_key(ToString::to_string);
    assert_eq!(drivers, ["580.82.07", "580.95.05"]);
}

#[test]
fn a_quarantine_is_told() {
    let house = House::new();
    let tenant = join(&house, &hello("train"));
    let gauge =
        |value: u32| format!("detshare_tenant_quarantined{{tenant=\"train\",pid=\"{}\"}} {value}", std::process::id());
    let metrics = || house.client().metrics().expect("answered");
    assert!(metrics().contains(&gauge(0)), "{}", metrics());
    tenant.page.set_quarantined(true);
    until("it is logged", || house.log().contains("quarantined: its kernels keep running").then_some(()));
    assert!(house.client().tenant("train").expect("known").quarantined);
    assert!(metrics().contains(&gauge(1)), "{}", metrics());
    tenant.page.set_quarantined(false);
    until("its end is logged", || house.log().contains("no longer quarantined").then_some(()));
    assert_eq!(house.log().matches("quarantined: its kernels keep running").count(), 1, "once is enough");
}
