//! `DETSHARE_MEM`, on the software GPU: what a process can allocate, and what it is told.
//!
//! `quota_probe` does the steps that a test names; the head of its source says which there are.

use crate::stage::{Build, Stage, built, finish, shim, succeed};
use std::path::PathBuf;
use std::process::Command;

#[allow(dead_code, reason = "the library's own module, of which a test looks at a part")]
#[path = "../../src/quota/ledger.rs"]
mod ledger;
#[allow(dead_code, reason = "the library's own module, of which a test looks at a part")]
#[path = "../../src/quota/size.rs"]
mod size;

const MIB: usize = 1 << 20;

fn software_gpu() -> PathBuf {
    built("libdetshare_softgpu.so")
}

/// The probe on the software GPU itself.
fn bare(steps: &str) -> Command {
    let mut command = Command::new(built("quota_probe"));
    command.args(steps.split_whitespace()).env_clear().env("LD_PRELOAD", software_gpu());
    command
}

/// The probe through the shim, without a quota.
fn through_shim(steps: &str) -> Command {
    let mut command = bare(steps);
    command.env("LD_PRELOAD", shim()).env("DETSHARE_DRIVER", software_gpu());
    command
}

fn with_quota(quota: &str, steps: &str) -> Command {
    let mut command = through_shim(steps);
    command.env("DETSHARE_MEM", quota);
    command
}

/// What came of each step: the code without its prefix, and the figures.
fn answers(command: &mut Command) -> Vec<String> {
    let short = |line: &str| line.split_once(' ').map_or(line, |(_, answer)| answer).replace("CUDA_ERROR_", "");
    succeed(command).lines().map(short).map(|answer| answer.replace("CUDA_", "")).collect()
}

/// Runs steps with a quota of one MiB; each is written with its expected answer behind it.
#[track_caller]
fn expect(steps: &[(&str, &str)]) {
    let list: Vec<_> = steps.iter().map(|(step, _)| *step).collect();
    let answers = answers(&mut with_quota("1MiB", &format!("init {}", list.join(" "))));
    let expected: Vec<_> = steps.iter().map(|(_, answer)| (*answer).to_string()).collect();
    assert_eq!(answers[1..], expected, "{list:?}");
}

#[test]
fn an_allocation_up_to_the_quota_succeeds_and_one_beyond_it_does_not() {
    for kind in ["alloc", "async", "thread", "pool"] {
        let whole = format!("{kind}:{MIB}");
        let beyond = format!("{kind}:{}", MIB + 1);
        let one = format!("{kind}:1");
        expect(&[
            ("info", "SUCCESS 1048576 1048576"),
            (&beyond, "OUT_OF_MEMORY"),
            ("info", "SUCCESS 1048576 1048576"),
            (&whole, "SUCCESS"),
            ("info", "SUCCESS 0 1048576"),
            (&one, "OUT_OF_MEMORY"),
            ("alloc:1", "OUT_OF_MEMORY"),
            ("free:1", "SUCCESS"),
            ("info", "SUCCESS 1048576 1048576"),
            (&one, "SUCCESS"),
        ]);
    }
}

#[test]
fn the_device_is_as_large_as_the_quota() {
    expect(&[("total", "SUCCESS 1048576"), ("info", "SUCCESS 1048576 1048576")]);
    let real = answers(&mut bare("init total info"));
    assert_eq!(answers(&mut with_quota("1TiB", "init total info")), real, "a quota beyond what there is");
}

#[test]
fn rows_count_as_long_as_the_driver_makes_them() {
    // 100 bytes a row become 512: 2048 rows fill the quota.
    expect(&[
        ("pitch:100:2048", "SUCCESS"),
        ("info", "SUCCESS 0 1048576"),
        ("free:0", "SUCCESS"),
        ("info", "SUCCESS 1048576 1048576"),
        ("pitch:100:2049", "OUT_OF_MEMORY"),
        ("pitch:1024:1025", "OUT_OF_MEMORY"),
        ("info", "SUCCESS 1048576 1048576"),
        ("pitch:1024:1024", "SUCCESS"),
    ]);
}

