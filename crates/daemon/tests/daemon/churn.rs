//! Tenants that come and go leave nothing behind.

use crate::child::{Child, JOINED};
use crate::house::House;
use crate::tenant::{TestTenant, hello};
use crate::until;

#[test]
fn nothing_is_left_of_those_who_have_gone() {
    let house = House::new();
    let left = |house: &House| (house.open_files(), house.mapped_groups());
    let before = left(&house);
    let mut child = Child::start(&house.run_folder(), "passing");
    for round in 0..200 {
        // One leaves, one is replaced, and now and then one dies.
        let first = TestTenant::join(&house.run_folder(), &hello("passing")).expect("taken in");
        let second = TestTenant::join(&house.run_folder(), &hello("passing")).expect("taken in");
        drop((first, second));
        if round % 20 == 0 {
            assert_eq!(child.tell(b'j'), JOINED);
            child = Child::start(&house.run_folder(), "passing");
        }
    }
    drop(child);
    house.until_count(0);
    until("all is closed and unmapped", || (left(&house) == before).then_some(()));
    assert_eq!(before.1, 1, "only its own group is mapped");
    let metrics = house.client().metrics().expect("answered");
    assert!(metrics.contains("detshare_joins_total 410\n"), "{metrics}");
    assert!(metrics.contains("detshare_deaths_total 10\n"), "{metrics}");
    assert!(metrics.contains("detshare_leaves_total 400\n"), "{metrics}");
}
