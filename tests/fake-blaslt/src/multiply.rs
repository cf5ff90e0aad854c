//! The GEMM itself: checked when it is called, executed in stream order.

use crate::broken;
use crate::heuristics::{Heuristic, Problem};
use crate::numbers::{Numbers, Result};
use crate::objects::{self, Layout};
use fake_library::{Runner, current_context, submit_alone, violation, waits_for_all};
use half::{bf16, f16};
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// An element type of matrices.
#[derive(Clone, Copy, PartialEq)]
enum Element {
    F16,
    Bf16,
    F32,
    F8E4m3,
}

impl Element {
    /// Returns the type of a number that [`objects::create_layout`] accepts.
    fn of(numbers: &Numbers, number: c_int) -> Self {
        match number {
            number if number == numbers.f16 => Self::F16,
            number if number == numbers.f32 => Self::F32,
            number if number == numbers.f8_e4m3 => Self::F8E4m3,
            _ => Self::Bf16,
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::F8E4m3 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }

    fn widen(self, bytes: &[u8]) -> Vec<f32> {
        let bits = bytes
            .chunks_exact(2)
            .map(|two| u16::from_ne_bytes([two[0], two[1]]));
        match self {
            Self::F16 => bits.map(|bits| f16::from_bits(bits).to_f32()).collect(),
            Self::Bf16 => bits.map(|bits| bf16::from_bits(bits).to_f32()).collect(),
            Self::F32 => bytes
                .chunks_exact(4)
                .map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
                .collect(),
            Self::F8E4m3 => bytes.iter().copied().map(widen_e4m3).collect(),
        }
    }
}

/// Converts an 8-bit float of OCP E4M3 exactly.
fn widen_e4m3(bits: u8) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction / 512.0,
        _ => (1.0 + fraction / 8.0) * 2_f32.powi(exponent - 7),
    };
    if bits & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// The arguments of a call.
pub struct Call {
    pub instance: u64,
    pub problem: Problem,
    pub alpha: *const f32,
    pub beta: *const f32,
    pub first: u64,
    pub second: u64,
    pub added: u64,
    pub result: u64,
    pub heuristic: *const u64,
    pub workspace: u64,
    pub workspace_bytes: u64,
    pub stream: u64,
}

/// A GEMM on a stream.
struct Job {
    problem: Problem,
    /// Element type of the two factors.
    element: Element,
    /// Element type of the result, of the bias, and of the matrix that is added.
    output: Element,
    /// Whether sums are added in reverse order. Every other algorithm does so, so that the last bits show which one
    /// ran.
    backwards: bool,
    first: u64,
    second: u64,
    /// The matrix that is added; `None` for none.
    added: Option<u64>,
    result: u64,
    workspace: u64,
}

fn bytes_of(element: Element, layout: &Layout) -> u64 {
    ((layout.columns - 1) * layout.stride + layout.rows) * element.bytes()
}

/// A kernel in a context: the algorithm's number and alignment, the element type, whether it transposes, and whether it
/// adds a bias.
type Kernel = (u64, u32, u32, c_int, bool, bool);

