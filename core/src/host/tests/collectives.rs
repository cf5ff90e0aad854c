//! Collectives among threads as ranks, compared with a naive reference.

use super::*;
use crate::backend::CollectiveKernels;
use half::{bf16, f16};
use rstest::rstest;

/// Bytes of a block's packet region: so small that few elements already need several rounds.
const PACKET_BYTES: u32 = 64;
pub(super) const GROUP_SLOTS: u64 = SLOT_BLOCKS as u64 * SLOT_BYTES;
const GROUP_BYTES: u64 =
    SLOT_BLOCKS as u64 * SLOT_BYTES + PACKET_BLOCKS as u64 * PACKET_BYTES as u64;
const CHANNELS: u64 = 3;
/// Layout of each rank's shared memory: slots of each channel, input, output.
pub(super) const SLOTS: u64 = 64 * 1024;
pub(super) const INPUT: u64 = SLOTS + CHANNELS * GROUP_BYTES;
const BUFFER: u64 = 256 * 1024;
pub(super) const OUTPUT: u64 = INPUT + BUFFER;
const BYTES: u64 = OUTPUT + BUFFER;
/// Bytes of a chunk of an exchange, and its staging behind the rest, counted from the slots of channel 1.
pub(super) const CHUNK_BYTES: u32 = 1024;
pub(super) const STAGING: u64 = BYTES - (SLOTS + GROUP_BYTES);

pub(super) fn ranks(count: u32) -> Vec<Rank> {
    world_with(count, BYTES + u64::from(count * CHUNK_BYTES))
}

/// Runs each rank in a thread; the test fails if a rank does not end in time.
pub(super) fn on_each(ranks: &[Rank], body: impl Fn(&Rank, RawStream) + Sync) {
    std::thread::scope(|scope| {
        for rank in ranks {
            let body = &body;
            scope.spawn(move || {
                let stream = rank.stream();
                body(rank, stream);
                rank.synchronize(stream);
                // SAFETY: the stream is idle and not used again.
                unsafe { rank.backend.stream_destroy(stream).unwrap() };
            });
        }
    });
}

pub(super) fn contents(at: DeviceAddress, count: u64) -> Vec<u8> {
    let start: *const u8 = std::ptr::with_exposed_provenance(at.0 as usize);
    // SAFETY: tests pass live ranges that no thread writes at the time.
    (0..count as usize)
        .map(|index| unsafe { start.add(index).read() })
        .collect()
}

pub(super) fn put_bytes(at: DeviceAddress, bytes: &[u8]) {
    let start: *mut u8 = std::ptr::with_exposed_provenance_mut(at.0 as usize);
    // SAFETY: tests pass live ranges that no thread uses at the time.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

impl Rank {
    pub(super) fn group(
        &self,
        channel: u64,
        operation: CollectiveOperationCode,
    ) -> CollectiveGroup {
        self.group_for(channel, operation, LONG)
    }

    fn group_for(
        &self,
        channel: u64,
        operation: CollectiveOperationCode,
        deadline: Duration,
    ) -> CollectiveGroup {
        let mut group = CollectiveGroup {
            watch: self.watch(deadline),
            slots: [DeviceAddress::NULL; MAX_RANKS],
            packet_bytes: PACKET_BYTES,
            dependents: DependentsCode::ANSWERED,
            rank: self.rank,
            world: self.bases.len() as u32,
            slot: channel as u32,
            operation,
            members: std::array::from_fn(|member| member as u8),
        };
        for member in 0..group.world {
            group.slots[member as usize] = self.at(member, SLOTS + channel * GROUP_BYTES);
        }
        group
    }
}

pub(super) const NOWHERE: [DeviceAddress; MAX_RANKS] = [DeviceAddress::NULL; MAX_RANKS];
pub(super) const GEOMETRY: Geometry = Geometry {
    blocks: [1; 3],
    threads: [1; 3],
    shared_memory: 0,
};

/// Algorithm of an all-reduce.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum How {
    OneShot,
    TwoShot,
    Packets,
    PacketsTwoShot,
}

