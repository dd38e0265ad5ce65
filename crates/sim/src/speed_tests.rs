use super::*;
use proptest::prelude::*;

const SMS: u32 = 132;

fn kernel(ns: u64, nodes: u32, bound: Option<trace::Bound>) -> Model {
    let durations = vec![trace::OnSms { sms: SMS, ns }];
    let kernel = trace::Kernel { id: String::new(), name: String::new(), nodes, bound, durations };
    Model::new(&kernel, SMS, &Costs::H200)
}

fn compute(ns: u64) -> Model {
    kernel(ns, 1, Some(trace::Bound::Compute))
}

fn memory(ns: u64) -> Model {
    kernel(ns, 1, Some(trace::Bound::Memory))
}

fn of(placed: &[(&Model, Sms)]) -> Vec<u64> {
    let placed: Vec<Placed<'_>> = placed.iter().map(|(model, lane)| Placed { model, lane: lane.clone() }).collect();
    let mut found = Vec::new();
    speeds(&placed, &Costs::H200, &mut found);
    found
}

#[test]
fn fewer_sms_slow_down_what_computes_and_hardly_what_waits_for_memory() {
    let (busy, waiting) = (compute(300_000), memory(300_000));
    assert_eq!(of(&[(&busy, 0..SMS)]), [FULL_SPEED]);
    assert_eq!(of(&[(&busy, 0..SMS / 2)]), [FULL_SPEED / 2]);
    assert_eq!(busy.lasts_on(SMS / 2), 600_000);
    assert_eq!(of(&[(&waiting, 0..SMS)]), [FULL_SPEED]);
    assert_eq!(of(&[(&waiting, 0..SMS / 2)]), [FULL_SPEED * 950 / 1_000]);
    assert_eq!(of(&[(&waiting, 96..SMS)]), [FULL_SPEED * 950 / 1_000 * 36 / 66]);
}

#[test]
fn what_was_measured_is_kept_to() {
    let durations = [(64, 1_600), (96, 1_330), (SMS, 1_187)].map(|(sms, ns)| trace::OnSms { sms, ns: ns * 1_000 });
    let kernel = trace::Kernel {
        id: String::new(),
        name: String::new(),
        nodes: 200,
        bound: None,
        durations: durations.to_vec(),
    };
    let model = Model::new(&kernel, SMS, &Costs::H200);
    for on in durations {
        assert!(model.lasts_on(on.sms).abs_diff(on.ns) < 100, "{} on {}", model.lasts_on(on.sms), on.sms);
    }
    assert!((1_330_000..1_600_000).contains(&model.lasts_on(80)), "{}", model.lasts_on(80));
    assert_eq!(model.lasts_on(32) / 1_000, 3_200, "below what was measured, half of the SMs are half as fast");
    assert_eq!(model.bound, Some(Bound::Memory), "it lacks half of the SMs and is slower by a third");
    assert_eq!(
        told_by_durations(&[(66, 190), (132, 100)].map(|(sms, ns)| trace::OnSms { sms, ns })),
        Some(Bound::Compute)
    );
    assert_eq!(told_by_durations(&durations[2..]), None);
}

#[test]
fn equals_halve_the_sms_and_others_are_not_touched() {
    let one = compute(300_000);
    assert_eq!(of(&[(&one, 0..SMS), (&one, 0..SMS)]), [FULL_SPEED / 2; 2]);
    let (front, rest) = (FULL_SPEED * 96 / 132, FULL_SPEED * 36 / 132);
    assert_eq!(of(&[(&one, 0..96), (&one, 96..SMS)]), [front, rest]);
    let [on_all, on_rest] = of(&[(&one, 0..SMS), (&one, 96..SMS)])[..] else { panic!("there are two") };
    assert!(on_all.abs_diff(front + rest / 2) <= 1 && on_rest.abs_diff(rest / 2) <= 1);
}

#[test]
fn a_graph_of_short_kernels_is_slow_beside_long_ones() {
    let (graph, long) = (kernel(1_185_000, 200, Some(trace::Bound::Memory)), compute(300_000));
    let [step, training] = of(&[(&graph, 0..SMS), (&long, 0..SMS)])[..] else { panic!("there are two") };
    assert!((5..14).contains(&(FULL_SPEED / step)), "{step}: its kernels wait for room, one after the other");
    assert!(training > FULL_SPEED * 8 / 10, "{training}");
}

