use super::*;

fn nothing(unit: Unit, clocks: u64) -> Step {
    Step {
        unit,
        clocks,
        latency: PASS,
        wait: Default::default(),
        barrier: false,
        priority: None,
        loaded: 0,
        stored: 0,
        direct: 0,
        flops: 0,
        writes: Vec::new(),
        reads: Vec::new(),
        accumulates: Vec::new(),
    }
}

/// A matrix instruction of four passes that adds to one of eight results.
fn matrix(result: u16) -> Step {
    Step {
        latency: 8 * PASS,
        writes: vec![result],
        accumulates: vec![result],
        ..nothing(Unit::Matrix, 4 * PASS)
    }
}

fn wait(memory: Option<usize>, shared: Option<usize>) -> Step {
    Step {
        wait: super::super::steps::Wait { memory, shared },
        ..nothing(Unit::Internal, PASS)
    }
}

fn load() -> Step {
    Step {
        loaded: 1024,
        ..nothing(Unit::Memory, 16)
    }
}

fn occupancy(blocks: u32, threads: u32) -> Occupancy {
    let path = Path {
        latency: 900,
        rate: 1e9,
    };
    Occupancy {
        blocks,
        threads,
        staggered: false,
        shared_latency: 52,
        loads: path,
        stores: path,
        one_memory: false,
    }
}

fn close(found: f64, expected: f64) {
    assert!(
        (found / expected - 1.0).abs() < 0.02,
        "{found} in place of {expected}"
    );
}

#[test]
fn matrix_instructions_back_to_back_keep_the_matrix_cores_busy() {
    let steps: Vec<Step> = (0..32).map(|number| matrix(number % 8)).collect();
    let steady = run(&steps, occupancy(1, 256)).unwrap();
    close(steady.clocks, 32.0 * 16.0);
    close(steady.matrix, 1.0);
}

#[test]
fn a_result_that_is_used_otherwise_is_waited_for() {
    let mut steps = vec![matrix(0)];
    steps.push(Step {
        reads: vec![0],
        ..nothing(Unit::Vector, PASS)
    });
    // 32 clocks of latency and one issue.
    close(run(&steps, occupancy(1, 64)).unwrap().clocks, 36.0);
}

#[test]
fn reads_of_shared_memory_bound_a_loop_whose_reads_take_longer_than_its_products() {
    let mut steps: Vec<Step> = (0..8).map(|_| nothing(Unit::Shared, 8)).collect();
    steps.push(wait(None, Some(0)));
    steps.extend((0..4).map(matrix));
    // Eight waves of 64 clocks in one shared memory; two waves of 64 clocks in each matrix core.
    let steady = run(&steps, occupancy(1, 512)).unwrap();
    close(steady.clocks, 512.0);
    close(steady.shared, 1.0);
    close(steady.matrix, 0.25);
    // Conflicts double the clocks of an access.
    steps.iter_mut().for_each(|step| {
        if step.unit == Unit::Shared {
            step.clocks *= 2;
        }
    });
    close(run(&steps, occupancy(1, 512)).unwrap().clocks, 1024.0);
}

#[test]
fn loads_in_flight_over_the_latency_are_the_rate_and_more_waves_hide_more() {
    let steps = [load(), load(), load(), load(), wait(Some(0), None)];
    let alone = run(&steps, occupancy(1, 64)).unwrap();
    // Issues and the latency.
    assert!((900.0..1000.0).contains(&alone.clocks), "{}", alone.clocks);
    assert_eq!(alone.loads_in_flight, 4096);
    let eight = run(&steps, occupancy(2, 256)).unwrap();
    assert!(eight.clocks < 1.5 * alone.clocks, "{}", eight.clocks);
    assert_eq!(eight.loads_in_flight, 8 * 4096);
}

#[test]
fn a_slow_link_is_kept_full() {
    let steps = [load(), load(), load(), load(), wait(Some(0), None)];
    let mut given = occupancy(1, 512);
    given.loads.rate = 8.0;
    close(run(&steps, given).unwrap().clocks, 8.0 * 4096.0 / 8.0);
}

#[test]
fn a_barrier_makes_waves_wait_and_one_that_none_reach_is_an_end() {
    let mut steps: Vec<Step> = (0..8).map(matrix).collect();
    let without = run(&steps, occupancy(1, 256)).unwrap().clocks;
    steps.push(Step {
        barrier: true,
        ..nothing(Unit::Internal, PASS)
    });
    let with = run(&steps, occupancy(1, 256)).unwrap().clocks;
    assert!(with > without, "{with} {without}");
    assert_eq!(run(&[], occupancy(1, 256)), None);
}

#[test]
fn two_groups_that_take_turns_overlap_reads_and_products() {
    let barrier = || Step {
        barrier: true,
        ..nothing(Unit::Internal, PASS)
    };
    let mut steps: Vec<Step> = (0..8).map(|_| nothing(Unit::Shared, 8)).collect();
    steps.extend([wait(None, Some(0)), barrier()]);
    steps.extend((0..32).map(|number| matrix(number % 8)));
    steps.push(barrier());
    let mut given = occupancy(1, 512);
    let together = run(&steps, given).unwrap();
    given.staggered = true;
    let in_turn = run(&steps, given).unwrap();
    assert!(in_turn.matrix > 0.9, "{}", in_turn.matrix);
    assert!(together.matrix < 0.9, "{}", together.matrix);
}
