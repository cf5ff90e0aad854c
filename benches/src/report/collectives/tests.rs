use super::*;

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9 * b.abs()
}

#[test]
fn bus_bandwidth_is_what_nccl_tests_says() {
    use Collective::*;
    // The factors of nccl-tests' PERFORMANCE.md, at 8 ranks.
    for (collective, factor) in [
        (AllReduce, 1.75),
        (AllGather, 0.875),
        (ReduceScatter, 0.875),
        (AllToAll, 0.875),
        (Gather, 0.875),
        (Scatter, 0.875),
        (Broadcast, 1.0),
        (Reduce, 1.0),
    ] {
        assert_eq!(collective.bus_factor(8), factor, "{collective:?}");
    }
    assert_eq!(AllReduce.bus_factor(2), 1.0);
    assert_eq!(AllReduce.bus_factor(1), 0.0);
}

#[test]
fn bandwidths_are_bytes_over_time() {
    let mut point = example().points[0].clone();
    (point.collective, point.bytes) = (Collective::AllReduce, 1 << 30);
    // A gibibyte in 5 ms.
    let (algbw, busbw) = point.bandwidths(8, 5e6);
    assert!(near(algbw, 214.748_364_8) && near(busbw, algbw * 1.75));
}

#[test]
fn a_time_is_the_median_of_its_rounds() {
    let time = Time::from_rounds(&[4.0, 10.0, 5.0]).unwrap();
    assert!(near(time.ns, 5.0) && near(time.min, 4.0) && near(time.max, 10.0));
    assert_eq!(Time::from_rounds(&[]), None);
    assert_eq!(Time::from_rounds(&[1.0, f64::NAN]), None);
}

/// A section with one replayed point of symmem and baselines `(name, out of place, in place)`.
fn beside(ours: f64, baselines: &[(&str, Option<f64>, Option<f64>)]) -> CollectiveResults {
    let placed = |ns: f64| PlacementResults {
        graph: Time::from_rounds(&[ns]),
        looped: Time::from_rounds(&[ns * 3.0]),
        ..PlacementResults::default()
    };
    let point = |by: &str, out: Option<f64>, within: Option<f64>| CollectivePoint {
        by: by.into(),
        out_of_place: out.map(placed),
        in_place: within.map(placed),
        ..example().points[0].clone()
    };
    let mut points = vec![point(OURS, Some(ours), Some(ours))];
    points.extend(
        baselines
            .iter()
            .map(|(by, out, within)| point(by, *out, *within)),
    );
    CollectiveResults {
        points,
        ..example()
    }
}

fn at(section: &CollectiveResults, placement: Placement) -> Option<(f64, &str)> {
    let point = &section.points[0];
    let found = section.comparison(point.collective, point.bytes, placement)?;
    Some((found.ratio, found.best))
}

#[test]
fn the_best_baseline_counts_in_each_placement() {
    let section = beside(
        10.0,
        &[("a", Some(12.0), Some(30.0)), ("b", Some(20.0), Some(8.0))],
    );
    let (ratio, best) = at(&section, Placement::OutOfPlace).unwrap();
    assert!(near(ratio, 1.2) && best == "a");
    let (ratio, best) = at(&section, Placement::InPlace).unwrap();
    assert!(near(ratio, 0.8) && best == "b");
    let mean = section.geometric_mean(None).unwrap();
    assert!(near(mean, (1.2f64 * 0.8).sqrt()), "{mean}");
    assert_eq!(section.geometric_mean(Some(Collective::Scatter)), None);
}

#[test]
fn other_algorithms_of_symmem_are_baselines_only_where_no_other_library_is() {
    let own = ("symmem two_shot", Some(9.0), Some(9.0));
    let both = beside(10.0, &[own, ("a", Some(12.0), Some(12.0))]);
    let (ratio, best) = at(&both, Placement::OutOfPlace).unwrap();
    assert!(near(ratio, 1.2) && best == "a");
    let alone = beside(10.0, &[own]);
    let (ratio, best) = at(&alone, Placement::OutOfPlace).unwrap();
    assert!(near(ratio, 0.9) && best == "symmem two_shot");
}

