//! Gathering of shards of any size, and reductions, for operations built on collectives.

use crate::backend::abi::{CollectiveOperationCode, ElementTypeCode, ReduceOpCode};
use crate::base::error::Result;
use crate::collectives::compare::Comparison;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::request::Request;
use crate::collectives::select::membership;
use crate::rank::memory_range::MemoryRange;
use crate::stream::queue::Queue;

impl Queue {
    /// Gathers all ranks' shards into `destination`, in rank order. `source` is this rank's shard. `counts` has
    /// each rank's elements, of `element_bytes` bytes each; at least one is not 0.
    pub(crate) fn gather_shards(
        &self,
        destination: MemoryRange<'_>,
        source: MemoryRange<'_>,
        (counts, element_bytes): (&[usize], u64),
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let equal = counts.iter().all(|count| *count == counts[0]);
        let (operation, name) = if equal {
            (CollectiveOperationCode::ALL_GATHER, "all_gather")
        } else {
            (CollectiveOperationCode::ALL_GATHER_V, "all_gather_v")
        };
        let request = Request {
            name,
            operation,
            element: ElementTypeCode::U8,
            element_bytes,
            reduce: ReduceOpCode::default(),
            root: 0,
            counts: (!equal).then_some(counts),
            stride: None,
            destination,
            source,
        };
        self.collective(&request, options)
    }

    /// Adds up `source` of all ranks: all of it if `operation` is an all-reduce, each rank's part if it is a reduce-scatter.
    pub(crate) fn add_up(
        &self,
        operation: CollectiveOperationCode,
        destination: MemoryRange<'_>,
        source: MemoryRange<'_>,
        element: ElementTypeCode,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let request = Request {
            name: match operation {
                CollectiveOperationCode::REDUCE_SCATTER => "reduce_scatter",
                _ => "all_reduce",
            },
            operation,
            element,
            element_bytes: element.bytes(),
            reduce: ReduceOpCode::SUM,
            root: 0,
            counts: None,
            stride: None,
            destination,
            source,
        };
        self.collective(&request, options)
    }

    /// Compares, in debug mode, a call that is no collective of its own with those of the other ranks.
    pub(crate) fn compare_call(
        &self,
        name: &'static str,
        options: &CollectiveOptions<'_>,
        fields: &[(&'static str, String)],
    ) -> Result<()> {
        let membership = membership(self.world(), name, options)?;
        Comparison::new(self.world(), membership, options, name).of_fields(fields)
    }
}
