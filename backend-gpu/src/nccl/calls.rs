//! Translates one `NcclCall` to calls of NCCL.

use super::table::{Code, Comm, IN_PROGRESS, SUCCESS, Stream};
use super::{NcclApi, convert};
use std::ffi::{c_int, c_void};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// Communicator and stream of a call.
pub(super) struct Site {
    pub library: &'static NcclApi,
    pub comm: Comm,
    pub rank: u32,
    pub world: u32,
    pub stream: Stream,
}

/// Name and result code of a call of the library.
type NamedCode = (&'static str, Code);

/// Elements of a call in NCCL's terms.
struct Elements {
    kind: c_int,
    count: usize,
    /// Bytes of `count` elements.
    bytes: u64,
}

impl Site {
    /// Returns whether an operation consists of sends and receives in a group, because this version of the
    /// library lacks it.
    pub(super) fn is_in_parts(&self, operation: CollectiveOperationCode) -> bool {
        match operation {
            CollectiveOperationCode::ALL_TO_ALL => self.library.table.ncclAlltoAll.is_none(),
            CollectiveOperationCode::GATHER | CollectiveOperationCode::SCATTER => true,
            _ => false,
        }
    }

    /// Makes the call. If [`Site::is_in_parts`], the thread must have a group open.
    ///
    /// # Safety
    /// The communicator is ready; memory and stream are live until the stream has passed this point.
    pub(super) unsafe fn make(&self, call: &NcclCall) -> CallResult<NamedCode> {
        let table = &self.library.table;
        let elements = self.elements(call)?;
        let reduce = self.reduction(call)?;
        let root = self.peer(call)?;
        let &Elements { kind, count, .. } = &elements;
        let source: *const c_void = with_exposed_provenance(call.source.0 as usize);
        let destination: *mut c_void = with_exposed_provenance_mut(call.destination.0 as usize);
        let (comm, stream) = (self.comm, self.stream);
        // SAFETY: the caller says that the communicator is ready and that memory and stream are live.
        let (name, code) = unsafe {
            match call.operation {
                CollectiveOperationCode::ALL_REDUCE => (
                    "ncclAllReduce",
                    (table.ncclAllReduce)(source, destination, count, kind, reduce, comm, stream),
                ),
                CollectiveOperationCode::REDUCE => (
                    "ncclReduce",
                    (table.ncclReduce)(
                        source,
                        destination,
                        count,
                        kind,
                        reduce,
                        root,
                        comm,
                        stream,
                    ),
                ),
                CollectiveOperationCode::REDUCE_SCATTER => (
                    "ncclReduceScatter",
                    (table.ncclReduceScatter)(
                        source,
                        destination,
                        count,
                        kind,
                        reduce,
                        comm,
                        stream,
                    ),
                ),
                CollectiveOperationCode::BROADCAST => (
                    "ncclBroadcast",
                    (table.ncclBroadcast)(source, destination, count, kind, root, comm, stream),
                ),
                CollectiveOperationCode::ALL_GATHER => (
                    "ncclAllGather",
                    (table.ncclAllGather)(source, destination, count, kind, comm, stream),
                ),
                CollectiveOperationCode::ALL_TO_ALL => match table.ncclAlltoAll {
                    Some(all_to_all) => (
                        "ncclAlltoAll",
                        all_to_all(source, destination, count, kind, comm, stream),
                    ),
                    None => {
                        let everybody = 0..self.world;
                        return self.parts(call, &elements, everybody.clone(), everybody);
                    }
                },
                CollectiveOperationCode::GATHER => {
                    let root = call.peer..call.peer + 1;
                    return self.parts(call, &elements, root, self.everybody_at_root(call));
                }
                CollectiveOperationCode::SCATTER => {
                    let root = call.peer..call.peer + 1;
                    return self.parts(call, &elements, self.everybody_at_root(call), root);
                }
                CollectiveOperationCode::EXCHANGE => {
                    match (source.is_null(), destination.is_null()) {
                        (false, true) => (
                            "ncclSend",
                            (table.ncclSend)(source, count, kind, root, comm, stream),
                        ),
                        (true, false) => (
                            "ncclRecv",
                            (table.ncclRecv)(destination, count, kind, root, comm, stream),
                        ),
                        _ => {
                            return Err(invalid(
                                "a send needs a source and no destination, a receive the opposite"
                                    .into(),
                            ));
                        }
                    }
                }
                other => {
                    return Err(Failure::new(
                        Status::UNSUPPORTED,
                        "nccl_call",
                        format!(
                            "{} has no {} in one call; use sends and receives, or `Provider::Symmem`",
                            self.library.name,
                            other.name()
                        ),
                    ));
                }
            }
        };
        self.made(name, code)
    }

    fn everybody_at_root(&self, call: &NcclCall) -> std::ops::Range<u32> {
        match self.rank == call.peer {
            true => 0..self.world,
            false => 0..0,
        }
    }

    /// Sends to the ranks in `to` and receives from those in `from`, within an open group. If a range has more
    /// than one rank, part `r` of its buffer belongs to rank `r`.
    ///
    /// # Safety
    /// As [`Site::make`].
    unsafe fn parts(
        &self,
        call: &NcclCall,
        elements: &Elements,
        to: std::ops::Range<u32>,
        from: std::ops::Range<u32>,
    ) -> CallResult<NamedCode> {
        let table = &self.library.table;
        let &Elements { kind, count, bytes } = elements;
        let (comm, stream) = (self.comm, self.stream);
        let offset =
            |range: &std::ops::Range<u32>, peer: u32| u64::from(peer - range.start) * bytes;
        let mut last = ("ncclSend", SUCCESS);
        for peer in to.clone() {
            let source = with_exposed_provenance((call.source.0 + offset(&to, peer)) as usize);
            // SAFETY: the caller says that the buffer has a part for each rank of `to`.
            let code =
                unsafe { (table.ncclSend)(source, count, kind, peer as c_int, comm, stream) };
            last = self.made("ncclSend", code)?;
        }
        for peer in from.clone() {
            let place = (call.destination.0 + offset(&from, peer)) as usize;
            let place = with_exposed_provenance_mut(place);
            // SAFETY: the caller says that the buffer has a part for each rank of `from`.
            let code = unsafe { (table.ncclRecv)(place, count, kind, peer as c_int, comm, stream) };
            last = self.made("ncclRecv", code)?;
        }
        Ok(last)
    }

    fn made(&self, name: &'static str, code: Code) -> CallResult<NamedCode> {
        match code {
            SUCCESS | IN_PROGRESS => Ok((name, code)),
            _ => Err(self.library.failure(name, code, self.comm)),
        }
    }

    /// Returns the call's elements in NCCL's terms.
    fn elements(&self, call: &NcclCall) -> CallResult<Elements> {
        let version = self.library.version;
        let told = match convert::reduces(call.operation) {
            true => convert::data_type(call.element, version).map(|kind| (kind, call.count)),
            false => convert::moved(call.element, call.count, version),
        };
        let Some((kind, count)) = told else {
            return Err(self.unsupported(call));
        };
        let bytes = call.count.checked_mul(call.element.bytes());
        let bytes =
            bytes.ok_or_else(|| invalid(format!("{} elements are too many", call.count)))?;
        Ok(Elements {
            kind,
            count: count as usize,
            bytes,
        })
    }

    fn reduction(&self, call: &NcclCall) -> CallResult<c_int> {
        if !convert::reduces(call.operation) {
            return Ok(0);
        }
        convert::reduction(call.reduce).ok_or_else(|| self.unsupported(call))
    }

    fn unsupported(&self, call: &NcclCall) -> Failure {
        Failure::new(
            Status::UNSUPPORTED,
            "nccl_call",
            format!(
                "{} {} has no {} of {} elements with {}; use `Provider::Symmem`",
                self.library.name,
                convert::version_text(self.library.version),
                call.operation.name(),
                call.element.name(),
                call.reduce.name()
            ),
        )
    }

    /// Returns the root or peer; its value is unused by operations that have none.
    fn peer(&self, call: &NcclCall) -> CallResult<c_int> {
        let has_one = matches!(
            call.operation,
            CollectiveOperationCode::REDUCE
                | CollectiveOperationCode::BROADCAST
                | CollectiveOperationCode::GATHER
                | CollectiveOperationCode::SCATTER
                | CollectiveOperationCode::EXCHANGE
        );
        if has_one && call.peer >= self.world {
            return Err(invalid(format!(
                "peer {} of {} ranks in {}: ranks count from 0",
                call.peer,
                self.world,
                call.operation.name()
            )));
        }
        Ok(call.peer as c_int)
    }
}

fn invalid(message: String) -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, "nccl_call", message)
}