/// Returns the first element and the number of elements of part `part` when `count` elements are divided into
/// `parts`.
fn part(count: u64, parts: u64, part: u64) -> (u64, u64) {
    let (each, more) = (count / parts, count % parts);
    (part * each + part.min(more), each + u64::from(part < more))
}

pub(super) struct AllReduce {
    pub(super) how: How,
    pub(super) element: ElementTypeCode,
    pub(super) reduce: ReduceOpCode,
    pub(super) count: u64,
    /// Offsets of each rank's input and output.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) channel: u64,
}

impl AllReduce {
    pub(super) fn enqueue(&self, rank: &Rank, stream: RawStream) {
        self.enqueue_for(rank, stream, LONG);
    }

    pub(super) fn enqueue_for(&self, rank: &Rank, stream: RawStream, deadline: Duration) {
        let group = rank.group_for(self.channel, CollectiveOperationCode::ALL_REDUCE, deadline);
        let (world, width) = (u64::from(group.world), self.element.bytes());
        let (first, own) = part(self.count, world, rank.rank.into());
        let (mut sources, mut destinations) = (NOWHERE, NOWHERE);
        let mut counts = [0; MAX_RANKS];
        let me = rank.rank as usize;
        for member in 0..group.world {
            let index = member as usize;
            let (at, count) = part(self.count, world, member.into());
            match self.how {
                How::OneShot => sources[index] = rank.at(member, self.from),
                How::TwoShot => {
                    sources[index] = rank.at(member, self.from + first * width);
                    destinations[index] = rank.at(member, self.to + first * width);
                }
                How::Packets => {
                    sources[index] = rank.at(rank.rank, self.from);
                    counts[index] = self.count;
                }
                How::PacketsTwoShot => {
                    sources[index] = rank.at(rank.rank, self.from + at * width);
                    destinations[index] = rank.at(rank.rank, self.to + at * width);
                    counts[index] = count;
                }
            }
        }
        if matches!(self.how, How::OneShot | How::Packets) {
            destinations[me] = rank.at(rank.rank, self.to);
        }
        let (element, reduce) = (self.element, self.reduce);
        let result = if matches!(self.how, How::OneShot | How::TwoShot) {
            let count = if self.how == How::OneShot {
                self.count
            } else {
                own
            };
            let arguments = ReduceArguments {
                group,
                sources,
                destinations,
                count,
                element,
                reduce,
            };
            // SAFETY: all memory outlives the test's streams.
            unsafe {
                rank.backend
                    .collective_reduce(&arguments, &GEOMETRY, stream)
            }
        } else {
            let two_shot = u32::from(self.how == How::PacketsTwoShot);
            let arguments = ReducePacketArguments {
                group,
                sources,
                destinations,
                counts,
                element,
                reduce,
                two_shot,
                reserved: 0,
            };
            // SAFETY: all memory outlives the test's streams.
            unsafe {
                rank.backend
                    .collective_reduce_packets(&arguments, &GEOMETRY, stream)
            }
        };
        result.unwrap();
    }
}

/// A reproducible sequence of random bits.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let mixed = (self.0 >> 29) ^ self.0;
        mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 7
    }
}

/// Returns elements of a type as bytes: mostly small numbers, so that products stay finite, and some random bits.
pub(super) fn elements(element: ElementTypeCode, count: u64, seed: u64) -> Vec<u8> {
    let mut bits = Bits(seed);
    let mut bytes = Vec::new();
    for index in 0..count {
        let small = (bits.next() % 64) as f64 / 16.0 - 2.0;
        let any = bits.next();
        let odd = index % 5 == 4;
        match element {
            ElementTypeCode::F16 if !odd => bytes.extend(f16::from_f64(small).to_le_bytes()),
            ElementTypeCode::BF16 if !odd => bytes.extend(bf16::from_f64(small).to_le_bytes()),
            ElementTypeCode::F32 if !odd => bytes.extend((small as f32 / 3.0).to_le_bytes()),
            ElementTypeCode::F64 if !odd => bytes.extend((small / 3.0).to_le_bytes()),
            _ => bytes.extend(&any.to_le_bytes()[..element.bytes() as usize]),
        }
    }
    bytes
}

