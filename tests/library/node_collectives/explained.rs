//! `explain` beside the call that it explains.

use crate::events::{Collector, Fields};
use std::collections::BTreeMap;
use symmem::{
    Algorithm, Carrier, CollectiveCall, CollectiveOperation as O, CollectiveOptions, Communicator,
    DeviceSlice, ElementType, Error, ErrorKind, Explanation, Operand, Provider, ReduceOp, Result,
    Slice, Stream, SymmetricBuffer,
};

/// Elements of a member's part: a message, several messages' worth, and several chunks.
const PARTS: [usize; 3] = [4, 20_000, 700_000];
/// The operations, each with root 0.
const OPERATIONS: [O; 12] = [
    O::Barrier,
    O::AllReduce,
    O::Reduce,
    O::ReduceScatter,
    O::AllGather,
    O::AllGatherV,
    O::Broadcast,
    O::AllToAll,
    O::AllToAllV,
    O::Gather,
    O::Scatter,
    O::Exchange,
];

/// A stage or leg, with the bytes of the largest.
type Steps = BTreeMap<String, u64>;

/// Where a call's ranges are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Symmetric,
    Unaligned,
    InPlace,
    Own,
}

pub fn run(communicator: Communicator, nccl: bool) -> Result<()> {
    tracing::subscriber::set_global_default(Collector).expect("the only one in this process");
    if nccl {
        communicator.open_nccl(false)?;
    }
    let most = PARTS[2] * communicator.world_size() + 1;
    let beside = Beside {
        stream: communicator.stream()?,
        destination: communicator.allocate(&[most])?,
        source: communicator.allocate(&[most])?,
        communicator: &communicator,
    };
    let by = CollectiveOptions::new;
    let options = [
        by(),
        by().provider(Provider::Symmem),
        by().provider(Provider::Nccl),
        by().provider(Provider::NcclWindows),
        by().algorithm(Algorithm::TwoShot),
        by().algorithm(Algorithm::Pull),
        by().blocks(7),
    ];
    let mut explained = 0;
    for (number, options) in options.iter().enumerate() {
        // What a caller names does not depend on the number of chunks.
        let parts = if number == 0 { &PARTS[..] } else { &PARTS[..2] };
        for operation in OPERATIONS {
            for &part in parts {
                for memory in Memory::of(operation) {
                    explained += usize::from(beside.compare(operation, part, *memory, options)?);
                }
            }
        }
    }
    assert!(explained > 50, "{explained} calls were explained and made");
    beside.carriers(nccl)?;
    drop(beside);
    communicator.finalize().map(drop)
}

impl Memory {
    /// Returns the memory that calls of an operation are tried with.
    fn of(operation: O) -> &'static [Self] {
        match operation {
            O::AllReduce => &[Self::Symmetric, Self::Unaligned, Self::InPlace, Self::Own],
            O::AllToAll => &[Self::Symmetric, Self::InPlace],
            O::AllGather | O::ReduceScatter => &[Self::Symmetric, Self::InPlace, Self::Own],
            _ => &[Self::Symmetric],
        }
    }
}

struct Beside<'c> {
    communicator: &'c Communicator,
    stream: Stream,
    destination: SymmetricBuffer<f32>,
    source: SymmetricBuffer<f32>,
}

