//! All-reduce of rows with a residual and a norm: checks, grid, and launches.

use crate::backend::CollectiveKernels;
use crate::backend::abi::*;
use crate::base::error::Result;
use crate::collectives::compare::Comparison;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::run::dispatch::watch;
use crate::collectives::run::kernel::geometry;
use crate::collectives::select::membership;
use crate::group::inbox;
use crate::group::selector::Selector;
use crate::rank::memory_range::MemoryRange;
use crate::stream::queue::Queue;

/// Most threads of a block, and the unit of their number: a warp of any device.
const MOST_THREADS: u64 = 1024;
const THREAD_STEP: u64 = 64;

/// A request, as a verb makes it.
pub struct NormRequest<'a> {
    /// The method's name, for errors.
    pub name: &'static str,
    pub element: ElementTypeCode,
    /// Elements of a row.
    pub hidden: u64,
    pub destination: MemoryRange<'a>,
    pub source: MemoryRange<'a>,
    /// Where the residual is, and where the sum with it goes.
    pub residual: Option<[MemoryRange<'a>; 2]>,
    /// Whether the residual has this rank's own rows only.
    pub sharded: bool,
    pub weight: Option<MemoryRange<'a>>,
    pub bias: Option<MemoryRange<'a>>,
    pub norm: NormCode,
    pub epsilon: f32,
    pub weight_offset: f32,
    pub quantization: QuantizationCode,
    pub scales: Option<MemoryRange<'a>>,
}

