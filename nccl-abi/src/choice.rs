//! Which calls symmem does, where NCCL could do them too.

use crate::call::{Call, Kind};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};
use symmem::{Algorithm, CollectiveCall, CollectiveOptions, Communicator, ElementType, Provider};

/// What all ranks of a communicator agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Whether NCCL has a communicator of all ranks.
    pub has_nccl: bool,
    /// Most bytes of a call that symmem does, if the user set them.
    pub most_bytes: Option<u64>,
}

/// Most bytes of a call by LL packets, which carry as many bytes again as flags, if NCCL could do it. Between two H100s NCCL
/// took longer up to there (`benches/results/2026-11-25-own-memory-2xh100.json`); between more ranks it is an assumption.
fn most_by_ll(world: usize) -> u64 {
    match world {
        2 => 2 << 20,
        _ => 1 << 20,
    }
}

/// The same of a call in pieces: up to there NCCL 2.32.3 took longer between two H100s, in place too where it was measured
/// (`benches/results/2026-11-25-newest-nccl-2xh100.json`).
fn most_in_pieces(kind: Kind, world: usize) -> u64 {
    match (kind, world) {
        (Kind::ReduceScatter, 2) => u64::MAX,
        (Kind::AllGather, 2) => 32 << 20,
        (Kind::AllToAll, 2) => 8 << 20,
        _ => most_by_ll(world),
    }
}

/// The same of a call in Lamport packets. The selector's rows bound them, but compare with pieces. A root sends each of
/// several peers all bytes, or gets them from each: between four H200s a broadcast of 4 MiB took 43 us and NCCL 40, one of
/// 2 MiB 22 and 29 (`benches/results/2026-11-26-lamport-4xh200.json`).
fn most_by_lamport(kind: Kind, world: usize) -> u64 {
    match (kind, world) {
        (_, 2) => u64::MAX,
        (Kind::Broadcast | Kind::Reduce, _) => 2 << 20,
        _ => u64::MAX,
    }
}

/// Most bytes of a rank in a sum of 8-bit floats, for which Lamport packets have the kernel for all calls only: 42 us for 8 MiB
/// between two H200s, 85 for 16 (`benches/results/2026-11-26-lamport-2xh200.json`). NCCL was not timed on these types; it
/// takes 44 and 70 for as many bytes of bf16.
const MOST_OF_8_BIT_SUM: u64 = 8 << 20;

/// Returns whether a call is a large sum of 8-bit floats; `bytes` are a rank's.
fn is_large_8_bit_sum(kind: Kind, element: ElementType, bytes: u64) -> bool {
    let sums = matches!(kind, Kind::AllReduce | Kind::ReduceScatter | Kind::Reduce);
    let narrow = matches!(element, ElementType::F8E4M3 | ElementType::F8E5M2);
    sums && narrow && bytes > MOST_OF_8_BIT_SUM
}

/// Choices kept at most. A program that makes calls of more sizes pays for a new choice now and then.
const MOST_KEPT: usize = 1024;

/// Kind, element type, reduction and number of elements of a call: all that a choice depends on.
type Shape = (Kind, c_int, c_int, usize);

/// The selector's earlier choices: asking it costs about as much processor time as a small call.
#[derive(Default)]
pub struct Choices(Mutex<HashMap<Shape, bool>>);

impl Choices {
    /// Returns whether symmem does this call. The same on all ranks.
    pub fn does(&self, communicator: &Communicator, agreed: &Agreed, call: &Call) -> bool {
        !agreed.has_nccl || self.of(call, || choose(communicator, agreed, call))
    }

    /// Returns the choice for a call, and keeps one that `choose` makes. A failure to choose is not kept.
    fn of(&self, call: &Call, choose: impl FnOnce() -> Option<bool>) -> bool {
        let shape = (call.kind, call.element, call.reduce, call.count);
        // Each change of it is one insertion, or leaves it empty.
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(choice) = kept().get(&shape) {
            return *choice;
        }
        let Some(choice) = choose() else {
            return false;
        };
        let mut kept = kept();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(shape, choice);
        choice
    }
}