#[test]
fn a_summary_has_every_ratio_and_every_mean() {
    let summary = example().summarize().unwrap();
    assert_eq!(
        summary.ratios.len(),
        2 * 3 * 2,
        "operations, sizes, placements"
    );
    let names: Vec<&str> = summary.means.keys().map(String::as_str).collect();
    assert_eq!(names, ["all", "all_gather", "all_reduce"]);
    let first = &summary.ratios[0];
    assert_eq!((first.bytes, first.best.as_str()), (1024, "torch one-shot"));
    assert_eq!(beside(1.0, &[]).summarize(), None);
}

#[test]
fn a_baseline_with_one_placement_stands_in_both() {
    let section = beside(
        10.0,
        &[("a", Some(20.0), Some(20.0)), ("b", None, Some(11.0))],
    );
    for placement in Placement::ALL {
        let (ratio, best) = at(&section, placement).unwrap();
        assert!(near(ratio, 1.1) && best == "b");
    }
}

#[test]
fn a_placement_that_no_baseline_knows_is_not_compared() {
    let section = beside(10.0, &[("a", Some(20.0), None), ("b", Some(12.0), None)]);
    assert!(at(&section, Placement::OutOfPlace).is_some());
    assert_eq!(at(&section, Placement::InPlace), None);
}

#[test]
fn replay_is_compared_with_replay_and_loop_with_loop() {
    let mut section = beside(10.0, &[("a", Some(20.0), Some(20.0))]);
    let point = &mut section.points[1];
    for placed in [&mut point.out_of_place, &mut point.in_place] {
        let placed = placed.as_mut().unwrap();
        placed.graph = None;
        placed.looped = Time::from_rounds(&[15.0]);
    }
    let (ratio, _) = at(&section, Placement::OutOfPlace).unwrap();
    assert!(near(ratio, 0.5), "ours took 30 in a loop: {ratio}");
}

#[test]
fn beside_what_cannot_be_replayed_loops_stand_for_all() {
    let mut section = beside(10.0, &[("a", Some(20.0), None), ("b", Some(20.0), None)]);
    let headline = |section: &CollectiveResults| {
        let placed = section.points[0].out_of_place.unwrap();
        section.headline(&placed).unwrap().ns
    };
    section.points[1].out_of_place.as_mut().unwrap().graph = None;
    assert!(near(headline(&section), 10.0), "one of the two can");
    section.points[2].out_of_place.as_mut().unwrap().graph = None;
    assert!(near(headline(&section), 30.0));
    section.points.truncate(1);
    assert!(
        near(headline(&section), 10.0),
        "there is nobody to compare with"
    );
}

#[test]
fn what_is_wrong_takes_no_part() {
    let mut section = beside(
        10.0,
        &[("a", Some(12.0), None), ("b", Some(30.0), Some(30.0))],
    );
    section.points[1].out_of_place.as_mut().unwrap().wrong = 1;
    assert_eq!(at(&section, Placement::OutOfPlace).unwrap().1, "b");
    assert_eq!(section.wrong_points().count(), 1);
    section.points[0].in_place.as_mut().unwrap().wrong = 1;
    assert_eq!(at(&section, Placement::OutOfPlace), None);
    assert_eq!(section.geometric_mean(None), None);
}

#[test]
fn names_are_read_as_they_are_written() {
    for collective in Collective::ALL {
        assert_eq!(Collective::parse(collective.name()), Some(collective));
        let json = serde_json::to_string(&collective).unwrap();
        assert_eq!(json, format!("\"{}\"", collective.name()));
    }
    assert_eq!(Collective::parse("allreduce"), None);
}