/// Computes a reduction by definition, element by element.
pub(super) fn reference(
    element: ElementTypeCode,
    reduce: ReduceOpCode,
    inputs: &[Vec<u8>],
) -> Vec<u8> {
    macro_rules! each {
        ($bytes:literal, $wide:ty, $read:expr, $write:expr, $combine:expr, $divide:expr) => {{
            let mut out = Vec::new();
            for index in 0..inputs[0].len() / $bytes {
                let numbers = inputs.iter().map(|input| -> $wide {
                    let bytes = &input[index * $bytes..][..$bytes];
                    $read(<[u8; $bytes]>::try_from(bytes).unwrap())
                });
                let mut number = numbers.reduce($combine).unwrap();
                if reduce == ReduceOpCode::AVERAGE {
                    number = $divide(number, inputs.len());
                }
                out.extend($write(number));
            }
            out
        }};
    }
    macro_rules! integer {
        ($type:ty, $wide:ty, $bytes:literal) => {
            each!(
                $bytes,
                $wide,
                |bytes| <$type>::from_le_bytes(bytes) as $wide,
                |number: $wide| (number as $type).to_le_bytes(),
                |a: $wide, b: $wide| match reduce {
                    ReduceOpCode::MINIMUM => a.min(b),
                    ReduceOpCode::MAXIMUM => a.max(b),
                    ReduceOpCode::PRODUCT => a.wrapping_mul(b),
                    _ => a.wrapping_add(b),
                },
                |number: $wide, ranks: usize| number / ranks as $wide
            )
        };
    }
    macro_rules! float {
        ($wide:ty, $bytes:literal, $read:expr, $write:expr) => {
            each!(
                $bytes,
                $wide,
                $read,
                $write,
                |a: $wide, b: $wide| match reduce {
                    ReduceOpCode::SUM | ReduceOpCode::AVERAGE => a + b,
                    ReduceOpCode::PRODUCT => a * b,
                    _ if a.is_nan() || b.is_nan() => <$wide>::NAN,
                    ReduceOpCode::MINIMUM if a == b && a.is_sign_positive() => b,
                    ReduceOpCode::MAXIMUM if a == b && a.is_sign_negative() => b,
                    ReduceOpCode::MINIMUM =>
                        if b < a {
                            b
                        } else {
                            a
                        },
                    _ =>
                        if b > a {
                            b
                        } else {
                            a
                        },
                },
                |number: $wide, ranks: usize| number / ranks as $wide
            )
        };
    }
    use crate::float::{E4m3, E5m2};
    match element {
        ElementTypeCode::I8 => integer!(i8, i32, 1),
        ElementTypeCode::U8 => integer!(u8, u32, 1),
        ElementTypeCode::I16 => integer!(i16, i32, 2),
        ElementTypeCode::U16 => integer!(u16, u32, 2),
        ElementTypeCode::I32 => integer!(i32, i32, 4),
        ElementTypeCode::U32 => integer!(u32, u32, 4),
        ElementTypeCode::I64 => integer!(i64, i64, 8),
        ElementTypeCode::U64 => integer!(u64, u64, 8),
        ElementTypeCode::F32 => float!(f32, 4, f32::from_le_bytes, f32::to_le_bytes),
        ElementTypeCode::F64 => float!(f64, 8, f64::from_le_bytes, f64::to_le_bytes),
        ElementTypeCode::F16 => float!(
            f32,
            2,
            |bytes| f16::from_le_bytes(bytes).to_f32(),
            |number| { f16::from_f32(number).to_le_bytes() }
        ),
        ElementTypeCode::BF16 => float!(
            f32,
            2,
            |bytes| bf16::from_le_bytes(bytes).to_f32(),
            |number| { bf16::from_f32(number).to_le_bytes() }
        ),
        ElementTypeCode::F8_E4M3 => float!(
            f32,
            1,
            |[byte]: [u8; 1]| E4m3::widen(byte.into()),
            |number| { [E4m3::narrow(number) as u8] }
        ),
        ElementTypeCode::F8_E5M2 => float!(
            f32,
            1,
            |[byte]: [u8; 1]| E5m2::widen(byte.into()),
            |number| { [E5m2::narrow(number) as u8] }
        ),
        _ => unreachable!(),
    }
}

