//! Host time of a small put, compared with the lower-level calls that it makes.
//!
//! Calls are enqueued in batches small enough that the device's queue never fills. The host's clock times
//! each call; its own cost is included in every row. The calls take turns batch by batch.

use super::by_caller::is_by_caller;
use super::{BenchError, Result, candidates, exchange};
use crate::report::{Direction, Environment, Spread};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use symmem::backend::abi::{
    Geometry, RawFunction, RawStream, SignalTarget, Transfer, TransferArguments, TransferRow,
};
use symmem::backend::{Backend, CallResult, Device, RemoteAccess, argument_bytes};
use symmem::{Communicator, Method, Stream, SymmetricBuffer, TransferOptions, plan};

/// The schema of [`Enqueue`] in JSON.
pub const SCHEMA: &str = "symmem-enqueue/1";

/// Bytes of each put.
const BYTES: usize = 8;

/// Calls between two synchronizations. A CUDA stream queues about a thousand launches before a launch
/// blocks, and a copy may take several entries. A batch must stay far below that, or the device would be
/// timed instead of the host.
const BATCH: usize = 200;

/// The measurements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Enqueue {
    /// [`SCHEMA`].
    pub schema: String,
    /// Machine, time, command and versions of the run.
    pub environment: Environment,
    /// Bytes of each put.
    pub bytes: u64,
    /// Number of timed calls per row.
    pub calls: u32,
    /// One row per kind of call.
    pub rows: Vec<Row>,
}

/// The time of one kind of call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The call.
    pub call: String,
    /// Time in the calling thread, in nanoseconds.
    pub ns: Spread,
    /// Comparison with the lower-level call; `None` for the lowest.
    pub above: Option<Overhead>,
}

/// The additional time of a call, compared with the call below it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Overhead {
    /// The call below.
    pub call: String,
    /// The difference of the medians, nanoseconds.
    pub ns: f64,
}

/// A call to time, and the index of the call that it is compared with.
struct TimedCall<'a> {
    name: String,
    below: Option<usize>,
    call: Box<dyn Fn() -> Result<()> + 'a>,
    ns: Vec<f64>,
}

/// Measures puts of rank 0 to the next rank (itself in a world of one), while the others wait. Collective;
/// blocks. Every rank gets the result.
///
/// # Errors
/// Any error of the backend, or of a communicator that failed.
pub fn run(
    communicator: &Communicator,
    batches: usize,
    environment: Environment,
) -> Result<Enqueue> {
    let stream = communicator.stream()?;
    let buffers = Buffers {
        source: communicator.allocate(&[BYTES])?,
        destination: communicator.allocate(&[BYTES])?,
        peer: (communicator.rank() + 1) % communicator.world_size(),
    };
    let rows = if communicator.rank() == 0 {
        measure(communicator, &stream, &buffers, batches)?
    } else {
        Vec::new()
    };
    let rows = exchange::all_gather(communicator, &rows)?.swap_remove(0);
    buffers.source.free()?;
    buffers.destination.free()?;
    Ok(Enqueue {
        schema: SCHEMA.into(),
        environment,
        bytes: BYTES as u64,
        calls: (batches * BATCH) as u32,
        rows,
    })
}

struct Buffers {
    source: SymmetricBuffer<u8>,
    destination: SymmetricBuffer<u8>,
    peer: usize,
}

fn measure(
    communicator: &Communicator,
    stream: &Stream,
    buffers: &Buffers,
    batches: usize,
) -> Result<Vec<Row>> {
    let mut timed_calls = timed_calls(communicator, stream, buffers)?;
    // One more batch, since the first is a warm-up.
    for batch in 0..=batches {
        for timed in &mut timed_calls {
            for _ in 0..BATCH {
                let start = Instant::now();
                (timed.call)()?;
                let ns = start.elapsed().as_nanos() as f64;
                if batch > 0 {
                    timed.ns.push(ns);
                }
            }
            stream.synchronize()?;
        }
    }
    let spreads: Vec<Option<Spread>> = timed_calls
        .iter()
        .map(|w| Spread::from_samples(&w.ns))
        .collect();
    let mut rows = Vec::new();
    for (timed, spread) in timed_calls.iter().zip(&spreads) {
        let ns = spread.ok_or_else(|| BenchError::NoTime {
            rank: communicator.rank(),
            what: timed.name.clone(),
            advice: "the host's clock is too coarse to time one call",
        })?;
        let above = timed.below.and_then(|below| {
            Some(Overhead {
                call: timed_calls[below].name.clone(),
                ns: ns.median - spreads[below]?.median,
            })
        });
        rows.push(Row {
            call: timed.name.clone(),
            ns,
            above,
        });
    }
    Ok(rows)
}

