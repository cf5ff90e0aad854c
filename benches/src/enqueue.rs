//! What a call costs the host: a small put, beside what lies below it.
//!
//! Calls are queued in batches small enough that the device's queue never fills, each call timed by
//! the host's clock (whose own cost is in every row alike); ways take turns batch by batch.

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
/// blocks, and a copy may take several places: far fewer, or the device would be timed and not the
/// host.
const BATCH: usize = 200;

/// What was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Enqueue {
    /// [`SCHEMA`].
    pub schema: String,
    /// Where, when and with what.
    pub environment: Environment,
    /// Bytes of each put.
    pub bytes: u64,
    /// Calls measured of each way.
    pub calls: u32,
    /// The ways.
    pub rows: Vec<Row>,
}

/// A way to have the same bytes moved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The call.
    pub call: String,
    /// Its time in the caller, nanoseconds.
    pub ns: Spread,
    /// Its median over that of the row it stands on.
    pub above: Option<Above>,
}

/// What a call costs more than the one below it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Above {
    /// The call below.
    pub call: String,
    /// The difference of the medians, nanoseconds.
    pub ns: f64,
}

/// A call that can be timed, and the one it is compared with.
struct Way<'a> {
    name: String,
    below: Option<usize>,
    call: Box<dyn Fn() -> Result<()> + 'a>,
    ns: Vec<f64>,
}

/// Measures at rank 0, to its peer if it has one, while the others wait. Collective; every rank gets
/// the result.
///
/// # Errors
/// The backend's, and what poisoned the communicator.
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
    let mut ways = ways(communicator, stream, buffers)?;
    // One batch more: the first of each way warms it up.
    for batch in 0..=batches {
        for way in &mut ways {
            for _ in 0..BATCH {
                let start = Instant::now();
                (way.call)()?;
                let ns = start.elapsed().as_nanos() as f64;
                if batch > 0 {
                    way.ns.push(ns);
                }
            }
            stream.synchronize()?;
        }
    }
    let spreads: Vec<Option<Spread>> = ways.iter().map(|w| Spread::from_samples(&w.ns)).collect();
    let mut rows = Vec::new();
    for (way, spread) in ways.iter().zip(&spreads) {
        let ns = spread.ok_or_else(|| BenchError::NoTime {
            rank: communicator.rank(),
            what: way.name.clone(),
            advice: "the host's clock is too coarse to time one call",
        })?;
        let above = way.below.and_then(|below| {
            Some(Above {
                call: ways[below].name.clone(),
                ns: ns.median - spreads[below]?.median,
            })
        });
        rows.push(Row {
            call: way.name.clone(),
            ns,
            above,
        });
    }
    Ok(rows)
}

/// Each method: the put, the backend's transfer below it, and where there is a kernel its launch.
fn ways<'a>(
    communicator: &'a Communicator,
    stream: &'a Stream,
    buffers: &'a Buffers,
) -> Result<Vec<Way<'a>>> {
    // SAFETY: it enqueues what the put comes down to, on buffers that outlive the last synchronization.
    let backend = unsafe { communicator.backend() };
    let raw = RawStream(stream.raw());
    let rank = communicator.rank();
    let methods: &[Option<Method>] = match is_by_caller(communicator) {
        true => &[None],
        false => &[Some(Method::Vector), Some(Method::CopyEngine)],
    };
    let mut ways = Vec::new();
    let mut add = |name: String, below, call: Box<dyn Fn() -> Result<()> + 'a>| {
        ways.push(Way {
            name,
            below,
            call,
            ns: Vec::new(),
        });
        ways.len() - 1
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
    Ok(ways)
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

/// The launch that the put comes down to: nothing planned, nothing checked.
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
    /// Indented JSON that ends in a newline.
    ///
    /// # Errors
    /// None arise from these types; serde's signature is passed on rather than hidden.
    pub fn to_json(&self) -> std::result::Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// A table for a terminal.
    pub fn to_text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::TableStyle::new());
        table.set_header(["call", "median ns", "min", "p99", "above", "median ns more"]);
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