impl Beside<'_> {
    /// Explains a call, makes it, and compares. Returns whether it was not refused.
    fn compare(
        &self,
        operation: O,
        part: usize,
        memory: Memory,
        options: &CollectiveOptions<'_>,
    ) -> Result<bool> {
        let world = self.communicator.world_size();
        let elements = match operation {
            O::AllReduce | O::Reduce | O::Broadcast => part,
            _ => part * world,
        };
        let call = CollectiveCall {
            in_place: memory == Memory::InPlace,
            aligned: memory != Memory::Unaligned,
            own_memory: memory == Memory::Own,
            in_multicast: self.destination.is_in_multicast(),
            ..CollectiveCall::new(operation, (elements * 4) as u64, ElementType::F32)
        };
        let what = format!("{call:?} of {part}, {memory:?}, options at {options:p}");
        let explanation = self.communicator.explain_call(&call, options);
        let (events, made) = Collector::during(|| self.make(operation, part, memory, options));
        match (explanation, made) {
            (Ok(explanation), Ok(())) => {
                self.stream.synchronize()?;
                let told = format!("{what}:\n{explanation}\nevents: {events:#?}");
                assert_eq!(stages(&explanation), done(&events, stage_of), "{told}");
                assert_eq!(legs(&explanation), done(&events, leg_of), "{told}");
                Ok(true)
            }
            (Err(one), Err(other)) => {
                assert_eq!(one.kind(), other.kind(), "{what}: {one}; {other}");
                assert_eq!(text(&one), text(&other), "{what}");
                assert!(events.is_empty(), "{what} was begun: {events:?}");
                Ok(false)
            }
            (one, other) => panic!("{what} was explained as {one:?}, and made with {other:?}"),
        }
    }

    /// Makes a call of parts of `part` elements.
    fn make(
        &self,
        operation: O,
        part: usize,
        memory: Memory,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        let calls = self.stream.with(options);
        let all = part * world;
        let own = rank * part;
        let sum = ReduceOp::Sum;
        let counts = vec![part; world];
        let offsets: Vec<usize> = (0..world).map(|member| member * part).collect();
        let first = usize::from(memory == Memory::Unaligned);
        let to = |length: usize| self.destination.slice(first..first + length);
        let from = |length: usize| self.source.slice(first..first + length);
        let in_place = memory == Memory::InPlace;
        match operation {
            O::Barrier => calls.barrier(),
            O::AllReduce if in_place => calls.all_reduce(to(part)?, to(part)?, sum),
            O::AllReduce if memory == Memory::Own => {
                calls.all_reduce(own_memory(to(part)?), own_memory(from(part)?), sum)
            }
            O::AllReduce => calls.all_reduce(to(part)?, from(part)?, sum),
            O::Reduce => calls.reduce(0, to(part)?, from(part)?, sum),
            O::ReduceScatter if in_place => {
                let whole = from(all)?;
                calls.reduce_scatter(whole.slice(own..own + part)?, whole, sum)
            }
            O::ReduceScatter if memory == Memory::Own => {
                calls.reduce_scatter(own_memory(to(part)?), own_memory(from(all)?), sum)
            }
            O::ReduceScatter => calls.reduce_scatter(to(part)?, from(all)?, sum),
            O::AllGather if in_place => {
                let whole = to(all)?;
                calls.all_gather(whole, whole.slice(own..own + part)?)
            }
            O::AllGather if memory == Memory::Own => {
                calls.all_gather(own_memory(to(all)?), own_memory(from(part)?))
            }
            O::AllGather => calls.all_gather(to(all)?, from(part)?),
            O::AllGatherV => calls.all_gather_v(to(all)?, from(part)?, &counts),
            O::Broadcast => calls.broadcast(0, to(part)?, from(part)?),
            O::AllToAll if in_place => calls.all_to_all(to(all)?, to(all)?),
            O::AllToAll => calls.all_to_all(to(all)?, from(all)?),
            O::AllToAllV => {
                calls.all_to_all_v(to(all)?, &counts, &offsets, from(all)?, &counts, &offsets)
            }
            O::Gather => calls.gather(0, to(all)?, from(part)?),
            O::Scatter => calls.scatter(0, to(part)?, from(all)?),
            O::Exchange => {
                let mut exchange = calls.exchange();
                for peer in 0..world {
                    let at = peer * part;
                    exchange.send(peer, from(all)?.slice(at..at + part)?)?;
                    exchange.recv(peer, to(all)?.slice(at..at + part)?)?;
                }
                exchange.enqueue()
            }
            other => panic!("no call of {other:?}"),
        }
    }

    /// UCX carries small legs and, if it is open, NCCL large ones.
    fn carriers(&self, nccl: bool) -> Result<()> {
        let carrier = |bytes, options: &CollectiveOptions<'_>| {
            let call = CollectiveCall::new(O::AllReduce, bytes, ElementType::F32);
            let explanation = self.communicator.explain_call(&call, options)?;
            let between = explanation
                .between_nodes
                .expect("the ranks are on several nodes");
            Ok::<_, Error>(between.carrier == Carrier::Nccl)
        };
        let automatic = CollectiveOptions::new();
        assert!(!carrier(8, &automatic)?, "8 B go over UCX");
        assert_eq!(carrier(64 << 20, &automatic)?, nccl, "64 MiB");
        let named = CollectiveOptions::new().provider(Provider::Nccl);
        match carrier(8, &named) {
            Ok(by_nccl) => assert!(nccl && by_nccl, "a call that names NCCL gets it"),
            Err(error) => assert!(!nccl && error.kind() == ErrorKind::Unsupported, "{error}"),
        }
        Ok(())
    }
}