#[test]
fn what_is_freed_in_a_streams_order_is_free() {
    expect(&[
        ("async:1000000", "SUCCESS"),
        ("async-free:0", "SUCCESS"),
        ("info", "SUCCESS 1048576 1048576"),
        ("pool:1000000", "SUCCESS"),
        ("free:1", "SUCCESS"),
        ("alloc:1000000", "SUCCESS"),
        ("async-free:2", "SUCCESS"),
        ("info", "SUCCESS 1048576 1048576"),
    ]);
}

#[test]
fn a_call_that_the_driver_refuses_costs_nothing() {
    let mut command = with_quota("1TiB", "init alloc:1 info alloc:1073741824 info free:0 info");
    let answers = answers(command.env("DETSHARE_SOFTGPU_MEMORY", "1MiB"));
    assert_eq!(answers[2], answers[4]);
    assert_eq!(answers[3], "OUT_OF_MEMORY");
}

/// What counts is that the answers are the driver's own up to the quota, also where it does not have the kind, and that
/// what it gave is taken off the quota.
#[test]
fn up_to_the_quota_the_driver_answers() {
    let kinds =
        ["managed:1000", "create:2097152", "array:10:10", "cube:10:10:10", "mipmap:8:8:4", "node:9", "any-node:9"];
    let steps = format!("init {} info", kinds.join(" "));
    let theirs = answers(&mut bare(&steps));
    let ours = answers(&mut with_quota("4MiB", &steps));
    assert_eq!(ours[..ours.len() - 1], theirs[..theirs.len() - 1]);
    let free = ours.last().and_then(|info| info.split(' ').nth(1)).and_then(|free| free.parse::<usize>().ok());
    assert!(free.is_some_and(|free| free <= 4 * MIB - 2_097_152 - 1_000), "{ours:?}");
}

#[test]
fn every_kind_of_memory_counts() {
    for kind in [
        "managed:1048577",
        "create:2097152",
        "array:512:513",
        "cube:64:64:65",
        "mipmap:512:512:2",
        "node:1048577",
        "any-node:1048577",
        "capture:1048577",
        "pitch:1048577:1",
    ] {
        expect(&[(kind, "OUT_OF_MEMORY"), ("info", "SUCCESS 1048576 1048576")]);
    }
}

#[test]
fn captured_memory_goes_with_its_graph_or_its_address() {
    expect(&[
        ("capture:1000000", "SUCCESS"),
        ("info", "SUCCESS 48576 1048576"),
        ("graph-free:0", "SUCCESS"),
        ("info", "SUCCESS 1048576 1048576"),
    ]);
}

#[test]
fn memory_goes_with_its_context() {
    expect(&[
        ("alloc:100000", "SUCCESS"),
        ("context", "SUCCESS"),
        ("alloc:200000", "SUCCESS"),
        ("info", "SUCCESS 748576 1048576"),
        ("leave", "SUCCESS"),
        ("info", "SUCCESS 948576 1048576"),
        ("release", "SUCCESS"),
        ("info", "SUCCESS 1048576 1048576"),
        ("alloc:300000", "SUCCESS"),
        ("reset", "SUCCESS"),
        ("release", "SUCCESS"),
        ("info", "SUCCESS 1048576 1048576"),
    ]);
}

#[test]
fn what_is_plainly_wrong_gets_the_drivers_code() {
    let steps = "alloc:9999999 init null alloc:0 async:0 pitch:0:9 wrong-free array:0:1 create:0";
    assert_eq!(answers(&mut with_quota("1KiB", steps)), answers(&mut bare(steps)));
}

#[test]
fn a_free_that_fails_gives_nothing_back() {
    expect(&[
        ("alloc:1000000", "SUCCESS"),
        ("wrong-free", "INVALID_VALUE"),
        ("free:0", "SUCCESS"),
        ("free:0", "INVALID_VALUE"),
        ("info", "SUCCESS 1048576 1048576"),
    ]);
}

#[test]
fn threads_that_race_for_the_last_bytes_never_get_more() {
    for _ in 0..5 {
        expect(&[
            ("race:16:1000", "SUCCESS 1048"),
            ("info", "SUCCESS 1048576 1048576"),
            ("race:9:4096", "SUCCESS 256"),
        ]);
    }
}