/// Kernels that have been used: as in the real library, the first use of a kernel loads it.
static LOADED: Mutex<BTreeSet<Kernel>> = Mutex::new(BTreeSet::new());
/// Workspaces in use by streams.
static BUSY: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// # Safety
/// The scalars and the algorithm are readable.
pub unsafe fn call(numbers: &'static Numbers, call: &Call) -> Result {
    let refuse = |what: String| Err(broken(numbers, &what));
    let context = objects::instance(numbers, call.instance)?;
    if current_context() != Ok(context) {
        return refuse("a handle is used on a device other than its own".into());
    }
    if call.alpha.is_null() || call.beta.is_null() || call.heuristic.is_null() {
        return refuse("alpha, beta or the algorithm is null".into());
    }
    // SAFETY: the caller promises readable scalars.
    let (alpha, beta) = unsafe { (call.alpha.read(), call.beta.read()) };
    let adds = beta != 0.0;
    if alpha != 1.0 || !(beta == 0.0 || beta == 1.0) {
        return refuse(format!("the fake does not scale: {alpha}, {beta}"));
    }
    if !adds && call.added != call.result {
        return refuse("a matrix is passed that would not be added".into());
    }
    if adds && call.added == call.result && call.problem.added != call.problem.result {
        return refuse("the result replaces the addend, but their layouts differ".into());
    }
    // SAFETY: the caller promises a readable algorithm.
    let words = unsafe { std::slice::from_raw_parts(call.heuristic, numbers.algorithm_words) };
    let heuristic = Heuristic::read(numbers, words, &call.problem)?;
    if call.workspace_bytes < heuristic.workspace
        || (heuristic.workspace > 0
            && (call.workspace == 0 || !call.workspace.is_multiple_of(WIDE)))
    {
        return refuse(format!(
            "{} bytes of workspace at {:#x} do not suit {heuristic:?}",
            call.workspace_bytes, call.workspace
        ));
    }
    let bias = call.problem.operation.bias;
    let bias = call.problem.operation.has_bias.then_some(bias);
    let [element, output] = [call.problem.first, call.problem.result]
        .map(|layout| Element::of(numbers, layout.element).bytes());
    let factors = [call.first, call.second].map(|matrix| (matrix, element));
    let results = [call.added, call.result].into_iter().chain(bias);
    let results = results.map(|matrix| (matrix, output));
    for (matrix, element) in factors.into_iter().chain(results) {
        let alignment = u64::from(heuristic.alignment).max(element);
        if matrix == 0 || !matrix.is_multiple_of(alignment) {
            return refuse(format!(
                "the matrix at {matrix:#x} is not aligned for {heuristic:?}"
            ));
        }
    }
    note(&heuristic, &call.problem);
    load(numbers, context, &heuristic, &call.problem);
    submit(numbers, call, &heuristic)
}

/// The alignment of workspaces in bytes.
const WIDE: u64 = 16;

/// Appends a line for each GEMM to the file that `FAKE_BLASLT_LOG` names, if any: the columns of the result, which are
/// rows to a row-major caller, and the algorithm's number.
fn note(heuristic: &Heuristic, problem: &Problem) {
    let Some(path) = fake_library::variable("FAKE_BLASLT_LOG") else {
        return;
    };
    let line = format!("{} {}\n", problem.result.columns, heuristic.number);
    let file = OpenOptions::new().append(true).create(true).open(&path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        violation(&format!("FAKE_BLASLT_LOG names {path}: {error}"));
    }
}

/// Announces the load of a kernel at its first use, which may wait for the device.
fn load(numbers: &Numbers, context: u64, heuristic: &Heuristic, problem: &Problem) {
    let kernel = (
        context,
        heuristic.number,
        heuristic.alignment,
        problem.first.element,
        problem.operation.transposes_first,
        problem.operation.has_bias,
    );
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if loaded.insert(kernel) {
        waits_for_all(&format!("{}Matmul, which loads a kernel,", numbers.prefix));
    }
}

fn submit(numbers: &Numbers, call: &Call, heuristic: &Heuristic) -> Result {
    let problem = call.problem;
    let element = Element::of(numbers, problem.first.element);
    let output = Element::of(numbers, problem.result.element);
    let bias_bytes = problem.result.rows * output.bytes();
    let scale = problem.operation.scale;
    // SAFETY: the caller promises a readable scalar.
    let adds = unsafe { call.beta.read() } != 0.0;
    let ranges = [
        [call.first, bytes_of(element, &problem.first)],
        [call.second, bytes_of(element, &problem.second)],
        [call.result, bytes_of(output, &problem.result)],
        [call.workspace, heuristic.workspace],
        [
            call.added,
            bytes_of(output, &problem.added) * u64::from(adds),
        ],
        [scale, 4 * u64::from(scale != 0)],
        [
            problem.operation.bias,
            bias_bytes * u64::from(problem.operation.has_bias),
        ],
    ];
    let ranges: Vec<_> = ranges.into_iter().filter(|range| range[1] != 0).collect();
    let job = Job {
        problem,
        element,
        output,
        backwards: heuristic.number % 2 == 1,
        first: call.first,
        second: call.second,
        added: adds.then_some(call.added),
        result: call.result,
        workspace: if heuristic.workspace > 0 {
            call.workspace
        } else {
            0
        },
    };
    // Never freed, because a graph may run it at any time.
    let job = std::ptr::from_mut(Box::leak(Box::new(job))).cast_const();
    // SAFETY: `run` takes a `Job`, and this one is never freed.
    unsafe { submit_alone(call.stream, run, job.cast(), &ranges) }.map_err(|_| numbers.failed)
}