/// Returns the calls of each method: the put, the backend's transfer below it, and the kernel launch if there is one.
fn timed_calls<'a>(
    communicator: &'a Communicator,
    stream: &'a Stream,
    buffers: &'a Buffers,
) -> Result<Vec<TimedCall<'a>>> {
    // SAFETY: the backend only enqueues transfers and launches on buffers that outlive the last synchronization.
    let backend = unsafe { communicator.backend() };
    let raw = RawStream(stream.raw());
    let rank = communicator.rank();
    let methods: &[Option<Method>] = match is_by_caller(communicator) {
        true => &[None],
        false => &[Some(Method::Vector), Some(Method::CopyEngine)],
    };
    let mut timed_calls = Vec::new();
    let mut add = |name: String, below, call: Box<dyn Fn() -> Result<()> + 'a>| {
        timed_calls.push(TimedCall {
            name,
            below,
            call,
            ns: Vec::new(),
        });
        timed_calls.len() - 1
    };
    for &method in methods {
        let options = TransferOptions::new().method(method);
        let direction = candidates::wire(Direction::Push);
        let capabilities = communicator.capabilities();
        let Ok(row) = plan(capabilities, direction, BYTES as u64, 0, &options) else {
            continue;
        };
        let label = row.method.name().to_lowercase();
        let prepared = prepared(buffers, row)?;
        let mut below = None;
        if method == Some(Method::Vector) && !is_by_caller(communicator) {
            let function = copy_kernel(backend).map_err(|failure| failed(rank, failure))?;
            let launch: Box<dyn Fn() -> Result<()>> =
                Box::new(move || launch(backend, function, &prepared, raw, rank));
            below = Some(add(
                "launch of the same kernel, arguments prepared".into(),
                None,
                launch,
            ));
        }
        let transfer = move || {
            // SAFETY: both ranges are whole live buffers, which outlive the last synchronization.
            unsafe { backend.transfer(&prepared, raw) }.map_err(|failure| failed(rank, failure))
        };
        let name = format!("backend's transfer, {label}, prepared");
        let transfer = add(name, below, Box::new(transfer));
        let put = move || {
            let (to, from) = (&buffers.destination, &buffers.source);
            Ok(stream.with(&options).put(buffers.peer, to, from)?)
        };
        let below = below.or(Some(transfer));
        add(format!("Queue::put, {label}"), below, Box::new(put));
    }
    Ok(timed_calls)
}

fn prepared(buffers: &Buffers, row: TransferRow) -> Result<Transfer> {
    Ok(Transfer {
        destination: buffers.destination.peer(buffers.peer)?.address(),
        source: buffers.source.local().address(),
        bytes: BYTES as u64,
        signal: SignalTarget::default(),
        direction: candidates::wire(Direction::Push).into(),
        row,
    })
}

fn copy_kernel(backend: &Backend) -> CallResult<RawFunction> {
    const NAME: &str = "symmem_copy_vector";
    backend.builtin_function(NAME)
}

/// Launches the kernel of the put, without planning or checks.
fn launch(
    backend: &Backend,
    function: RawFunction,
    transfer: &Transfer,
    stream: RawStream,
    rank: usize,
) -> Result<()> {
    let arguments = TransferArguments {
        destination: transfer.destination,
        source: transfer.source,
        bytes: transfer.bytes,
        ..TransferArguments::default()
    };
    let geometry = Geometry {
        blocks: [transfer.row.blocks, 1, 1],
        threads: [transfer.row.threads, 1, 1],
        shared_memory: 0,
    };
    // SAFETY: the kernel takes these arguments; both ranges are whole live buffers, which outlive the
    // last synchronization.
    unsafe { backend.launch(function, &geometry, argument_bytes(&arguments), stream) }
        .map_err(|failure| failed(rank, failure))
}

fn failed(rank: usize, failure: symmem::backend::Failure) -> BenchError {
    BenchError::Backend {
        rank,
        operation: "timing a call",
        failure,
    }
}

impl Enqueue {
    /// Returns indented JSON that ends in a newline.
    ///
    /// # Errors
    /// Errors of `serde_json`; these types cause none.
    pub fn to_json(&self) -> std::result::Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Returns a table for a terminal.
    pub fn to_text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::TableStyle::new());
        table.set_header([
            "call",
            "median (ns)",
            "min (ns)",
            "p99 (ns)",
            "compared with",
            "difference (ns)",
        ]);
        for row in &self.rows {
            let number = |ns: f64| format!("{ns:.0}");
            let above = row.above.as_ref();
            table.add_row([
                row.call.clone(),
                number(row.ns.median),
                number(row.ns.min),
                number(row.ns.p99),
                above.map_or("–".into(), |above| above.call.clone()),
                above.map_or("–".into(), |above| number(above.ns)),
            ]);
        }
        format!(
            "Host time to enqueue a put of {} bytes, {} calls each\n{table}\n",
            self.bytes, self.calls
        )
    }
}