#[test]
fn what_a_pool_keeps_is_no_longer_the_programs() {
    let answers = answers(&mut with_quota("1MiB", "init keep:999999999 async:900000 async-free:0 reserved info"));
    assert_eq!(answers[4..], ["SUCCESS 900000 900000", "SUCCESS 1048576 1048576"]);
}

#[test]
fn a_forked_child_has_a_quota_of_its_own() {
    let answers = answers(&mut with_quota("1MiB", "fork init alloc:1048576 alloc:1"));
    assert_eq!(answers, ["SUCCESS", "SUCCESS", "OUT_OF_MEMORY"]);
}

#[test]
fn without_a_quota_nothing_changes() {
    let steps = "init total alloc:1000 pitch:100:10 async:1000 pool:1000 capture:1000 info free:0 free:1 async-free:2 \
                 free:3 graph-free:4 managed:10 create:10 array:9:9 mipmap:8:8:2 node:10 context alloc:10 leave null \
                 alloc:0 wrong-free reset release info";
    assert_eq!(answers(&mut through_shim(steps)), answers(&mut bare(steps)));
}

#[test]
fn a_quota_counts_on_lanes_too() {
    let mut command =
        with_quota("1MiB", "init async:1000000 thread:1000000 async-free:0 thread:1000000 info free:2 info");
    command.env("DETSHARE_SCHEDULE", "cycle");
    let expected = [
        "SUCCESS",
        "SUCCESS",
        "OUT_OF_MEMORY",
        "SUCCESS",
        "SUCCESS",
        "SUCCESS 48576 1048576",
        "SUCCESS",
        "SUCCESS 1048576 1048576",
    ];
    assert_eq!(answers(&mut command), expected);
}

#[test]
fn a_setting_that_is_no_size_is_a_line_in_the_log_and_no_quota() {
    let real = answers(&mut bare("init info"));
    for setting in ["lots", "0", "-1", "1.5GiB", "40XB", "GiB", "99999999999999999999", "99999999TiB"] {
        assert_eq!(answers(&mut with_quota(setting, "init info")), real, "{setting}");
        let output = finish(with_quota(setting, "init info").env("DETSHARE_LOG", "1"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(&format!("DETSHARE_MEM={setting}")), "{errors}");
    }
    let output = finish(with_quota("1GiB", "init info").env("DETSHARE_LOG", "1"));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("DETSHARE_MEM"));
}

#[test]
fn sizes_are_read_as_people_write_them() {
    let sizes = [
        ("40GiB", 40 << 30),
        ("40GB", 40 << 30),
        ("40G", 40 << 30),
        ("40 gib", 40 << 30),
        (" 512MiB ", 512 << 20),
        ("3k", 3 << 10),
        ("2TiB", 2 << 40),
        ("123456", 123_456),
        ("7B", 7),
    ];
    for (text, bytes) in sizes {
        assert_eq!(size::parse(text), Some(bytes), "{text}");
    }
}

#[test]
fn the_stats_say_what_was_used() {
    let stage = Stage::new();
    let mut command = with_quota("1MiB", "init alloc:1000 alloc:500 free:0 alloc:9999999");
    succeed(command.env("DETSHARE_STATS", stage.path().join("stats.json")));
    assert_eq!(stage.stats()["memory"], serde_json::json!({ "quota": MIB, "used": 500, "most": 1500 }));
    let without = Stage::new();
    succeed(&mut without.preloaded(Build::Opening, "work"));
    assert!(without.stats().get("memory").is_none());
}

mod arrays {
    use super::size::of_array;
    use detshare_cuda::types::{CUDA_ARRAY3D_DESCRIPTOR, CUarray_format as Format};

