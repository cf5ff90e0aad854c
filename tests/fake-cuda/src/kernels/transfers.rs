//! Copies, and the ping-pong that times them.

use std::sync::atomic::Ordering;

use super::signals::{Bounded, give, target_ranges, watch_ranges};
use super::{FillArguments, LatencyArguments, Launch, TransferArguments, touched};
use crate::error::{Code, Result};
use crate::memory::Engine;
use crate::report::violation;
use crate::work::Runner;

pub(super) fn copy(launch: &Launch, runner: &Runner) -> Result {
    let transfer: TransferArguments = launch.arguments();
    runner.copy(
        transfer.destination,
        transfer.source,
        transfer.bytes,
        Engine::Kernel,
    )?;
    let target = &transfer.signal;
    if target.word.0 != 0 && launch.blocks.iter().product::<u32>() > 1 {
        if target.arrivals.0 == 0 {
            violation(
                "several blocks give one signal, with no word to find the last of them by".into(),
            );
            return Err(Code::ILLEGAL_ADDRESS);
        }
        let arrivals = runner
            .word(target.arrivals.0)?
            .atomic()
            .load(Ordering::Acquire);
        if arrivals != 0 {
            violation(format!(
                "the word that counts arriving blocks starts at {arrivals}, not at zero"
            ));
        }
    }
    give(runner, target)
}

pub(super) fn copy_bulk(launch: &Launch, runner: &Runner) -> Result {
    let transfer: TransferArguments = launch.arguments();
    let TransferArguments {
        destination,
        source,
        stages,
        stage_bytes,
        ..
    } = transfer;
    // Bulk copies need both ends aligned to 16, which a common shift can give and no other.
    if destination.wrapping_sub(source) % 16 != 0 {
        violation(format!(
            "a bulk copy from {source:#x} to {destination:#x}, which differ modulo 16"
        ));
    }
    if stages == 0 || stage_bytes == 0 || stage_bytes % 16 != 0 {
        violation(format!(
            "a bulk copy in {stages} stages of {stage_bytes} bytes"
        ));
    }
    if u64::from(stages) * u64::from(stage_bytes) > launch.shared.into() {
        violation(format!(
            "{stages} stages of {stage_bytes} bytes in {} of shared memory",
            launch.shared
        ));
    }
    copy(launch, runner)
}

pub(super) fn copy_unrolled(launch: &Launch, runner: &Runner) -> Result {
    if launch.threads.iter().product::<u32>() != 128 {
        violation(format!(
            "the unrolled copy is made for four warps, not {:?} threads",
            launch.threads
        ));
    }
    copy(launch, runner)
}

pub(super) fn copy_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let transfer: TransferArguments = launch.arguments();
    let mut ranges = target_ranges(&transfer.signal);
    ranges.extend([
        (transfer.destination, transfer.bytes),
        (transfer.source, transfer.bytes),
    ]);
    ranges
}

// ---- latency ----

/// Play `rounds` of ping-pong: `send` a round's number, `receive` it.
fn ping_pong(
    arguments: &LatencyArguments,
    runner: &Runner,
    send: impl Fn(u32) -> Result,
    receive: impl Fn(&Bounded, u32) -> Result<bool>,
) -> Result {
    let bounded = Bounded::new(runner, arguments.watch, 1, 0)?;
    for round in 1..=arguments.rounds {
        if arguments.first != 0 {
            send(round)?;
        }
        if !receive(&bounded, round)? {
            return Ok(());
        }
        if arguments.first == 0 {
            send(round)?;
        }
    }
    if arguments.result != 0 {
        let nanoseconds = bounded.started.elapsed().as_nanos() as u64;
        let staged = nanoseconds.to_ne_bytes();
        runner.fill(arguments.result, &staged, 1, Engine::Kernel)?;
    }
    Ok(())
}

/// Packets of 8 bytes, data below and the round's number above, as many as hold the payload.
pub(super) fn latency_packet(launch: &Launch, runner: &Runner) -> Result {
    let arguments: LatencyArguments = launch.arguments();
    let packets = arguments.bytes.div_ceil(4).max(1);
    let send = |round: u32| {
        for packet in 0..packets {
            let at = arguments.remote + packet * 8;
            runner.word(at)?.atomic().store(round, Ordering::Relaxed);
            runner
                .word(at + 4)?
                .atomic()
                .store(round, Ordering::Release);
        }
        Ok(())
    };
    let receive = |bounded: &Bounded, round: u32| {
        for packet in 0..packets {
            let flag = runner.word(arguments.local + packet * 8 + 4)?;
            if !bounded.until(&flag, |seen| seen == round, round, 0)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    ping_pong(&arguments, runner, send, receive)
}

/// The payload, and behind it (rounded up to 8 bytes) the signal's word.
pub(super) fn latency_signal(launch: &Launch, runner: &Runner) -> Result {
    let arguments: LatencyArguments = launch.arguments();
    let behind = arguments.bytes.next_multiple_of(8);
    let send = |round: u32| {
        runner.fill(
            arguments.remote,
            &[round as u8],
            arguments.bytes,
            Engine::Kernel,
        )?;
        runner
            .word(arguments.remote + behind)?
            .atomic()
            .store(round, Ordering::Release);
        Ok(())
    };
    let receive = |bounded: &Bounded, round: u32| {
        let word = runner.word(arguments.local + behind)?;
        bounded.until(&word, |seen| seen == round, round, 0)
    };
    ping_pong(&arguments, runner, send, receive)
}

pub(super) fn latency_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: LatencyArguments = launch.arguments();
    let mut ranges = watch_ranges(&arguments.watch);
    ranges.extend(touched(&[
        arguments.local,
        arguments.remote,
        arguments.result,
    ]));
    ranges
}

pub(super) fn fill(launch: &Launch, runner: &Runner) -> Result {
    let FillArguments {
        address,
        words,
        value,
    } = launch.arguments();
    runner.fill(address, &value.to_ne_bytes(), words, Engine::Kernel)
}

pub(super) fn fill_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let FillArguments { address, words, .. } = launch.arguments();
    vec![(address, words * 4)]
}
