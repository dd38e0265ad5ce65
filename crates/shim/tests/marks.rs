//! What is known of events that were recorded.

#[path = "../src/marks.rs"]
mod marks;

use detshare_cuda::types::CUevent;

fn event(number: usize) -> CUevent {
    CUevent(core::ptr::without_provenance_mut(number))
}

#[test]
fn the_last_recording_counts() {
    marks::set(event(8), 3);
    marks::set(event(16), 4);
    marks::set(event(8), 7);
    assert_eq!((marks::find(event(8)), marks::find(event(16))), (Some(7), Some(4)));
    assert_eq!(marks::find(event(24)), None);
    for number in 1..=100 {
        marks::set(event(1_000 + number), 7 + number as u64);
    }
    assert_eq!(marks::find(event(8)), None, "long ago");
    assert_eq!(marks::find(event(1_100)), Some(107));
}