    fn bytes([width, height, depth]: [usize; 3], format: Format, channels: u32, flags: u32, levels: u32) -> u64 {
        let array = CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: format,
            NumChannels: channels,
            Flags: flags,
        };
        of_array(&array, levels)
    }

    #[test]
    fn an_array_takes_its_elements() {
        let float = Format::CU_AD_FORMAT_FLOAT;
        assert_eq!(bytes([100, 0, 0], float, 1, 0, 1), 400, "a line");
        assert_eq!(bytes([100, 10, 0], float, 4, 0, 1), 16_000, "a plane of four channels");
        assert_eq!(bytes([4, 4, 4], Format::CU_AD_FORMAT_HALF, 2, 0, 1), 256, "a cube of pairs of halves");
        assert_eq!(bytes([8, 8, 0], Format::CU_AD_FORMAT_BC1_UNORM, 4, 0, 1), 32, "four blocks");
        assert_eq!(bytes([8, 8, 0], Format::CU_AD_FORMAT_NV12, 3, 0, 1), 96, "one plane and two halves of a half");
        assert_eq!(bytes([0, 8, 8], float, 1, 0, 1), 0, "what a driver refuses");
    }

    #[test]
    fn levels_are_half_as_large_each() {
        let byte = Format::CU_AD_FORMAT_UNSIGNED_INT8;
        assert_eq!(bytes([8, 8, 0], byte, 1, 0, 4), 64 + 16 + 4 + 1);
        assert_eq!(bytes([8, 8, 0], byte, 1, 0, 99), 64 + 16 + 4 + 1, "no more than there are");
        assert_eq!(bytes([8, 8, 8], byte, 1, 0, 2), 512 + 64);
        assert_eq!(bytes([8, 8, 6], byte, 1, 1, 2), 384 + 96, "layers stay");
    }

    #[test]
    fn what_gets_its_memory_later_takes_none() {
        assert_eq!(bytes([8, 8, 0], Format::CU_AD_FORMAT_FLOAT, 1, 0x40, 1), 0);
        assert_eq!(bytes([8, 8, 0], Format::CU_AD_FORMAT_FLOAT, 1, 0x80, 1), 0);
    }

    #[test]
    fn no_size_is_too_large_to_refuse() {
        let huge = [usize::MAX; 3];
        assert_eq!(bytes(huge, Format::CU_AD_FORMAT_FLOAT, 4, 0, 64), u64::MAX);
    }
}

/// Physical memory, which the software GPU does not have: the bookkeeping by itself.
mod physical {
    use super::ledger::{Allocation, Ledger};

    const MEMORY: Allocation = Allocation { bytes: 100, device: 0, context: 7, graph: 0 };

    #[test]
    fn it_goes_with_the_last_handle() {
        let mut ledger = Ledger::default();
        ledger.created(5, MEMORY);
        let identity = ledger.releasing(5).expect("a handle");
        ledger.kept(5, identity);
        let identity = ledger.releasing(5).expect("still a handle");
        assert_eq!(ledger.released(identity), Some(MEMORY));
        assert_eq!(ledger.releasing(5), None);
    }

    #[test]
    fn a_mapping_holds_it_after_its_handle() {
        let mut ledger = Ledger::default();
        ledger.created(5, MEMORY);
        ledger.mapped(0x1000, 100, ledger.identity(5).expect("a handle"));
        let identity = ledger.releasing(5).expect("a handle");
        assert_eq!(ledger.released(identity), None);
        // The driver gives the same handle to other memory.
        let other = Allocation { bytes: 30, ..MEMORY };
        ledger.created(5, other);
        assert_eq!(ledger.unmapped(0x1000, 100), [MEMORY]);
        let identity = ledger.releasing(5).expect("the other's handle");
        assert_eq!(ledger.released(identity), Some(other));
    }

    #[test]
    fn one_more_handle_wants_one_more_release() {
        for again in [5, 6] {
            let mut ledger = Ledger::default();
            ledger.created(5, MEMORY);
            ledger.mapped(0x1000, 100, ledger.identity(5).expect("a handle"));
            ledger.referenced(again, 0x1020);
            ledger.referenced(again, 0x2000);
            assert!(ledger.unmapped(0x0f00, 0x1000).is_empty());
            let first = ledger.releasing(5).expect("a handle");
            assert_eq!(ledger.released(first), None);
            let second = ledger.releasing(again).expect("the other handle");
            assert_eq!(ledger.released(second), Some(MEMORY));
        }
    }

    #[test]
    fn it_goes_with_its_context() {
        let mut ledger = Ledger::default();
        ledger.created(5, MEMORY);
        ledger.mapped(0x1000, 100, ledger.identity(5).expect("a handle"));
        assert_eq!(ledger.take_context(7), [MEMORY]);
        assert!(ledger.unmapped(0x1000, 100).is_empty());
        let identity = ledger.releasing(5).expect("a handle that means nothing");
        assert_eq!(ledger.released(identity), None);
    }
}