/// How long a GEMM takes at least. The fake's own matrices are small and take almost no time.
static TIME: LazyLock<Duration> =
    LazyLock::new(|| Duration::from_micros(fake_library::number("FAKE_BLASLT_PRODUCT_US", 0)));

/// Runs a GEMM. An illegal access loses the context, as it does for a kernel.
unsafe extern "C" fn run(job: *const c_void, runner: *const c_void) -> c_int {
    // SAFETY: `submit` passes a job that is never freed.
    let job = unsafe { &*job.cast::<Job>() };
    let busy = || BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    if job.workspace != 0 && !busy().insert(job.workspace) {
        violation("two streams use one workspace at once");
    }
    std::thread::sleep(*TIME);
    let done = job.run(Runner(runner));
    busy().remove(&job.workspace);
    match done {
        Ok(()) => 0,
        // The number of an illegal address in both runtimes.
        Err(_) => 700,
    }
}

impl Job {
    fn run(&self, runner: Runner) -> fake_library::Result {
        let Problem {
            operation,
            first,
            second,
            added,
            result,
        } = &self.problem;
        let (element, output) = (self.element, self.output);
        let read = |address, element: Element, layout: &Layout| {
            let bytes = runner.read(address, bytes_of(element, layout) as usize)?;
            Ok(element.widen(&bytes))
        };
        let a = read(self.first, element, first)?;
        let b = read(self.second, element, second)?;
        let scale = match operation.scale {
            0 => 1.0,
            address => Element::F32.widen(&runner.read(address, 4)?)[0],
        };
        let bias = match operation.has_bias {
            true => {
                let bytes = result.rows * output.bytes();
                let bytes = runner.read(operation.bias, bytes as usize)?;
                output.widen(&bytes)
            }
            false => vec![0.0; result.rows as usize],
        };
        let added_stride = added.stride as usize;
        let added = match self.added {
            Some(address) => Some(read(address, output, added)?),
            None => None,
        };
        let depth = self.problem.depth() as usize;
        // Strides between rows and along the sum.
        let (row, along) = match operation.transposes_first {
            true => (first.stride as usize, 1),
            false => (1, first.stride as usize),
        };
        let rows = result.rows as usize;
        for column in 0..result.columns as usize {
            let b = &b[column * second.stride as usize..][..depth];
            let mut sums = vec![0.0_f32; rows];
            for step in 0..depth {
                let index = if self.backwards {
                    depth - 1 - step
                } else {
                    step
                };
                let b = b[index];
                for (number, sum) in sums.iter_mut().enumerate() {
                    *sum += a[number * row + index * along] * b;
                }
            }
            sums.iter_mut().for_each(|sum| *sum *= scale);
            if let Some(added) = &added {
                let start = column * added_stride;
                for (sum, added) in sums.iter_mut().zip(&added[start..]) {
                    *sum += added;
                }
            }
            let sums = sums.iter().zip(&bias).map(|(sum, bias)| sum + bias);
            let mut bytes: Vec<u8> = sums.flat_map(|sum| self.narrow(sum)).collect();
            let place = self.result + column as u64 * result.stride * output.bytes();
            runner.write(place, &mut bytes)?;
        }
        Ok(())
    }

    fn narrow(&self, sum: f32) -> Vec<u8> {
        match self.output {
            Element::F16 => f16::from_f32(sum).to_bits().to_ne_bytes().into(),
            // No result is of 8-bit floats: see `Problem::new`.
            Element::Bf16 | Element::F8E4m3 => bf16::from_f32(sum).to_bits().to_ne_bytes().into(),
            Element::F32 => sum.to_ne_bytes().into(),
        }
    }
}
