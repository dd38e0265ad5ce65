//! Merging, forgetting, saving, and files that are none.

use super::*;

fn h200() -> Gpu {
    Gpu { model: "NVIDIA H200".to_string(), driver: "580.82.07".to_string() }
}

fn profiles_with(name: &str, width: u32, steps: Steps) -> Profiles {
    let mut profiles = Profiles::new(&h200());
    profiles.tenants.entry(name.to_string()).or_default().widths.insert(width, steps);
    profiles
}

#[test]
fn what_was_seen_is_weighed_by_its_count() {
    let mut known = profiles_with("a", 132, Steps { count: 300, p50_ns: 100, p99_ns: 200 });
    known.merge(&profiles_with("a", 132, Steps { count: 100, p50_ns: 500, p99_ns: 1000 }));
    known.merge(&profiles_with("a", 64, Steps { count: 1, p50_ns: 7, p99_ns: 7 }));
    known.merge(&profiles_with("a", u32::MAX, Steps { count: 1, p50_ns: 7, p99_ns: 7 }));
    let widths = &known.tenants["a"].widths;
    assert_eq!(widths[&132], Steps { count: 400, p50_ns: 200, p99_ns: 400 });
    assert_eq!(widths.len(), 2, "no GPU has so many SMs");
}

#[test]
fn numbers_that_cannot_be_do_no_harm() {
    let worst = Steps { count: u64::MAX, p50_ns: u64::MAX, p99_ns: 0 };
    let mut known = profiles_with("a", 1, worst);
    known.merge(&profiles_with("a", 1, worst));
    assert_eq!(known.tenants["a"].widths[&1], Steps { count: MOST_COUNTED, p50_ns: u64::MAX, p99_ns: 0 });
    let mut nothing = profiles_with("a", 1, Steps { count: 0, p50_ns: 5, p99_ns: 5 });
    nothing.merge(&nothing.clone());
    assert_eq!(nothing.tenants["a"].widths[&1].p50_ns, 5);
}

#[test]
fn a_full_file_forgets_the_name_with_the_least_behind_it() {
    let mut known = Profiles::new(&h200());
    for number in 0..MOST_TENANTS {
        let count = if number == 77 { 1 } else { 10 };
        known.merge(&profiles_with(&format!("t{number}"), 8, Steps { count, p50_ns: 1, p99_ns: 1 }));
    }
    known.merge(&profiles_with("new", 8, Steps { count: 2, p50_ns: 1, p99_ns: 1 }));
    known.forget_least();
    assert_eq!(known.tenants.len(), MOST_TENANTS);
    assert!(known.tenants.contains_key("new") && !known.tenants.contains_key("t77"));
}

fn kernel(identity: u64, count: u32) -> (String, KernelProfile) {
    KernelProfile::of(&KernelNote { identity, name: "gemm".to_string(), widths: vec![(132, 1_000, count)] })
}

/// Whatever numbers come with them: what somebody shows for the first time cannot push out what has been there for long.
#[test]
fn a_flood_of_new_kernels_leaves_those_that_were_seen_again_and_again() {
    let most = MOST_KERNELS as u64;
    let of = |identities: std::ops::Range<u64>, count: u32| {
        let mut profiles = Profiles::new(&h200());
        profiles.kernels.extend(identities.map(|identity| kernel(identity, count)));
        profiles
    };
    let honest = of(1..most + 1, 10);
    let mut known = honest.clone();
    for _ in 0..3 {
        known.count_save(&honest);
    }
    let flood = of(most + 1..2 * most, u32::MAX);
    known.merge(&flood);
    known.count_save(&flood);
    known.forget_least_beside(&flood);
    let left = honest.kernels.keys().filter(|kernel| known.kernels.contains_key(*kernel)).count();
    assert_eq!(
        (left, known.kernels.len()),
        (MOST_KERNELS - MOST_NEWCOMERS, MOST_KERNELS),
        "no more than there is room for"
    );

    // Some times without them, and they have made room.
    for _ in 0..3 {
        known.merge(&flood);
        known.count_save(&flood);
        known.forget_least_beside(&flood);
    }
    assert!(flood.kernels.keys().all(|kernel| known.kernels.contains_key(kernel)));
    assert_eq!(known.kernels.len(), MOST_KERNELS);
}