#[test]
fn memory_bandwidth_is_shared() {
    let (decode, compute, copy) = (memory(4_800_000), compute(300_000), memory(300_000));
    let beside = |other: &Model| of(&[(&decode, 0..96), (other, 96..SMS)]);
    let alone = of(&[(&decode, 0..96)])[0];
    assert!(beside(&compute)[0] > alone * 93 / 100, "who computes takes little of it");
    assert!(beside(&copy)[0] < alone * 75 / 100, "who does not takes much");
    assert!(beside(&copy).iter().sum::<u64>() <= FULL_SPEED);
}

fn model() -> impl Strategy<Value = Model> {
    let bound = prop_oneof![Just(trace::Bound::Compute), Just(trace::Bound::Memory)];
    (1..2_000_000_u64, 1..300_u32, bound).prop_map(|(ns, nodes, bound)| kernel(ns, nodes, Some(bound)))
}

fn lane() -> impl Strategy<Value = Sms> {
    let ladder = prop::sample::select(vec![16, 32, 48, 64, 96_u32]);
    (ladder, 0..3_u8).prop_map(|(split, side)| match side {
        0 => 0..SMS,
        1 => 0..split,
        _ => split..SMS,
    })
}

/// The same SM by SM, in parts of 2³², as one would say it.
fn widths_one_by_one(placed: &[Placed<'_>]) -> Vec<u128> {
    const WHOLE: u128 = 1 << 32;
    let mut widths = vec![0; placed.len()];
    for sm in 0..SMS {
        let here: Vec<usize> = (0..placed.len()).filter(|index| placed[*index].lane.contains(&sm)).collect();
        let weight = |index: usize| {
            let others = here.iter().filter(|other| **other != index).map(|other| placed[*other].model.node_ns);
            u128::from(placed[index].model.weight(others.max().unwrap_or(0), &Costs::H200))
        };
        let total: u128 = here.iter().map(|index| weight(*index)).sum();
        here.iter().for_each(|index| widths[*index] += WHOLE * weight(*index) / total);
    }
    widths
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sms_are_shared_as_one_by_one(models in proptest::collection::vec((model(), lane()), 2..8)) {
        let placed: Vec<Placed<'_>> =
            models.iter().map(|(model, lane)| Placed { model, lane: lane.clone() }).collect();
        let mut found = Vec::new();
        widths(&placed, &Costs::H200, &mut found);
        for (width, expected) in found.iter().zip(widths_one_by_one(&placed)) {
            let expected = (expected * u128::from(PARTS_OF_AN_SM)) >> 32;
            // Each piece of the GPU is rounded down.
            let pieces = 2 * u128::try_from(models.len()).unwrap();
            prop_assert!(u128::from(*width).abs_diff(expected) <= pieces + 1, "{} {}", width, expected);
        }
        // Every SM that somebody is on is used, by no more than there is of it.
        let used = (0..SMS).filter(|sm| placed.iter().any(|one| one.lane.contains(sm))).count();
        let used = u64::try_from(used).unwrap() * PARTS_OF_AN_SM;
        let sum: u64 = found.iter().sum();
        let rounded = 4 * u64::try_from(models.len() * models.len()).unwrap();
        prop_assert!(sum <= used && sum + rounded >= used, "{} of {}", sum, used);
    }

    #[test]
    fn nobody_stands_still_and_bandwidth_suffices(models in proptest::collection::vec((model(), lane()), 1..8)) {
        let placed: Vec<(&Model, Sms)> = models.iter().map(|(model, lane)| (model, lane.clone())).collect();
        let found = of(&placed);
        prop_assert!(found.iter().all(|speed| (1..=FULL_SPEED).contains(speed)));
        let sum = |is_memory_bound| -> u64 {
            let these = placed.iter().zip(&found).filter(|((model, _), _)| model.is_memory_bound() == is_memory_bound);
            these.map(|(_, speed)| *speed).sum()
        };
        let (computing, waiting) = (sum(false), sum(true));
        prop_assert!(computing <= FULL_SPEED);
        let bandwidth = waiting + computing * Costs::H200.compute_bandwidth / 1_000;
        // One part each where nobody stands still.
        prop_assert!(bandwidth <= FULL_SPEED + u64::try_from(models.len()).unwrap() + 1, "{}", bandwidth);
    }
}
