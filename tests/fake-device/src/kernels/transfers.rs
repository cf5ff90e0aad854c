//! Copies, and the ping-pong that measures latency.

use std::sync::atomic::Ordering;

use super::signals::{Bounded, give, target_ranges, watch_ranges};
use super::{FillArguments, Launch, touched};
use crate::error::{Code, Result};
use crate::memory::Engine;
use crate::report::violation;
use crate::work::Runner;
use symmem_core::backend::abi::{LatencyArguments, SIGNAL_STRIDE, TransferArguments};

pub(super) fn copy(launch: &Launch, runner: &Runner) -> Result {
    let transfer: TransferArguments = launch.arguments();
    runner.copy(
        transfer.destination.0,
        transfer.source.0,
        transfer.bytes,
        Engine::Kernel,
    )?;
    let target = &transfer.signal;
    if target.word.0 != 0 && launch.blocks.iter().product::<u32>() > 1 {
        if target.arrivals.0 == 0 {
            violation(
                "several blocks give one signal, without a word that finds the last of them".into(),
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
        stages,
        stage_bytes,
        ..
    } = transfer;
    let (destination, source) = (transfer.destination.0, transfer.source.0);
    // Bulk copies need both ends aligned to 16 bytes, so the two addresses must be equal modulo 16.
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
        (transfer.destination.0, transfer.bytes),
        (transfer.source.0, transfer.bytes),
    ]);
    ranges
}

// ---- latency ----

/// Plays `rounds` of ping-pong: `send` sends a round's number, `receive` waits for it.
fn ping_pong(
    arguments: &LatencyArguments,
    runner: &Runner,
    send: impl Fn(u32) -> Result,
    receive: impl Fn(&Bounded, u32) -> Result<bool>,
) -> Result {
    let bounded = Bounded::new(runner, arguments.watch, 1, 0)?;
    let mut complete = true;
    for round in (1..=arguments.rounds).map(|round| arguments.base.wrapping_add(round)) {
        if arguments.first != 0 {
            send(round)?;
        }
        complete = receive(&bounded, round)?;
        if !complete {
            break;
        }
        if arguments.first == 0 {
            send(round)?;
        }
    }
    let nanoseconds = if complete {
        bounded.started.elapsed().as_nanos() as u64
    } else {
        u64::MAX
    };
    runner.fill(
        arguments.result.0,
        &nanoseconds.to_ne_bytes(),
        1,
        Engine::Kernel,
    )
}

/// Sends one packet of 8 bytes: data in the lower word, the round's number in the upper.
pub(super) fn latency_packet(launch: &Launch, runner: &Runner) -> Result {
    let arguments: LatencyArguments = launch.arguments();
    let send = |round: u32| {
        let word = runner.word(arguments.remote.0 + 4)?;
        word.atomic().store(round, Ordering::Release);
        Ok(())
    };
    let receive = |bounded: &Bounded, round: u32| {
        let flag = runner.polled(arguments.local.0 + 4)?;
        bounded.until(&flag, |seen| seen == round, round, 0)
    };
    ping_pong(&arguments, runner, send, receive)
}

/// Writes the payload into one of two slots, then the flag.
pub(super) fn latency_signal(launch: &Launch, runner: &Runner) -> Result {
    let arguments: LatencyArguments = launch.arguments();
    let send = |round: u32| {
        let slot = SIGNAL_STRIDE + u64::from(round % 2) * arguments.bytes;
        let payload = arguments.remote.0 + slot;
        runner.fill(payload, &[round as u8], arguments.bytes, Engine::Kernel)?;
        let word = runner.word(arguments.remote.0)?;
        word.atomic().store(round, Ordering::Release);
        Ok(())
    };
    let receive = |bounded: &Bounded, round: u32| {
        let word = runner.polled(arguments.local.0)?;
        bounded.until(&word, |seen| seen == round, round, 0)
    };
    ping_pong(&arguments, runner, send, receive)
}

pub(super) fn latency_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: LatencyArguments = launch.arguments();
    let mut ranges = watch_ranges(&arguments.watch);
    ranges.extend(touched(&[
        arguments.local.0,
        arguments.remote.0,
        arguments.result.0,
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
