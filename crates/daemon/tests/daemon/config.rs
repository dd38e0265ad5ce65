//! The configuration, and changing it while tenants are there.

use crate::house::House;
use crate::tenant::{TestTenant, hello};
use crate::until;
use detshare_api::{ClientError, Isolation, TenantPatch};
use rustix::process::Signal;

#[test]
fn a_new_configuration_is_put_in_force_by_itself() {
    let house = House::with_config("[tenants.train]\nweight = 5\n");
    let tenant = TestTenant::join(&house.run_folder(), &hello("train")).expect("taken in");
    assert_eq!(tenant.entry().expect("its own").weight, 5);
    house.client().change("train", &TenantPatch { paused: Some(true), ..TenantPatch::default() }).expect("done");
    house.write_config("policy = \"exclusive\"\nlongest_hold = \"5ms\"\n[tenants.train]\nweight = 6\n");
    until("the new weight", || tenant.entry().filter(|entry| entry.weight == 6));
    let entry = tenant.entry().expect("its own");
    assert_eq!((entry.limits.longest_hold_ns, entry.paused), (5_000_000, true), "what was changed stays");
    until("the new policy", || (Some(tenant.policy()) == detshare_policy::number("exclusive")).then_some(()));
    assert_eq!(house.client().status().expect("answered").policy, "exclusive");
}

#[test]
fn a_broken_configuration_changes_nothing_and_is_shown() {
    let house = House::with_config("[tenants.train]\nweight = 5\n");
    let client = house.client();
    let tenant = TestTenant::join(&house.run_folder(), &hello("train")).expect("taken in");
    house.write_config("[tenants.train]\nweigth = 6\n");
    let error = until("it is noticed", || client.status().expect("answered").config.error);
    assert!(error.contains("line 2") && error.contains("weigth"), "{error}");
    assert_eq!(tenant.entry().expect("its own").weight, 5);
    let refused = client.reload().expect_err("it is still broken");
    assert!(matches!(refused, ClientError::Refused { status: 409, .. }), "{refused}");
    house.write_config("[tenants.train]\nweight = 7\n");
    until("it is right again", || client.status().expect("answered").config.error.is_none().then_some(()));
    assert_eq!(tenant.entry().expect("its own").weight, 7);
}

#[test]
fn it_is_read_when_asked_to() {
    let house = House::new();
    let client = house.client();
    let reloads = || {
        let metrics = client.metrics().expect("answered");
        metrics.lines().find_map(|line| line.strip_prefix("detshare_reloads_total ")?.parse::<u64>().ok())
    };
    assert_eq!(reloads(), Some(0));
    assert_eq!(client.reload().expect("done").config.file, Some(house.config_file()));
    assert_eq!(reloads(), Some(1));
    house.signal(Signal::HUP);
    until("the second", || (reloads() == Some(2)).then_some(()));
}

#[test]
fn a_daemon_does_not_start_with_a_broken_one() {
    let house = House::empty();
    house.write_config("ladder = [32, 16]\n");
    let output = house.fail();
    assert_eq!(output.status.code(), Some(78));
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.contains("line 1") && text.contains("rise"), "{text}");
}

#[test]
fn without_mps_there_are_no_partitions() {
    let house = House::with_config("isolation = \"process\"\npolicy = \"fair\"\n");
    let status = house.client().status().expect("answered");
    assert_eq!((status.isolation, status.policy.as_str()), (Isolation::Process, "exclusive"));
    assert!(status.policy_reason.is_some_and(|reason| reason.contains("MPS")));
    assert_eq!((status.mps, status.environment.len()), (None, 0));
    let tenant = TestTenant::join(&house.run_folder(), &hello("train")).expect("taken in");
    assert_eq!(tenant.entry().expect("its own").ladder.widths(), [0_u32; 0]);
    assert_eq!(Some(tenant.policy()), detshare_policy::number("exclusive"));
    let refused = house.client().set_policy("fair").expect_err("it needs MPS");
    assert!(matches!(refused, ClientError::Refused { status: 409, .. }), "{refused}");
}
