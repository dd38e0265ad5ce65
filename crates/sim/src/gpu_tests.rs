use super::*;
use crate::trace;
use proptest::prelude::*;

const SMS: u32 = 132;
/// Everything is so short that a reference can go through every nanosecond.
const COSTS: Costs = Costs { cold_ns: 10, block_ns: 30, slice_ns: 100, switch_ns: 10, ..Costs::H200 };

fn model(ns: u64, nodes: u32, bound: trace::Bound) -> Model {
    let durations = vec![trace::OnSms { sms: SMS, ns }];
    let kernel = trace::Kernel { id: String::new(), name: String::new(), nodes, bound: Some(bound), durations };
    Model::new(&kernel, SMS, &COSTS)
}

fn on_all(kernel: usize, ready_ns: u64) -> Work {
    Work { kernel, lane: 0..SMS, ready_ns, ends_step: false }
}

/// Launches at their times, and when which stream's kernel has ended then.
fn ends(gpu: &mut Gpu<'_>, launches: &[(u64, usize, Work)]) -> Vec<(u64, usize, usize)> {
    let mut ends = Vec::new();
    let mut run_until = |gpu: &mut Gpu<'_>, until_ns: u64| {
        while gpu.next_ns() != NEVER && gpu.next_ns() <= until_ns {
            let now_ns = gpu.next_ns();
            ends.extend(gpu.step().map(|ended| (now_ns, ended.stream, ended.kernel)));
        }
    };
    for (at_ns, stream, work) in launches {
        run_until(gpu, *at_ns);
        gpu.launch(*stream, work.clone());
    }
    run_until(gpu, NEVER);
    ends
}

#[test]
fn a_stream_is_in_order_and_as_fast_as_its_kernels() {
    let models = [model(1_000, 1, trace::Bound::Compute), model(50, 1, trace::Bound::Memory)];
    let mut gpu = Gpu::new(&models, 1, Sharing::AtOnce, COSTS);
    let launches = [(0, 0, on_all(0, 3)), (1, 0, on_all(1, 4)), (2, 0, on_all(0, 5)), (9_000, 0, on_all(1, 9_003))];
    assert_eq!(ends(&mut gpu, &launches), [(1_003, 0, 0), (1_053, 0, 1), (2_053, 0, 0), (9_053, 0, 1)]);
}

#[test]
fn two_at_once_take_twice_as_long_and_who_is_left_has_all() {
    let models = [model(1_000, 1, trace::Bound::Compute)];
    let mut gpu = Gpu::new(&models, 2, Sharing::AtOnce, Costs { cold_ns: 0, ..COSTS });
    let launches = [(0, 0, on_all(0, 0)), (0, 1, on_all(0, 500))];
    // From 500 on at half speed: 500 of the first are left, then 500 of the second.
    assert_eq!(ends(&mut gpu, &launches), [(1_500, 0, 0), (2_000, 1, 0)]);
}

#[test]
fn after_others_a_stream_finds_its_caches_cold_once() {
    let models = [model(100, 1, trace::Bound::Compute), model(1_000, 1, trace::Bound::Compute)];
    let costs = Costs { cold_ns: 10, cold_part: 50, ..COSTS };
    let mut gpu = Gpu::new(&models, 2, Sharing::AtOnce, costs);
    let mut launches = vec![(0, 0, on_all(0, 0)), (200, 1, on_all(0, 200))];
    // 5 % each, until it has been 10 ns.
    launches.extend((0..4).map(|_| (400, 0, on_all(0, 400))));
    launches.push((2_000, 0, on_all(0, 2_000)));
    let times: Vec<u64> = ends(&mut gpu, &launches).into_iter().map(|(at, ..)| at).collect();
    assert_eq!(times, [100, 305, 505, 610, 710, 810, 2_100]);
}

#[test]
fn by_turns_each_has_a_slice_and_handing_over_takes_time() {
    let models = [model(250, 1, trace::Bound::Compute)];
    let costs = Costs { cold_ns: 0, ..COSTS };
    let mut gpu = Gpu::new(&models, 2, Sharing::ByTurns, costs);
    let launches = [(0, 0, on_all(0, 0)), (0, 1, on_all(0, 0))];
    // 0: 0..100, 220..320, 440..490; 1: 110..210, 330..430, 500..550.
    assert_eq!(ends(&mut gpu, &launches), [(490, 0, 0), (550, 1, 0)]);
}

#[test]
fn who_had_more_than_a_slice_gives_way_at_once_and_who_came_back_does_not() {
    let models = [model(1_000, 1, trace::Bound::Compute), model(50, 1, trace::Bound::Compute)];
    let costs = Costs { cold_ns: 0, ..COSTS };
    let mut gpu = Gpu::new(&models, 2, Sharing::ByTurns, costs);
    let comes_late = [(0, 0, on_all(0, 0)), (500, 1, on_all(1, 500))];
    assert_eq!(ends(&mut gpu, &comes_late)[0], (560, 1, 1));
    let mut gpu = Gpu::new(&models, 2, Sharing::ByTurns, costs);
    let came_back = [(0, 0, on_all(1, 0)), (600, 0, on_all(0, 600)), (640, 1, on_all(1, 640))];
    assert_eq!(ends(&mut gpu, &came_back)[1], (600 + 100 + 10 + 50, 1, 1), "the slice of who came back is waited for");
}

