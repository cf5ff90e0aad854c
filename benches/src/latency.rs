//! Times of single messages, as half of a round trip between the ranks of the first pair.

use super::pairs::Run;
use super::perftest::Test;
use super::sizes::Effort;
use super::{BenchError, Result, exchange};
use crate::report::{Latency, LatencyBaseline, Report, Spread};
use std::time::Instant;
use symmem::backend::abi::{DeviceAddress, Geometry, LatencyArguments, RawStream, SIGNAL_STRIDE};
use symmem::backend::{Device, argument_bytes};

/// Payload bytes and threads of a put with signal: a word by a warp, and 8 bytes per thread by a block of 128
/// threads. Two slots of a payload and the flag fit into one place of the inbox.
const PAYLOADS: [(u64, u32); 2] = [(8, 32), (1024, 128)];

/// Bytes of the message that host calls exchange.
const MESSAGE: usize = 8;

/// Measures latencies inside kernels, if the backend has kernels, and by host calls. Collective.
pub(super) fn measure(run: &mut Run<'_>, report: &mut Report) -> Result<()> {
    if !run.by_caller && !run.across {
        if run.session.communicator.shares_device() {
            let note = "latency between kernels was not measured: ranks share a device, so kernels that wait \
                        for each other may not run at the same time";
            report.notes.push(note.into());
        } else {
            let packet = in_kernels(run, "symmem_latency_packet", 8, 32)?;
            let name = "packet of 8 bytes with its flag, to a polling kernel";
            report.latencies.push(latency(name.into(), packet));
            for (bytes, threads) in PAYLOADS {
                let ours = in_kernels(run, "symmem_latency_signal", bytes, threads)?;
                let name = format!(
                    "put of {bytes} bytes by {threads} threads, release, signal, to a polling kernel"
                );
                report.latencies.push(Latency {
                    baseline: beside(run, bytes, threads)?,
                    ..latency(name, ours)
                });
            }
        }
    }
    let calls = by_calls(run)?;
    let beside = beside_calls(run)?;
    let name = format!("put_signal of {MESSAGE} bytes to wait_signal, by calls of the host");
    let mut calls = Latency {
        baseline: beside,
        ..latency(name, calls)
    };
    let ranks = run.session.communicator.world_size();
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    if run.by_caller && ranks > processors {
        calls.note = Some(format!("{ranks} ranks share {processors} processors"));
    }
    report.latencies.push(calls);
    Ok(())
}

fn latency(name: String, (one_way_ns, rounds): (Spread, u32)) -> Latency {
    Latency {
        name,
        one_way_ns,
        rounds,
        baseline: None,
        note: None,
    }
}

/// Returns the spread of rank 0's samples on all ranks. Collective.
fn share(run: &Run<'_>, samples: Vec<f64>, what: &str, rounds: u32) -> Result<(Spread, u32)> {
    let communicator = run.session.communicator;
    let mut all = exchange::all_gather(communicator, &samples)?;
    match Spread::from_samples(&all.swap_remove(0)) {
        Some(spread) => Ok((spread, rounds)),
        None => Err(BenchError::NoTime {
            rank: communicator.rank(),
            what: what.into(),
            advice: "a wait timed out or a payload was wrong; run `symmem selftest`",
        }),
    }
}

/// Number of places in the inbox that launches use in turn, and bytes between them. The L2 partition of a line
/// changes the latency by up to 0.15 µs (H200), so that a single place would give random results.
const PLACES: u32 = 16;
const PLACE_BYTES: u64 = 4096 + SIGNAL_STRIDE;