/// Replaces every NaN by one pattern, because the payload is not promised.
fn without_payload(element: ElementTypeCode, mut bytes: Vec<u8>) -> Vec<u8> {
    let width = element.bytes() as usize;
    for bytes in bytes.chunks_exact_mut(width) {
        let nan = match element {
            ElementTypeCode::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).is_nan(),
            ElementTypeCode::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).is_nan(),
            ElementTypeCode::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
            ElementTypeCode::F64 => f64::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
            _ => false,
        };
        if nan {
            bytes.fill(0xff);
        }
    }
    bytes
}

const TYPES: [ElementTypeCode; 14] = [
    ElementTypeCode::I8,
    ElementTypeCode::U8,
    ElementTypeCode::I16,
    ElementTypeCode::U16,
    ElementTypeCode::I32,
    ElementTypeCode::U32,
    ElementTypeCode::I64,
    ElementTypeCode::U64,
    ElementTypeCode::F16,
    ElementTypeCode::BF16,
    ElementTypeCode::F32,
    ElementTypeCode::F64,
    ElementTypeCode::F8_E4M3,
    ElementTypeCode::F8_E5M2,
];
const OPERATIONS: [ReduceOpCode; 5] = [
    ReduceOpCode::SUM,
    ReduceOpCode::AVERAGE,
    ReduceOpCode::MINIMUM,
    ReduceOpCode::MAXIMUM,
    ReduceOpCode::PRODUCT,
];

#[rstest]
fn every_type_is_reduced_by_every_operation_as_defined_on_all_ranks_alike(
    #[values(1, 2, 3, 8)] world: u32,
    #[values(How::OneShot, How::TwoShot, How::Packets, How::PacketsTwoShot)] how: How,
    #[values(false, true)] in_place: bool,
) {
    if how == How::OneShot && in_place {
        // Members still read what others would overwrite; the library never asks for this.
        return;
    }
    let ranks = ranks(world);
    let counts: &[u64] = if cfg!(miri) {
        &[0, 3]
    } else {
        &[0, 1, 17, 2500]
    };
    for (number, element) in TYPES.into_iter().enumerate() {
        for reduce in OPERATIONS {
            for count in counts.iter().copied() {
                // Also tests elements at odd addresses.
                let from = INPUT + count % 7;
                let to = if in_place { from } else { OUTPUT + 1 };
                let call = AllReduce {
                    how,
                    element,
                    reduce,
                    count,
                    from,
                    to,
                    channel: 0,
                };
                let inputs: Vec<_> = (0..world)
                    .map(|rank| elements(element, count, 1000 * number as u64 + u64::from(rank)))
                    .collect();
                for (rank, input) in ranks.iter().zip(&inputs) {
                    put_bytes(rank.at(rank.rank, from), input);
                }
                on_each(&ranks, |rank, stream| call.enqueue(rank, stream));
                let wanted = without_payload(element, reference(element, reduce, &inputs));
                for rank in &ranks {
                    let made = contents(rank.at(rank.rank, to), count * element.bytes());
                    assert!(
                        without_payload(element, made) == wanted,
                        "{} {} of {count} at rank {}",
                        element.name(),
                        reduce.name(),
                        rank.rank
                    );
                    assert_eq!(rank.record().state, 0);
                }
            }
        }
    }
}