/// Chooses for [`Choices::does`]; `None` if the selector fails.
fn choose(communicator: &Communicator, agreed: &Agreed, call: &Call) -> Option<bool> {
    let Some((element, size, operator)) = call.types() else {
        return Some(false);
    };
    // The bytes of one rank, or of all.
    let world = communicator.world_size();
    let parts = match call.kind {
        Kind::AllReduce | Kind::Reduce | Kind::Broadcast => 1,
        Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll => world,
    };
    let Some(bytes) = (call.count as u64).checked_mul((size * parts) as u64) else {
        return Some(false);
    };
    if bytes == 0 {
        return Some(true);
    }
    if let Some(most) = agreed.most_bytes {
        return Some(bytes <= most);
    }
    if is_large_8_bit_sum(call.kind, element, bytes / parts as u64) {
        return Some(false);
    }
    let question = CollectiveCall {
        reduce: operator,
        own_memory: true,
        ..CollectiveCall::new(call.kind.operation(), bytes, element)
    };
    let options = CollectiveOptions::new().provider(Provider::Symmem);
    let explanation = communicator.explain_call(&question, &options).ok()?;
    if explanation.between_nodes.is_some() {
        // NCCL's own call crosses nodes by itself.
        return Some(false);
    }
    let choice = explanation.choice()?;
    Some(match choice.algorithm() {
        Algorithm::Lamport | Algorithm::LamportTwoShot => {
            bytes <= most_by_lamport(call.kind, world)
        }
        Algorithm::Ll | Algorithm::LlTwoShot => bytes <= most_by_ll(world),
        Algorithm::Pieces => bytes <= most_in_pieces(call.kind, world),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::ptr::null_mut;

    fn call(count: usize) -> Call {
        Call {
            kind: Kind::AllReduce,
            source: null_mut(),
            destination: null_mut(),
            count,
            element: 7,
            reduce: 0,
            root: 0,
            comm: null_mut(),
            stream: null_mut(),
        }
    }

    #[test]
    fn a_choice_is_made_once_for_a_shape_and_again_after_a_failure() {
        let (choices, asked) = (Choices::default(), Cell::new(0));
        let ask = |count, choice| {
            choices.of(&call(count), || {
                asked.set(asked.get() + 1);
                choice
            })
        };
        assert!(!ask(1, None));
        assert!(ask(1, Some(true)) && ask(1, Some(false)));
        assert!(!ask(2, Some(false)));
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn large_sums_of_8_bit_floats_are_nccls() {
        let f8 = ElementType::F8E5M2;
        assert!(!is_large_8_bit_sum(Kind::AllReduce, f8, 8 << 20));
        assert!(is_large_8_bit_sum(Kind::AllReduce, f8, (8 << 20) + 16));
        assert!(is_large_8_bit_sum(Kind::ReduceScatter, f8, 16 << 20));
        assert!(is_large_8_bit_sum(Kind::Reduce, f8, 16 << 20));
        let others = [ElementType::U8, ElementType::Bf16];
        assert!(
            others
                .iter()
                .all(|&other| !is_large_8_bit_sum(Kind::AllReduce, other, 32 << 20))
        );
        assert!(!is_large_8_bit_sum(Kind::AllGather, f8, 32 << 20));
    }

    #[test]
    fn lamport_packets_from_or_to_one_of_several_ranks_are_bounded() {
        for kind in [Kind::Broadcast, Kind::Reduce] {
            assert_eq!(most_by_lamport(kind, 2), u64::MAX);
            assert_eq!(most_by_lamport(kind, 4), 2 << 20);
        }
        assert_eq!(most_by_lamport(Kind::AllReduce, 4), u64::MAX);
    }

    #[test]
    fn the_number_of_kept_choices_has_a_bound() {
        let choices = Choices::default();
        for count in 0..3 * MOST_KEPT {
            assert!(choices.of(&call(count), || Some(true)));
            assert!(choices.0.lock().expect("no thread panicked").len() <= MOST_KEPT);
        }
    }
}