/// Times round trips inside one kernel on each of two ranks. A sample is the mean of a launch.
fn in_kernels(run: &Run<'_>, kernel: &str, bytes: u64, threads: u32) -> Result<(Spread, u32)> {
    let (launches, rounds) = match run.effort {
        Effort::Quick => (1 + PLACES, 100),
        Effort::Overview | Effort::Standard | Effort::Full => (1 + 3 * PLACES, 500),
    };
    let communicator = run.session.communicator;
    let rank = communicator.rank();
    let stream = &run.session.stream;
    // SAFETY: the backend only launches a kernel on buffers that outlive the synchronization after it.
    let backend = unsafe { communicator.backend() };
    let failed = |failure| BenchError::Backend {
        rank,
        operation: "timing a message",
        failure,
    };
    let function = backend.builtin_function(kernel).map_err(failed)?;
    let inbox = communicator.allocate::<u8>(&[(u64::from(PLACES) * PLACE_BYTES) as usize])?;
    let result = communicator.allocate::<u64>(&[1])?;
    let mut samples = Vec::new();
    for launch in 0..launches {
        stream.barrier()?;
        if rank < 2 {
            let peer = 1 - rank;
            let place = u64::from(launch % PLACES) * PLACE_BYTES;
            let arguments = LatencyArguments {
                local: DeviceAddress(inbox.local().address().0 + place),
                remote: DeviceAddress(inbox.peer(peer)?.address().0 + place),
                bytes,
                result: DeviceAddress(result.local().address().0),
                watch: communicator.watch(communicator.deadline()),
                rounds,
                base: launch / PLACES * rounds,
                first: (rank == 0).into(),
                peer: peer as u32,
            };
            let geometry = Geometry {
                blocks: [1; 3],
                threads: [threads, 1, 1],
                shared_memory: 0,
            };
            let bytes = argument_bytes(&arguments);
            // SAFETY: the kernel takes these arguments; the buffers live until the stream is
            // synchronized below, and the words of the watch as long as the communicator.
            unsafe {
                let raw = RawStream(stream.raw());
                backend.launch(function, &geometry, bytes, raw)
            }
            .map_err(failed)?;
        }
        stream.synchronize()?;
        let mut nanoseconds = [0];
        result.read(stream, 0, &mut nanoseconds)?;
        // The first launch is a warm-up. All ones means that a wait timed out; 0 makes the sample invalid.
        if launch > 0 && rank == 0 {
            let given_up = nanoseconds[0] == u64::MAX;
            let one_way = nanoseconds[0] as f64 / f64::from(2 * rounds);
            samples.push(if given_up { 0.0 } else { one_way });
        }
    }
    inbox.free()?;
    result.free()?;
    share(run, samples, kernel, (launches - 1) * rounds)
}

/// Times the same message with the baseline. Collective.
fn beside(run: &mut Run<'_>, bytes: u64, threads: u32) -> Result<Option<LatencyBaseline>> {
    if !run.has_baseline {
        return Ok(None);
    }
    let communicator = run.session.communicator;
    communicator.host_barrier()?;
    let measured = match &mut run.baseline {
        Some(baseline) if communicator.rank() < 2 => {
            let name = format!("nvshmem {}", baseline.version);
            let one_way_ns = baseline.latency(bytes, threads, 2000)?;
            Some(LatencyBaseline { name, one_way_ns })
        }
        _ => None,
    };
    Ok(exchange::all_gather(communicator, &measured)?.swap_remove(0))
}

/// Times the same message with `ucx_perftest` between nodes. Collective.
fn beside_calls(run: &mut Run<'_>) -> Result<Option<LatencyBaseline>> {
    const RUNS: usize = 5;
    let mut samples = Vec::new();
    for _ in 0..RUNS {
        samples.extend(run.beside(Test::Latency, MESSAGE as u64)?);
    }
    let one_way_ns = Spread::from_samples(&samples);
    Ok(one_way_ns.map(|one_way_ns| LatencyBaseline {
        name: Test::Latency.name().to_owned(),
        one_way_ns,
    }))
}

/// Times round trips of `put_signal` and `wait_signal`, each followed by a synchronization.
fn by_calls(run: &Run<'_>) -> Result<(Spread, u32)> {
    const CHANNEL: u32 = 0;
    let (warm_ups, rounds) = match run.effort {
        Effort::Quick => (20, 100),
        Effort::Overview | Effort::Standard | Effort::Full => (100, 1000),
    };
    let communicator = run.session.communicator;
    let rank = communicator.rank();
    let stream = &run.session.stream;
    let inbox = communicator.allocate::<u8>(&[MESSAGE])?;
    let outbox = communicator.allocate::<u8>(&[MESSAGE])?;
    stream.barrier()?;
    stream.synchronize()?;
    let mut samples = Vec::new();
    let pair = run.pairing.pairs().next();
    let pair = pair.filter(|&(lower, upper)| rank == lower || rank == upper);
    if let Some((lower, upper)) = pair {
        let is_first = rank == lower;
        let peer = if is_first { upper } else { lower };
        let put = || stream.put_signal(peer, &inbox, &outbox, CHANNEL);
        for round in 0..warm_ups + rounds {
            let start = Instant::now();
            if is_first {
                put()?;
                stream.wait_signal(peer, CHANNEL)?;
                stream.synchronize()?;
                if round >= warm_ups {
                    samples.push(start.elapsed().as_nanos() as f64 / 2.0);
                }
            } else {
                stream.wait_signal(peer, CHANNEL)?;
                if run.by_caller || run.across {
                    // The caller must see the signal before it answers.
                    stream.synchronize()?;
                }
                put()?;
            }
        }
        stream.synchronize()?;
    }
    communicator.host_barrier()?;
    inbox.free()?;
    outbox.free()?;
    share(run, samples, "put_signal to wait_signal", rounds)
}