/// A file that was longer could not be read again.
#[test]
fn no_file_grows_beyond_what_is_read() {
    let all_widths = 1..=detshare_board::MOST_SMS;
    let mut known = Profiles::new(&Gpu { model: "m".repeat(63), driver: "d".repeat(63) });
    let length = |profiles: &Profiles| serde_json::to_vec_pretty(profiles).unwrap().len();
    let empty = length(&known);
    let worst = Steps { count: u64::MAX, p50_ns: u64::MAX, p99_ns: u64::MAX };
    let mut tenant = Profiles::new(&h200());
    let profile = tenant.tenants.entry("n".repeat(63)).or_default();
    all_widths.clone().for_each(|width| profile.add(width, worst));
    known.merge(&tenant);
    let with_tenant = length(&known);

    // Characters that take two in the file, and some that take more bytes than they had on the board.
    let widths = all_widths.map(|width| (width, u64::MAX, u32::MAX)).collect();
    let note = KernelNote { identity: u64::MAX, name: "\"\u{fffd}".repeat(96), widths };
    let mut kernel = Profiles::new(&h200());
    kernel.kernels.extend([KernelProfile::of(&note), KernelProfile::of(&KernelNote { name: "\"".repeat(96), ..note })]);
    known.merge(&kernel);
    known.kernels.values_mut().for_each(|kernel| kernel.saves = MOST_COUNTED);
    let both = length(&known) - with_tenant;
    assert_eq!(known.kernels.len(), 2);
    assert!(known.kernels.values().all(|kernel| kernel.widths.len() == MOST_WIDTHS));
    // The longer of the two is shorter than both.
    let longest = empty + MOST_TENANTS * (with_tenant - empty) + MOST_KERNELS * both * 6 / 10;
    assert!(longest < usize::try_from(disk::LONGEST_FILE).unwrap(), "{longest}");
}

#[test]
fn what_is_saved_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::new(place.path().join("deep/profiles"));
    assert!(matches!(store.load(&h200()), Ok(Loaded::New(_))));
    let mut profiles = profiles_with("serve", 132, Steps { count: 3, p50_ns: 4, p99_ns: 5 });
    let durations = Durations { count: 1, mean_ns: 2, least_ns: 2 };
    profiles.kernels.entry("gemm".to_string()).or_default().widths.insert(64, durations);
    store.save(&h200(), &profiles).unwrap();
    store.save(&h200(), &profiles).unwrap();
    assert!(matches!(store.load(&h200()), Ok(Loaded::Known(found)) if found == profiles));
    let other_driver = Gpu { driver: "580.95.05".to_string(), ..h200() };
    assert!(matches!(store.load(&other_driver), Ok(Loaded::New(_))));
    assert_eq!(store.count(), (1, 0));
}

/// Every beginning of a good file, and bytes that are no file at all.
#[test]
fn torn_and_foreign_files_are_set_aside_and_begun_again() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::new(place.path().to_path_buf());
    let profiles = profiles_with("serve", 132, Steps { count: 3, p50_ns: 4, p99_ns: 5 });
    store.save(&h200(), &profiles).unwrap();
    let path = place.path().join(disk::file_name(&h200()));
    let good = std::fs::read(&path).unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let end = good.trim_ascii_end().len();
    let mut wrong: Vec<Vec<u8>> = (0..end).map(|length| good[..length].to_vec()).collect();
    wrong.push(text.replace(&format!("\"format\": {FORMAT}"), "\"format\": 2").into_bytes());
    wrong.push(text.replace("H200", "H100").into_bytes());
    wrong.push(text.replace("\"count\": 3", "\"count\": -3").into_bytes());
    wrong.push(b"[".repeat(100_000));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for length in 0..256 {
        let bytes = (0..length).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        });
        wrong.push(bytes.collect());
    }
    for bytes in wrong {
        std::fs::write(&path, &bytes).unwrap();
        let loaded = store.load(&h200()).unwrap();
        let Loaded::SetAside(begun, aside) = loaded else { panic!("taken for good: {bytes:?}") };
        assert_eq!(begun, Profiles::new(&h200()));
        assert_eq!(std::fs::read(aside).unwrap(), bytes, "kept as it was");
        assert!(matches!(store.load(&h200()), Ok(Loaded::New(_))));
    }
    let (files, set_aside) = store.count();
    assert_eq!(files, 0);
    assert_eq!(set_aside, disk::MOST_SET_ASIDE, "not all are kept");
}