impl NormRequest<'_> {
    /// Returns the number of rows, in a group of `world` of which this is member `rank`.
    ///
    /// # Errors
    /// The first length or number that does not fit, as text.
    fn rows(&self, rank: usize, world: usize) -> std::result::Result<u64, String> {
        let (size, hidden) = (self.element.bytes(), self.hidden);
        let elements = self.source.bytes() / size;
        if hidden == 0 || hidden > u32::MAX.into() || !elements.is_multiple_of(hidden) {
            return Err(format!(
                "the source has {elements} elements, which are no rows of {hidden}; pass whole rows"
            ));
        }
        let rows = elements / hidden;
        let expected = |name: &str, range: &MemoryRange<'_>, size: u64, count: u64| match range
            .bytes()
            == count * size
        {
            true => Ok(()),
            false => Err(format!(
                "the {name} has {} elements; {rows} rows of {hidden} need {count}",
                range.bytes() / size
            )),
        };
        let out = if self.scales.is_some() { 1 } else { size };
        expected("destination", &self.destination, out, elements)?;
        if self.sharded && self.scales.is_some() {
            return Err(
                "results of 8 bits need a residual of all rows at each rank; pass one to `RowNorm::residual`, or take results of \
                 the rows' type"
                    .into(),
            );
        }
        if self.sharded && rows > u32::MAX.into() {
            return Err(format!(
                "a residual of own rows serves at most {} rows, not {rows}; make several calls",
                u32::MAX
            ));
        }
        match &self.residual {
            Some([from, to]) if self.sharded => {
                let own = own_rows(rows, rank, world);
                for (name, range) in [("residual", from), ("residual's destination", to)] {
                    if range.bytes() != own * hidden * size {
                        return Err(format!(
                            "the {name} has {} elements; of {rows} rows of {hidden} this rank owns {own}: pass those",
                            range.bytes() / size
                        ));
                    }
                }
            }
            Some([from, to]) => {
                expected("residual", from, size, elements)?;
                expected("residual's destination", to, size, elements)?;
            }
            None => {}
        }
        for (name, range) in [("weight", &self.weight), ("bias", &self.bias)] {
            if let Some(range) = range {
                expected(name, range, size, hidden)?;
            }
        }
        let group = u64::from(NORM_GROUP);
        if self.quantization == QuantizationCode::GROUP && !hidden.is_multiple_of(group) {
            return Err(format!(
                "rows of {hidden} elements have no whole groups of {group}; use a scale for each row"
            ));
        }
        if let Some(scales) = &self.scales {
            let count = self.quantization.scales(rows, hidden);
            expected("array of scales", scales, size_of::<f32>() as u64, count)?;
        }
        let usable = self.epsilon.is_finite() && self.epsilon >= 0.0;
        if !usable || !self.weight_offset.is_finite() {
            return Err(format!(
                "epsilon is {}, the weights' offset {}; both must be finite, and epsilon not negative",
                self.epsilon, self.weight_offset
            ));
        }
        Ok(rows)
    }

    /// Checks that nothing that is written overlaps anything else, except where it is the same range.
    ///
    /// # Errors
    /// The two ranges, as text.
    fn check_overlaps(&self, rank: usize) -> std::result::Result<(), String> {
        let in_place = self.scales.is_none();
        let (residual, sums) = match &self.residual {
            Some([from, to]) => (Some(from), Some(to)),
            None => (None, None),
        };
        let written = self.quantization != QuantizationCode::TENSOR;
        let scales = self.scales.as_ref();
        let all = [
            ("source", Some(&self.source), false),
            ("destination", Some(&self.destination), true),
            ("residual", residual, false),
            ("residual's destination", sums, true),
            ("weight", self.weight.as_ref(), false),
            ("bias", self.bias.as_ref(), false),
            ("array of scales", scales, written),
        ];
        for (index, (name, range, is_written)) in all.iter().enumerate() {
            for (other_name, other, other_is_written) in &all[..index] {
                let (Some(range), Some(other)) = (range, other) else {
                    continue;
                };
                let may_be_same = match (*other_name, *name) {
                    ("source", "destination") => in_place,
                    ("residual", "residual's destination") => true,
                    _ => false,
                };
                let same = range.is_at(rank, other, 0) && range.bytes() == other.bytes();
                let clash = (*is_written || *other_is_written) && range.overlaps(rank, other);
                if clash && !(same && may_be_same) {
                    return Err(format!(
                        "the {name} overlaps the {other_name}; pass disjoint ranges{}",
                        if may_be_same { ", or the same" } else { "" }
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the arguments on which members must agree, with their names.
    fn fields(&self, rows: u64) -> [(&'static str, String); 8] {
        [
            ("the element type", self.element.name().into()),
            ("the number of rows", rows.to_string()),
            ("the elements of a row", self.hidden.to_string()),
            ("the norm", self.norm.name().into()),
            ("epsilon", self.epsilon.to_string()),
            ("the weights' offset", self.weight_offset.to_string()),
            ("the scales", self.quantization.name().into()),
            (
                "the residual",
                match (self.residual.is_some(), self.sharded) {
                    (false, _) => "none".into(),
                    (true, false) => "all rows".into(),
                    (true, true) => "own rows".into(),
                },
            ),
        ]
    }
}

/// Returns the rows of each member's share of `rows`; the last shares may have fewer, or none.
fn owner_rows(rows: u64, world: usize) -> u64 {
    rows.div_ceil(world as u64)
}

/// Returns the number of rows that a member owns.
fn own_rows(rows: u64, member: usize, world: usize) -> u64 {
    let each = owner_rows(rows, world);
    rows.saturating_sub(member as u64 * each).min(each)
}

/// Bytes of all rows from which on a sum without a residual is two-shot between more than two ranks: it sends 2 (`world` - 1) /
/// `world` of its rows, where one-shot sends `world` - 1 times all.
const TWO_SHOT_BYTES: u64 = 1 << 20;

/// Which rows each member sums and normalises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// All rows.
    OneShot { rows: u64 },
    /// Its share of `owner` rows.
    TwoShot { rows: u64, owner: u64 },
}

impl Division {
    /// Divides `rows` rows of `row_bytes` between `world` members. Each has its own rows of the residual only if `sharded`; else
    /// `may_share` says that there is no residual, nor results of 8 bits. `part_bytes` is what an inbox holds of a member. All
    /// members choose alike: what they choose by, they share.
    fn new(
        (rows, row_bytes): (u64, u64),
        world: usize,
        (sharded, may_share): (bool, bool),
        part_bytes: u64,
    ) -> Self {
        let pays = world > 2 && rows.saturating_mul(row_bytes) >= TWO_SHOT_BYTES;
        let fits = part_bytes / row_bytes >= 2 && rows <= u32::MAX.into();
        let owner = owner_rows(rows, world);
        match world > 1 && (sharded || may_share && pays && fits) {
            true => Self::TwoShot { rows, owner },
            false => Self::OneShot { rows },
        }
    }

    /// Returns the rows of a part that each row takes, and the rows that are divided between launches.
    fn shape(self) -> (u64, u64) {
        match self {
            Self::OneShot { rows } => (1, rows),
            // Where it is sent, and where its result is.
            Self::TwoShot { owner, .. } => (2, owner),
        }
    }
}

/// Returns blocks and threads for `rows` rows of `vectors` vectors: a block for each row, or else a few rows for each block.
///
/// # Errors
/// Why the options cannot be met, as text.
fn grid(
    selector: &Selector,
    element: ElementTypeCode,
    (rows, vectors): (u64, u64),
    options: &CollectiveOptions<'_>,
) -> std::result::Result<(u32, u32), String> {
    if !selector.has_grids() {
        return Ok((1, 1));
    }
    // One vector a thread, if it can be.
    let threads = vectors.next_multiple_of(THREAD_STEP).min(MOST_THREADS) as u32;
    let threads = options.threads.unwrap_or(threads);
    if threads == 0
        || u64::from(threads) > MOST_THREADS
        || !u64::from(threads).is_multiple_of(THREAD_STEP)
    {
        return Err(format!(
            "{threads} threads; use a multiple of {THREAD_STEP}, at most {MOST_THREADS}"
        ));
    }
    let most = selector.most_resident(CollectiveKernel::REDUCE_NORM, element, threads);
    if most == 0 {
        return Err(format!(
            "a block of {threads} threads of {} cannot be resident on this device{}",
            CollectiveKernel::REDUCE_NORM.name(),
            selector.residency().because_shared()
        ));
    }
    let blocks = match options.blocks {
        Some(blocks) if blocks == 0 || blocks > most => {
            return Err(format!(
                "{blocks} blocks of {threads} threads wait for each other; use 1 to {most} on this device{}",
                selector.residency().because_shared()
            ));
        }
        Some(blocks) => blocks,
        // As many rows for each.
        None => {
            let turns = rows.div_ceil(most.into()).max(1);
            rows.div_ceil(turns) as u32
        }
    };
    Ok((u64::from(blocks).min(rows) as u32, threads))
}

impl Queue {
    /// Compares, checks and enqueues an all-reduce of rows with a norm.
    pub(crate) fn all_reduce_norm_of(
        &self,
        request: &NormRequest<'_>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let (world, name) = (self.world(), request.name);
        world.health.check()?;
        let membership = membership(world, name, options)?;
        let invalid = |message: String| self.invalid(name, message);
        // Before members compare, since one with such arguments has no rows.
        let (rank, members) = (membership.rank, membership.world());
        let rows = request.rows(rank, members).map_err(invalid)?;
        let state = &world.collectives;
        if state.check_calls {
            let comparison = Comparison::new(world, membership, options, name);
            comparison.of_fields(&request.fields(rows))?;
        }
        request.check_overlaps(world.rank).map_err(invalid)?;
        if rows == 0 {
            return Ok(());
        }
        let row_bytes = ReduceNormArguments::taken_bytes(request.hidden, request.element);
        let slots = &membership.slots;
        let inboxes = slots.lamport(options.channel);
        let part = match (members, inboxes) {
            (1, _) => u64::MAX,
            (_, Some(inboxes)) => inboxes.part_bytes.into(),
            (_, None) => 0,
        };
        let may_share = request.residual.is_none() && request.scales.is_none();
        let kind = (request.sharded, may_share);
        let division = Division::new((rows, row_bytes), members, kind, part);
        let (taken, divided) = division.shape();
        let taken = taken.saturating_mul(row_bytes);
        if part < taken {
            return Err(invalid(format!(
                "a row takes {taken} bytes, and channel {} has inboxes for {part}; use channel 0 and shorter rows",
                options.channel
            )));
        }
        let part = match (division, inboxes) {
            (Division::OneShot { .. }, Some(inboxes)) if members > 1 => {
                inboxes.message_bytes(members).max(taken)
            }
            _ => part,
        };
        let launches = divided.div_ceil((part / taken).min(u32::MAX.into()));
        let most = divided.div_ceil(launches);
        let of = (most, row_bytes / 16);
        let (blocks, threads) =
            grid(&state.selector, request.element, of, options).map_err(invalid)?;
        let sequence = membership.sequence(options.channel);
        self.admit(name, sequence)?;
        let submit = self.submit(name);
        submit.follow(sequence, state.selector.residency().fits(blocks));
        submit.hold(slots.allocation());
        let watch = watch(world, options);
        let operation = CollectiveOperationCode::ALL_REDUCE_NORM;
        let header = slots.header(options.channel, operation, watch, options.dependents);
        let address = |range: &MemoryRange<'_>| submit.address(range, world.rank);
        let optional = |range: Option<&MemoryRange<'_>>| range.map_or(DeviceAddress::NULL, address);
        let [residual, residual_out] = match &request.residual {
            Some(both) => both.each_ref().map(address),
            None => [DeviceAddress::NULL; 2],
        };
        let mut arguments = ReduceNormArguments {
            reduce: ReduceLamportArguments {
                group: *header.channel,
                inboxes: [DeviceAddress::NULL; MAX_RANKS],
                sources: [DeviceAddress::NULL; MAX_RANKS],
                destination: DeviceAddress::NULL,
                count: 0,
                counters: DeviceAddress::NULL,
                part_bytes: 0,
                element: request.element,
                reduce: ReduceOpCode::SUM,
                dependents: header.dependents.into(),
                pair: LamportPair::default(),
                share_bytes: 0,
                receiver: EVERY_MEMBER,
                reserved: 0,
            },
            residual,
            residual_out,
            weight: optional(request.weight.as_ref()),
            bias: optional(request.bias.as_ref()),
            scales: optional(request.scales.as_ref()),
            hidden: request.hidden as u32,
            rows: 0,
            epsilon: request.epsilon,
            weight_offset: request.weight_offset,
            norm: request.norm,
            quantization: request.quantization,
            share_rows: 0,
            owner_rows: 0,
        };
        header.complete(&mut arguments.reduce.group);
        if let Some(inboxes) = inboxes.filter(|_| membership.world() > 1) {
            inbox::fill_lamport(&mut arguments.reduce, inboxes);
        }
        let (source, destination) = (address(&request.source), address(&request.destination));
        let enqueued = (0..launches).try_for_each(|launch| {
            let first = launch * most;
            let count = most.min(divided - first) as u32;
            let places = (source, destination);
            let mut arguments = match division {
                Division::OneShot { .. } => arguments.of_rows(first, count, places),
                Division::TwoShot { rows, owner } => {
                    arguments.of_shares((first, count), (rows, owner as u32), places)
                }
            };
            arguments.reduce.pair = arguments.reduce.pair_of();
            let grid = geometry(blocks.min(count), threads);
            let (backend, stream) = (submit.backend(), submit.stream());
            // SAFETY: the ranges are inside live allocations, which `submit` keeps, as it keeps the group's memory; for memory
            // of the program's, its slice vouches. All members make the same choice: it depends on what they share.
            unsafe { backend.collective_reduce_norm(&arguments, &grid, stream) }
        });
        let bytes = request.source.bytes();
        submit
            .end(enqueued)
            .map_err(|error| error.about(None, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_one_owner() {
        for world in 1..=8 {
            for rows in 0..40 {
                let owned: u64 = (0..world).map(|member| own_rows(rows, member, world)).sum();
                assert_eq!(owned, rows, "{world} members");
                // The first members have full shares, as the kernels expect.
                for member in 1..world {
                    let before = own_rows(rows, member - 1, world);
                    let own = own_rows(rows, member, world);
                    assert!(own == 0 || before == owner_rows(rows, world));
                }
            }
        }
    }

    #[test]
    fn owners_sum_their_rows_if_the_residual_is_divided_or_where_that_sends_less() {
        const PART: u64 = 1 << 22;
        let two_shot = |rows, world, kind| match Division::new((rows, 1 << 14), world, kind, PART) {
            Division::TwoShot { owner, .. } => Some(owner),
            Division::OneShot { .. } => None,
        };
        let (divided, whole, none) = ((true, false), (false, false), (false, true));
        assert_eq!(two_shot(1, 2, divided), Some(1));
        assert_eq!(two_shot(1023, 4, divided), Some(256));
        assert_eq!(two_shot(8, 1, divided), None);
        assert_eq!(two_shot(1024, 4, whole), None);
        assert_eq!(two_shot(1024, 2, none), None);
        assert_eq!(two_shot(63, 3, none), None);
        assert_eq!(two_shot(64, 3, none), Some(22));
        // A row and its result must fit.
        let long = Division::new((64, PART), 3, none, PART);
        assert_eq!(long, Division::OneShot { rows: 64 });
    }
}
