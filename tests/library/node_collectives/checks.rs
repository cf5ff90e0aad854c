//! Every collective of a group against what its definition says, by elements whose sums are exact.

use std::fmt::Debug;
use symmem::{
    CollectiveOptions, Communicator, Element, F8E4M3, Group, ReduceOp, Reducible, Result, Slice,
    Stream, SymmetricBuffer,
};

/// Most elements of a member's part.
const MOST: usize = 300_000;
/// Elements of a part: small, ragged, around the sizes at which plans change, and several chunks.
const COUNTS: [usize; 6] = [1, 64, 1000, 5000, 40_001, MOST];
/// The same for a group: its plans are those of a world.
const FEW: [usize; 3] = [3, 1000, 40_001];
/// Elements of a broadcast in several chunks.
const LONG: usize = 700_000;

/// Returns element `index` of what `member` contributes to call `salt`.
pub fn value(member: usize, index: usize, salt: usize) -> u64 {
    ((index * 7 + member * 3 + salt) % 5) as u64
}

pub struct Checks<'c> {
    communicator: &'c Communicator,
    group: Option<&'c Group>,
    stream: Stream,
    world: usize,
    rank: usize,
    source: SymmetricBuffer<u8>,
    destination: SymmetricBuffer<u8>,
}

/// A type of elements, and how it holds a small number.
trait Number: Reducible + PartialEq + Debug + Copy {
    fn of(value: f64) -> Self;
}

macro_rules! numbers {
    ($($type:ty: $value:ident => $made:expr;)*) => {$(
        impl Number for $type {
            fn of($value: f64) -> Self {
                $made
            }
        }
    )*};
}
numbers! {
    i8: value => value as i8;
    u16: value => value as u16;
    i32: value => value as i32;
    u64: value => value as u64;
    f32: value => value as f32;
    f64: value => value;
    half::bf16: value => half::bf16::from_f64(value);
    half::f16: value => half::f16::from_f64(value);
}

/// Returns the first elements of a buffer.
fn cast<T: Element>(buffer: &SymmetricBuffer<u8>, elements: usize) -> Result<Slice<'_, T>> {
    buffer.slice(..elements * size_of::<T>())?.cast()
}

impl<'c> Checks<'c> {
    pub fn new(communicator: &'c Communicator, group: Option<&'c Group>) -> Result<Self> {
        let world = group.map_or(communicator.world_size(), Group::world_size);
        let bytes = 4 * LONG.max(MOST * communicator.world_size());
        Ok(Self {
            group,
            stream: communicator.stream()?,
            world,
            rank: group.map_or(communicator.rank(), Group::rank),
            source: communicator.allocate(&[bytes])?,
            destination: communicator.allocate(&[bytes])?,
            communicator,
        })
    }