/// Kernels that are launched into streams at random.
fn launches() -> impl Strategy<Value = (Vec<Model>, Vec<(u64, usize, Work)>)> {
    let bound = prop_oneof![Just(trace::Bound::Compute), Just(trace::Bound::Memory)];
    let models = proptest::collection::vec((1..150_u64, 1..5_u32, bound), 1..5);
    let lane = prop::sample::select(vec![0..SMS, 0..96, 96..SMS, 0..16, 64..SMS]);
    let launch = (0..60_u64, 0..3_usize, any::<prop::sample::Index>(), lane, 1..10_u64);
    (models, proptest::collection::vec(launch, 1..40)).prop_map(|(models, launches)| {
        let models: Vec<Model> = models.into_iter().map(|(ns, nodes, bound)| model(ns, nodes, bound)).collect();
        let mut now_ns = 0;
        let launches = launches.into_iter().map(|(later, stream, kernel, lane, ready)| {
            now_ns += later;
            let work = Work { kernel: kernel.index(models.len()), lane, ready_ns: now_ns + ready, ends_step: false };
            (now_ns, stream, work)
        });
        let launches = launches.collect();
        (models, launches)
    })
}

/// A stream, nanosecond by nanosecond.
#[derive(Default)]
struct Slow {
    queue: VecDeque<Work>,
    left: Option<u64>,
    cold_ns: u64,
    /// Others have begun something since this one had nothing to do.
    is_cold: bool,
    has_rested: bool,
}

/// The same as the GPU, nanosecond by nanosecond.
fn ends_one_by_one(models: &[Model], launches: &[(u64, usize, Work)]) -> Vec<(u64, usize, usize)> {
    let mut streams: Vec<Slow> = (0..3).map(|_| Slow { has_rested: true, ..Slow::default() }).collect();
    let mut ends = Vec::new();
    let mut launches = launches.iter().peekable();
    let mut now_ns = 0;
    while launches.peek().is_some() || streams.iter().any(|stream| !stream.queue.is_empty()) {
        for number in 0..streams.len() {
            if streams[number].left == Some(0) {
                let work = streams[number].queue.pop_front().expect("it was running");
                ends.push((now_ns, number, work.kernel));
                streams[number].left = None;
                streams[number].has_rested |= streams[number].queue.is_empty();
            }
            let is_ready = streams[number].queue.front().is_some_and(|work| work.ready_ns <= now_ns);
            if is_ready && streams[number].left.is_none() {
                let stream = &mut streams[number];
                if stream.has_rested && stream.is_cold {
                    stream.cold_ns = COSTS.cold_ns;
                }
                let lasts_ns = models[stream.queue[0].kernel].lasts_ns;
                let longer_ns = stream.cold_ns.min(lasts_ns * COSTS.cold_part / 1_000);
                stream.cold_ns -= longer_ns;
                stream.left = Some((lasts_ns + longer_ns) * FULL_SPEED);
                (stream.has_rested, stream.is_cold) = (false, false);
                for (other, stream) in streams.iter_mut().enumerate() {
                    stream.is_cold |= other != number && stream.has_rested;
                }
            }
        }
        let running: Vec<usize> = (0..streams.len()).filter(|number| streams[*number].left.is_some()).collect();
        let placed: Vec<Placed<'_>> = running
            .iter()
            .map(|number| &streams[*number].queue[0])
            .map(|work| Placed { model: &models[work.kernel], lane: work.lane.clone() })
            .collect();
        let mut found = Vec::new();
        if !placed.is_empty() {
            speeds(&placed, &COSTS, &mut found);
        }
        for (number, speed) in running.iter().zip(found) {
            streams[*number].left = streams[*number].left.map(|left| left.saturating_sub(speed));
        }
        while let Some((_, stream, work)) = launches.next_if(|(at_ns, ..)| *at_ns == now_ns) {
            streams[*stream].queue.push_back(work.clone());
        }
        now_ns += 1;
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn kernels_end_when_they_would_nanosecond_by_nanosecond((models, launches) in launches()) {
        let mut gpu = Gpu::new(&models, 3, Sharing::AtOnce, COSTS);
        prop_assert_eq!(ends(&mut gpu, &launches), ends_one_by_one(&models, &launches));
    }

    #[test]
    fn every_launch_ends_once_and_in_its_streams_order((models, launches) in launches(), by_turns in any::<bool>()) {
        let sharing = if by_turns { Sharing::ByTurns } else { Sharing::AtOnce };
        let mut gpu = Gpu::new(&models, 3, sharing, COSTS);
        let ends = ends(&mut gpu, &launches);
        for stream in 0..3 {
            let launched: Vec<usize> = launches.iter().filter(|it| it.1 == stream).map(|it| it.2.kernel).collect();
            let ended: Vec<usize> = ends.iter().filter(|it| it.1 == stream).map(|it| it.2).collect();
            prop_assert_eq!(launched, ended);
        }
        prop_assert!(ends.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    /// Where one runs at a time on all SMs, the GPU is never idle and never does more than there is.
    #[test]
    fn turns_lose_no_work(counts in proptest::collection::vec(1..6_usize, 1..4), ns in 1..400_u64) {
        let models = [model(ns, 1, trace::Bound::Compute)];
        let costs = Costs { cold_ns: 0, ..COSTS };
        let mut gpu = Gpu::new(&models, counts.len(), Sharing::ByTurns, costs);
        let mut launches = Vec::new();
        for (stream, count) in counts.iter().enumerate() {
            launches.extend((0..*count).map(|_| (0, stream, on_all(0, 0))));
        }
        let over_ns = ends(&mut gpu, &launches).last().map_or(0, |it| it.0);
        let work_ns = ns * u64::try_from(launches.len()).unwrap();
        let idle_ns = over_ns - work_ns;
        prop_assert_eq!(idle_ns % COSTS.switch_ns, 0, "only handing over takes time");
        let most = if counts.len() == 1 { 0 } else { work_ns / COSTS.slice_ns + u64::try_from(counts.len()).unwrap() };
        prop_assert!(idle_ns / COSTS.switch_ns <= most, "{} of {}", idle_ns, over_ns);
    }
}