/// Members whose nodes differ refuse a named algorithm alike, and nothing has been sent.
pub fn refused(communicator: Communicator) -> Result<()> {
    const COUNT: usize = 1000;
    let stream = communicator.stream()?;
    let world = communicator.world_size();
    let to = communicator.allocate::<f32>(&[COUNT * world])?;
    let from = communicator.allocate::<f32>(&[COUNT * world])?;
    let (sum, part) = (ReduceOp::Sum, from.slice(..COUNT)?);
    let two_shot = CollectiveOptions::new().algorithm(Algorithm::TwoShot);
    let copies = CollectiveOptions::new().algorithm(Algorithm::Pull);
    let barrier = CollectiveOptions::new().algorithm(Algorithm::Multicast);
    // Algorithms that need peers' addresses, on memory that only each rank knows.
    let outcomes = [
        stream
            .with(&two_shot)
            .all_reduce(own_memory(to.slice(..COUNT)?), own_memory(part), sum),
        stream
            .with(&two_shot)
            .reduce(0, own_memory(to.slice(..COUNT)?), own_memory(part), sum),
        stream.with(&two_shot).broadcast(
            world - 1,
            own_memory(to.slice(..COUNT)?),
            own_memory(part),
        ),
        stream
            .with(&copies)
            .all_gather(own_memory(to.all()), own_memory(part)),
        stream.with(&barrier).barrier(),
    ];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.expect_err("a node cannot do its stage");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{number}: {error}");
        assert!(error.to_string().contains("node 0 of the group"), "{error}");
    }
    // More blocks than are co-resident. The host backend has no grids.
    let blocks = CollectiveOptions::new().threads(1024).blocks(100);
    for outcome in [
        stream.with(&blocks).all_reduce(&to, &from, sum),
        stream.with(&blocks).all_to_all(&to, &from),
    ] {
        if let Err(error) = outcome {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
    }
    // The others carry on together.
    let ones = vec![1.0; COUNT * world];
    stream.write(&from, &ones)?;
    stream.all_reduce(&to, &from, sum)?;
    let mut seen = vec![0.0; COUNT * world];
    stream.read(&to, &mut seen)?;
    assert!(seen.iter().all(|&one| one == world as f32));
    communicator.finalize().map(drop)
}

fn own_memory(slice: Slice<'_, f32>) -> Operand<'_, f32> {
    DeviceSlice::from(slice).into()
}

/// The message of an error, without rank and operation.
fn text(error: &Error) -> String {
    match error {
        Error::InvalidArgument { message, .. } | Error::Unsupported { message, .. } => {
            message.clone()
        }
        other => other.to_string(),
    }
}

fn stages(explanation: &Explanation) -> Steps {
    let stages = explanation.stages.iter();
    // Barriers inside a node log nothing.
    let stages = stages.filter(|stage| stage.operation != O::Barrier);
    let steps = stages.map(|stage| {
        let (operation, choice) = (stage.operation.name(), stage.choice);
        let (algorithm, blocks) = (choice.algorithm().name(), choice.blocks);
        let step = format!("{operation} {algorithm} {blocks} {}", choice.threads);
        (step, stage.bytes)
    });
    steps.collect()
}

fn legs(explanation: &Explanation) -> Steps {
    let Some(between) = &explanation.between_nodes else {
        return Steps::new();
    };
    let carrier = match between.carrier {
        Carrier::Nccl => "NCCL",
        _ => "UCX",
    };
    let steps = between.legs.iter().map(|leg| {
        let shape = leg.shape.map_or("", |shape| shape.name());
        (format!("{carrier} {shape} {}", leg.members), leg.bytes)
    });
    steps.collect()
}

/// Returns what a call did, by what it logged.
fn done(events: &[Fields], of: fn(&Fields) -> Option<(String, u64)>) -> Steps {
    let mut steps = Steps::new();
    for (step, bytes) in events.iter().filter_map(of) {
        let most = steps.entry(step).or_default();
        *most = bytes.max(*most);
    }
    steps
}

fn stage_of(event: &Fields) -> Option<(String, u64)> {
    let field = |name: &str| event.get(name).map(String::as_str);
    (field("message")? == "collective").then_some(())?;
    let names = ["stage", "algorithm", "blocks", "threads"].map(field);
    let names = names.into_iter().collect::<Option<Vec<_>>>()?;
    Some((names.join(" "), field("bytes")?.parse().ok()?))
}

fn leg_of(event: &Fields) -> Option<(String, u64)> {
    let field = |name: &str| event.get(name).map(String::as_str);
    (field("message")? == "leg between nodes").then_some(())?;
    let names = ["carrier", "shape", "members"].map(field);
    let names = names.into_iter().collect::<Option<Vec<_>>>()?;
    Some((names.join(" "), field("bytes")?.parse().ok()?))
}