    fn options(&self) -> CollectiveOptions<'_> {
        CollectiveOptions::new().group(self.group)
    }

    fn fill<T: Element>(&self, buffer: &SymmetricBuffer<u8>, data: &[T]) -> Result<()> {
        // SAFETY: elements have no padding.
        let bytes =
            unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)) };
        self.stream.write(buffer.slice(..bytes.len())?, bytes)
    }

    fn read<T: Element>(&self, buffer: &SymmetricBuffer<u8>, count: usize) -> Result<Vec<T>> {
        let mut bytes = vec![0_u8; count * size_of::<T>()];
        self.stream
            .read(buffer.slice(..count * size_of::<T>())?, &mut bytes)?;
        let elements = bytes.chunks_exact(size_of::<T>());
        // SAFETY: every pattern of bits is an element, and the chunk has an element's bytes.
        Ok(elements
            .map(|one| unsafe { one.as_ptr().cast::<T>().read_unaligned() })
            .collect())
    }

    /// Fills the source with this member's elements, and the destination with others.
    fn begin<T: Number>(&self, elements: usize, result: usize, salt: usize) -> Result<()> {
        let data: Vec<T> = (0..elements)
            .map(|at| T::of(value(self.rank, at, salt) as f64))
            .collect();
        self.fill(&self.source, &data)?;
        self.fill(&self.destination, &vec![T::of(99.0); result])
    }

    fn expect<T: Number>(
        &self,
        what: &str,
        elements: usize,
        expected: impl Fn(usize) -> f64,
    ) -> Result<()> {
        let seen = self.read::<T>(&self.destination, elements)?;
        for (at, seen) in seen.into_iter().enumerate() {
            let expected = T::of(expected(at));
            assert_eq!(
                seen, expected,
                "{what} of {elements} elements, member {} of {}: element {at}",
                self.rank, self.world
            );
        }
        Ok(())
    }

    /// The sum of all members' elements, or another reduction.
    fn reduced(&self, at: usize, salt: usize, operator: ReduceOp) -> f64 {
        let values = (0..self.world).map(|member| value(member, at, salt) as f64);
        match operator {
            ReduceOp::Sum => values.sum(),
            ReduceOp::Average => values.sum::<f64>() / self.world as f64,
            ReduceOp::Product => values.product(),
            ReduceOp::Minimum => values.fold(f64::INFINITY, f64::min),
            ReduceOp::Maximum => values.fold(0.0, f64::max),
        }
    }

    pub fn all(&self) -> Result<()> {
        let counts: &[usize] = if self.group.is_some() { &FEW } else { &COUNTS };
        for (salt, &count) in counts.iter().enumerate() {
            self.reductions::<f32>(count, salt, ReduceOp::Sum)?;
            self.moves(count, salt)?;
            self.unequal(count, salt)?;
        }
        for (salt, operator) in [
            ReduceOp::Average,
            ReduceOp::Minimum,
            ReduceOp::Maximum,
            ReduceOp::Product,
        ]
        .into_iter()
        .enumerate()
        {
            for count in [5, 20_000] {
                self.reductions::<i32>(count, salt, operator)?;
                self.reductions::<f64>(count, salt, operator)?;
                self.reductions::<f32>(count, salt, operator)?;
            }
        }
        for count in [7, 30_000] {
            self.reductions::<i8>(count, 1, ReduceOp::Sum)?;
            self.reductions::<u16>(count, 2, ReduceOp::Sum)?;
            self.reductions::<u64>(count, 3, ReduceOp::Sum)?;
            self.reductions::<half::bf16>(count, 4, ReduceOp::Sum)?;
            self.reductions::<half::f16>(count, 5, ReduceOp::Sum)?;
        }
        self.long()?;
        self.eight_bits()?;
        self.own_memory()?;
        self.in_place()?;
        self.messages()?;
        self.graph()?;
        for _ in 0..5 {
            self.stream.with(&self.options()).barrier()?;
        }
        self.stream.synchronize()
    }

    fn reductions<T: Number>(&self, count: usize, salt: usize, operator: ReduceOp) -> Result<()> {
        let size = size_of::<T>();
        let options = self.options();
        let calls = self.stream.with(&options);
        let (source, destination) = (&self.source, &self.destination);
        let name = format!("{operator:?} of {}", std::any::type_name::<T>());

        let count = count.min(MOST * 4 / size);
        self.begin::<T>(count, count, salt)?;
        calls.all_reduce(
            cast::<T>(destination, count)?,
            cast::<T>(source, count)?,
            operator,
        )?;
        self.expect::<T>(&format!("all_reduce: {name}"), count, |at| {
            self.reduced(at, salt, operator)
        })?;

        for root in [0, self.world - 1] {
            self.begin::<T>(count, count, salt)?;
            calls.reduce(
                root,
                cast::<T>(destination, count)?,
                cast::<T>(source, count)?,
                operator,
            )?;
            self.expect::<T>(&format!("reduce to {root}: {name}"), count, |at| {
                match self.rank == root {
                    true => self.reduced(at, salt, operator),
                    false => 99.0,
                }
            })?;
        }

        let all = count * self.world;
        self.begin::<T>(all, count, salt)?;
        calls.reduce_scatter(
            cast::<T>(destination, count)?,
            cast::<T>(source, all)?,
            operator,
        )?;
        self.expect::<T>(&format!("reduce_scatter: {name}"), count, |at| {
            self.reduced(self.rank * count + at, salt, operator)
        })
    }

    /// Returns the elements of both buffers.
    fn words(
        &self,
        to: usize,
        from: usize,
    ) -> Result<(symmem::Slice<'_, i32>, symmem::Slice<'_, i32>)> {
        Ok((
            self.destination.slice(..to * 4)?.cast()?,
            self.source.slice(..from * 4)?.cast()?,
        ))
    }

    fn moves(&self, count: usize, salt: usize) -> Result<()> {
        let options = self.options();
        let calls = self.stream.with(&options);
        let all = count * self.world;
        let (rank, world) = (self.rank, self.world);

        self.begin::<i32>(count, all, salt)?;
        let (to, from) = self.words(all, count)?;
        calls.all_gather(to, from)?;
        self.expect::<i32>("all_gather", all, |at| {
            value(at / count, at % count, salt) as f64
        })?;

        self.begin::<i32>(all, all, salt)?;
        let (to, from) = self.words(all, all)?;
        calls.all_to_all(to, from)?;
        self.expect::<i32>("all_to_all", all, |at| {
            value(at / count, rank * count + at % count, salt) as f64
        })?;

        for root in [0, world / 2, world - 1] {
            self.begin::<i32>(count, count, salt)?;
            let (to, from) = self.words(count, count)?;
            calls.broadcast(root, to, from)?;
            self.expect::<i32>("broadcast", count, |at| value(root, at, salt) as f64)?;

            self.begin::<i32>(count, all, salt)?;
            let (to, from) = self.words(all, count)?;
            calls.gather(root, to, from)?;
            self.expect::<i32>("gather", all, |at| match rank == root {
                true => value(at / count, at % count, salt) as f64,
                false => 99.0,
            })?;

            self.begin::<i32>(all, count, salt)?;
            let (to, from) = self.words(count, all)?;
            calls.scatter(root, to, from)?;
            self.expect::<i32>("scatter", count, |at| {
                value(root, rank * count + at, salt) as f64
            })?;
        }
        Ok(())
    }

    /// All-gather and all-to-all of parts of different lengths, some of which are 0.
    fn unequal(&self, count: usize, salt: usize) -> Result<()> {
        let options = self.options();
        let calls = self.stream.with(&options);
        let world = self.world;
        let length = |from: usize, to: usize| (from * 5 + to * 3 + salt) % 4 * count / 4;
        let starts = |counts: &[usize]| -> Vec<usize> {
            (0..counts.len())
                .map(|at| counts[..at].iter().sum())
                .collect()
        };

        let counts: Vec<usize> = (0..world).map(|member| length(member, 0)).collect();
        let first = starts(&counts);
        let all: usize = counts.iter().sum();
        self.begin::<i32>(counts[self.rank], all, salt)?;
        let (to, from) = self.words(all, counts[self.rank])?;
        calls.all_gather_v(to, from, &counts)?;
        self.expect::<i32>("all_gather_v", all, |at| {
            let member = (0..world)
                .rfind(|&one| first[one] <= at && counts[one] > 0)
                .unwrap_or(0);
            let member = match at < first[member] + counts[member] {
                true => member,
                false => unreachable!("parts are side by side"),
            };
            value(member, at - first[member], salt) as f64
        })?;

        let sent: Vec<usize> = (0..world).map(|to| length(self.rank, to)).collect();
        let received: Vec<usize> = (0..world).map(|from| length(from, self.rank)).collect();
        let (sent_at, received_at) = (starts(&sent), starts(&received));
        let (out, into): (usize, usize) = (sent.iter().sum(), received.iter().sum());
        self.begin::<i32>(out, into, salt)?;
        let (to, from) = self.words(into, out)?;
        calls.all_to_all_v(to, &received, &received_at, from, &sent, &sent_at)?;
        self.expect::<i32>("all_to_all_v", into, |at| {
            let from = (0..world)
                .find(|&from| (received_at[from]..received_at[from] + received[from]).contains(&at))
                .expect("parts are side by side");
            let before: usize = (0..self.rank).map(|to| length(from, to)).sum();
            value(from, before + at - received_at[from], salt) as f64
        })
    }

    /// A broadcast and a reduce in several chunks.
    fn long(&self) -> Result<()> {
        let options = self.options();
        let calls = self.stream.with(&options);
        let root = self.world - 1;
        self.begin::<i32>(LONG, LONG, 1)?;
        let (to, from) = self.words(LONG, LONG)?;
        calls.broadcast(root, to, from)?;
        self.expect::<i32>("broadcast", LONG, |at| value(root, at, 1) as f64)?;
        self.begin::<i32>(LONG, LONG, 2)?;
        calls.reduce(root, to, from, ReduceOp::Sum)?;
        self.expect::<i32>("reduce", LONG, |at| match self.rank == root {
            true => self.reduced(at, 2, ReduceOp::Sum),
            false => 99.0,
        })
    }

    /// fp8 holds small whole numbers exactly.
    fn eight_bits(&self) -> Result<()> {
        let options = self.options();
        let calls = self.stream.with(&options);
        // 1.0 in E4M3, and the world's size up to 8.
        let codes = [0, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e, 0x50];
        for count in [9, 50_000] {
            self.fill(&self.source, &vec![0x38_u8; count])?;
            self.fill(&self.destination, &vec![0_u8; count])?;
            let to = self.destination.slice(..count)?.cast::<F8E4M3>()?;
            let from = self.source.slice(..count)?.cast::<F8E4M3>()?;
            calls.all_reduce(to, from, ReduceOp::Sum)?;
            let seen = self.read::<u8>(&self.destination, count)?;
            assert!(
                seen.iter().all(|&one| one == codes[self.world]),
                "fp8 all_reduce: {:x?}",
                &seen[..4]
            );
        }
        Ok(())
    }

    /// Operands that are no symmetric buffers.
    fn own_memory(&self) -> Result<()> {
        let options = self.options();
        let calls = self.stream.with(&options);
        for count in [10, 100_000] {
            self.begin::<i32>(count * self.world, count * self.world, 2)?;
            let (to, from) = self.words(count, count)?;
            let (to, from): (symmem::DeviceSlice<'_, i32>, symmem::DeviceSlice<'_, i32>) =
                (to.into(), from.into());
            calls.all_reduce(to, from, ReduceOp::Sum)?;
            self.expect::<i32>("all_reduce of own memory", count, |at| {
                self.reduced(at, 2, ReduceOp::Sum)
            })?;
            let (to, from) = self.words(count * self.world, count)?;
            let (to, from): (symmem::DeviceSlice<'_, i32>, symmem::DeviceSlice<'_, i32>) =
                (to.into(), from.into());
            calls.all_gather(to, from)?;
            self.expect::<i32>("all_gather of own memory", count * self.world, |at| {
                value(at / count, at % count, 2) as f64
            })?;
        }
        Ok(())
    }

    fn in_place(&self) -> Result<()> {
        let options = self.options();
        let calls = self.stream.with(&options);
        for count in [6, 90_000] {
            let all = count * self.world;
            let data: Vec<i32> = (0..all).map(|at| value(self.rank, at, 1) as i32).collect();
            self.fill(&self.destination, &data)?;
            let (to, _) = self.words(all, 0)?;
            calls.all_reduce(to, to, ReduceOp::Sum)?;
            self.expect::<i32>("all_reduce in place", all, |at| {
                self.reduced(at, 1, ReduceOp::Sum)
            })?;

            self.fill(&self.destination, &data)?;
            calls.all_to_all(to, to)?;
            self.expect::<i32>("all_to_all in place", all, |at| {
                value(at / count, self.rank * count + at % count, 1) as f64
            })?;

            self.fill(&self.destination, &data)?;
            calls.all_gather(to, to.slice(self.rank * count..(self.rank + 1) * count)?)?;
            self.expect::<i32>("all_gather in place", all, |at| {
                value(at / count, at, 1) as f64
            })?;
        }
        Ok(())
    }

    /// Sends and receives around a ring and with itself, two at a time.
    fn messages(&self) -> Result<()> {
        let options = self.options();
        let calls = self.stream.with(&options);
        let (rank, world) = (self.rank, self.world);
        let (right, left) = ((rank + 1) % world, (rank + world - 1) % world);
        for count in [4, 300_000] {
            self.begin::<i32>(2 * count, 2 * count, 3)?;
            let (to, from) = self.words(2 * count, 2 * count)?;
            let mut exchange = calls.exchange();
            exchange.send(right, from.slice(..count)?)?;
            exchange.send(right, from.slice(count..)?)?;
            exchange.recv(left, to.slice(..count)?)?;
            exchange.recv(left, to.slice(count..)?)?;
            exchange.enqueue()?;
            self.expect::<i32>("exchange", 2 * count, |at| value(left, at, 3) as f64)?;
        }
        // A pair, while the others do something else.
        self.begin::<i32>(50, 50, 4)?;
        let (to, from) = self.words(50, 50)?;
        if world > 1 && rank == 0 {
            calls.send(world - 1, from)?;
        } else if world > 1 && rank == world - 1 {
            calls.recv(0, to)?;
            self.expect::<i32>("recv", 50, |at| value(0, at, 4) as f64)?;
        }
        Ok(())
    }

    /// Work recorded once, and run three times.
    fn graph(&self) -> Result<()> {
        let mut stream = self.communicator.stream()?;
        let options = self.options();
        let count = 20_000;
        self.begin::<i32>(count, count, 0)?;
        let (to, from) = self.words(count, count)?;
        let captured = stream.capture(|queue| {
            queue.with(&options).all_reduce(to, from, ReduceOp::Sum)?;
            queue.with(&options).broadcast(0, from, to)
        });
        let graph = match captured {
            Err(symmem::Error::Unsupported { .. }) => return Ok(()),
            other => other?,
        };
        let world = self.world as f64;
        for run in 0..3 {
            stream.launch_graph(&graph)?;
            stream.synchronize()?;
            self.expect::<i32>("a replayed all_reduce", count, |at| {
                self.reduced(at, 0, ReduceOp::Sum) * world.powi(run)
            })?;
        }
        Ok(())
    }
}
