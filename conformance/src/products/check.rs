//! Runs a case: several calls, each with a new `A`, compared with the GEMM in f64; then the last call again, which
//! must give the same bits.

use super::case::{GemmCase, GemmCaseElement};
use crate::findings::{Fault, Findings};
use crate::gemm_float::{GemmFloat, Real, random};
use std::time::Duration;
use symmem::backend::abi::CAPABILITY_LAUNCH;
use symmem::{
    AllGatherGemm, Communicator, F8E4M3, GemmOptions, GemmShape, GemmStep, Matrix, MatrixOrder,
    Operands, Queue, Result, Sharding, Stream, SymmetricBuffer,
};
use zerocopy::IntoBytes;

/// Calls per case, each with new data.
const ROUNDS: u64 = 2;
/// Repetitions of the last call.
const REPEATS: u64 = 2;

/// The communicator, stream and case that a check uses.
pub struct GemmCheck<'a> {
    pub communicator: &'a Communicator,
    pub stream: &'a Stream,
    pub case: &'a GemmCase,
    pub deadline: Duration,
    /// A fault that a test planted.
    pub fault: Option<Fault>,
}

/// Runs a case and returns its findings. Collective; blocks until the calls are done.
///
/// # Errors
/// Any error of creating the operation, of its memory or of a call.
pub fn check(product: &GemmCheck<'_>) -> Result<Findings> {
    match product.case.element {
        GemmCaseElement::Bf16 => product.check::<half::bf16>(),
        GemmCaseElement::F16 => product.check::<half::f16>(),
        GemmCaseElement::F8E4M3 => product.check::<F8E4M3>(),
    }
}

/// The factor of the product, if it is scaled: not a power of two, so that it changes the bits.
const SCALE: f32 = 0.37;
/// A value beyond every sum of a case, in bfloat16.
const LARGE: f64 = 1e38;
/// The two NaNs of 8-bit floats.
const NANS: [F8E4M3; 2] = [F8E4M3(0x7f), F8E4M3(0xff)];

/// The matrices of a case, and the operation.
struct Memory<T: GemmFloat> {
    operation: AllGatherGemm<T>,
    a: SymmetricBuffer<T>,
    b: SymmetricBuffer<T>,
    c: SymmetricBuffer<T::Output>,
    bias: SymmetricBuffer<T::Output>,
    scale: Option<SymmetricBuffer<f32>>,
    gathered: Option<SymmetricBuffer<T>>,
}

impl GemmCheck<'_> {
    fn shape(&self) -> GemmShape {
        let case = self.case;
        let b_width = if case.b_by_columns { case.k } else { case.n };
        GemmShape {
            sharding: match case.by_columns {
                true => Sharding::Columns,
                false => Sharding::Rows,
            },
            b_order: match case.b_by_columns {
                true => MatrixOrder::Columns,
                false => MatrixOrder::Rows,
            },
            b_stride: Some(b_width + case.gap),
            c_stride: Some(case.n + case.gap),
            bias: case.bias,
            ..GemmShape::new(case.m, case.n, case.k)
        }
    }

    fn options(&self) -> GemmOptions {
        let case = self.case;
        let (algorithm, transport) = case.variant.named();
        GemmOptions {
            algorithm,
            transport,
            streams: case.streams,
            ordered: case.ordered,
            chunk_rows: (case.chunk_rows > 0).then_some(case.chunk_rows),
            gathered: case.gathered,
            deadline: Some(self.deadline),
            ..GemmOptions::default()
        }
    }

    fn check<T: GemmFloat>(&self) -> Result<Findings> {
        let (case, shape) = (self.case, self.shape());
        let memory = self.memory::<T>(&shape)?;
        let mut right = random::<T>(case.k * case.n, case.seed);
        self.plant(&mut right, 1);
        let bias = random::<T::Output>(case.n, case.seed + 1);
        self.write_right(&memory, &right, &bias)?;
        let operands = operands(&memory, &shape)?;
        let enqueue = |queue: &Queue| queue.all_gather_gemm(&memory.operation, &operands);
        let graph = match case.captured {
            true => Some(self.communicator.stream()?.capture(enqueue)?),
            false => None,
        };
        let call = |left: &[T]| {
            self.write_left(&memory, left)?;
            match &graph {
                Some(graph) => self.stream.launch_graph(graph)?,
                None => enqueue(self.stream)?,
            }
            self.stream.synchronize_within(self.deadline)
        };
        let mut findings = Findings::new();
        for round in 0..ROUNDS {
            let left = self.left(round);
            call(&left)?;
            let found = self.compare(&memory, &left, &right, &bias)?;
            findings.extend(found.map(|found| format!("call {round}: {found}")));
        }
        let left = self.left(ROUNDS - 1);
        let first = self.result(&memory)?;
        for repeat in 1..=REPEATS {
            self.come_late(repeat);
            call(&left)?;
            let again = self.result(&memory)?;
            findings.extend(self.compare_bits(&first, &again));
        }
        drop(graph);
        memory.free()?;
        Ok(findings)
    }

    /// Returns `A` in a round.
    fn left<T: GemmFloat>(&self, round: u64) -> Vec<T> {
        let case = self.case;
        let mut left = random(case.m * case.k, case.seed + 2 + round);
        self.plant(&mut left, round);
        left
    }

    /// Makes a random element NaN, if the case has it, with or without a sign.
    fn plant<T: GemmFloat>(&self, elements: &mut [T], sign: u64) {
        if self.case.nan {
            let at = (self.case.seed >> 8) as usize % elements.len();
            let nan = NANS[sign as usize % 2];
            elements[at] = T::read_from_bytes(nan.as_bytes()).unwrap_or(T::POISON);
        }
    }

    /// A value of `C` that no result has.
    fn poison<U: Real>(&self) -> U {
        match self.case.nan {
            true => U::from_f64(LARGE),
            false => U::POISON,
        }
    }

    /// Whether an element of `C` still is [`Self::poison`].
    fn is_poison<U: Real>(&self, made: U) -> bool {
        match self.case.nan {
            true => made.to_f64() == U::from_f64(LARGE).to_f64(),
            false => made.to_f64().is_nan(),
        }
    }

    fn memory<T: GemmFloat>(&self, shape: &GemmShape) -> Result<Memory<T>> {
        let (communicator, case) = (self.communicator, self.case);
        // Created first, since it fails if the case is not supported.
        let operation = communicator.all_gather_gemm(shape, &self.options())?;
        let buffer = |length: usize| communicator.allocate(&[length]);
        let output = |length: usize| communicator.allocate(&[length]);
        let (b_lines, b_width) = match case.b_by_columns {
            true => (case.n, case.k),
            false => (case.k, case.n),
        };
        Ok(Memory {
            operation,
            a: buffer(shape.shard_elements(communicator.world_size()))?,
            b: buffer(b_lines * (b_width + case.gap))?,
            c: output(case.m * (case.n + case.gap))?,
            bias: output(case.n)?,
            scale: match case.scaled {
                true => Some(communicator.allocate(&[1])?),
                false => None,
            },
            gathered: match case.gathered {
                true => Some(buffer(shape.gathered_elements())?),
                false => None,
            },
        })
    }

    fn write_right<T: GemmFloat>(
        &self,
        memory: &Memory<T>,
        right: &[T],
        bias: &[T::Output],
    ) -> Result<()> {
        let case = self.case;
        let mut laid = vec![T::POISON; memory.b.len()];
        for row in 0..case.k {
            for column in 0..case.n {
                let at = match case.b_by_columns {
                    true => column * (case.k + case.gap) + row,
                    false => row * (case.n + case.gap) + column,
                };
                laid[at] = right[row * case.n + column];
            }
        }
        memory.b.write(self.stream, 0, &laid)?;
        if let Some(scale) = &memory.scale {
            scale.write(self.stream, 0, &[SCALE])?;
        }
        memory.bias.write(self.stream, 0, bias)
    }

    /// Writes this rank's shard, and poison to the results.
    fn write_left<T: GemmFloat>(&self, memory: &Memory<T>, left: &[T]) -> Result<()> {
        let (case, world) = (self.case, self.communicator.world_size());
        let whole = if case.by_columns { case.k } else { case.m };
        let shard = whole.div_ceil(world);
        let start = (self.communicator.rank() * shard).min(whole);
        let part = start..(start + shard).min(whole);
        let mut own: Vec<T> = match case.by_columns {
            true => left
                .chunks(case.k)
                .flat_map(|row| row[part.clone()].iter().copied())
                .collect(),
            false => left[part.start * case.k..part.end * case.k].to_vec(),
        };
        own.resize(memory.a.len(), T::POISON);
        memory.a.write(self.stream, 0, &own)?;
        if let Some(gathered) = &memory.gathered {
            gathered.write(self.stream, 0, &vec![T::POISON; gathered.len()])?;
        }
        let poison = vec![self.poison(); memory.c.len()];
        memory.c.write(self.stream, 0, &poison)
    }

    /// Sleeps, so that ranks start, and shards arrive, in a different order in each repetition.
    fn come_late(&self, repeat: u64) {
        /// Longer than the GEMM of a case takes on most devices.
        const STEP: Duration = Duration::from_millis(1);
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        let place = (rank as u64 + repeat) % world as u64;
        std::thread::sleep(STEP * place as u32);
    }

    fn result<T: GemmFloat>(&self, memory: &Memory<T>) -> Result<Vec<T::Output>> {
        let mut c = vec![T::Output::POISON; memory.c.len()];
        memory.c.read(self.stream, 0, &mut c)?;
        Ok(c)
    }

    /// Describes the first element of C, padding included, whose bits changed in a repetition.
    fn compare_bits<T: Real>(&self, first: &[T], again: &[T]) -> Option<String> {
        let mut pairs = first.iter().zip(again).enumerate();
        pairs.find_map(|(at, (first, again))| {
            let (first, mut again) = (first.to_f64(), again.to_f64());
            if self.fault == Some(Fault::WrongOrder) && at == 0 {
                // Simulates an intermediate rounding of the sum.
                again *= 1.0 + 2.0 * T::UNIT;
            }
            let last = ROUNDS - 1;
            (first.to_bits() != again.to_bits()).then(|| {
                format!("call {last} repeated: element {at} of C is {again}, and was {first}")
            })
        })
    }

    /// Describes the first wrong element of C, of its padding or of the gathered A. An element may be off by one
    /// rounding of its format plus the rounding error of a sum of `k` numbers in f32. The GEMM library may also round the
    /// product before it adds the bias: cuBLASLt was seen to do so on an H200, for bf16 with odd strides. Where the product in
    /// f64 is NaN, the element is, too.
    fn compare<T: GemmFloat>(
        &self,
        memory: &Memory<T>,
        left: &[T],
        right: &[T],
        bias: &[T::Output],
    ) -> Result<Option<String>> {
        let case = self.case;
        let mut c = self.result(memory)?;
        if self.fault == Some(Fault::WrongByte) {
            // Simulates a row computed from the previous call's gathered A.
            c[0] = T::Output::from_f64(1.5 * c[0].to_f64() + 0.5);
        }
        let (left_wide, right_wide, bias) = (wide(left), wide(right), wide(bias));
        let scale = memory.scale.as_ref().map_or(1.0, |_| f64::from(SCALE));
        let mut loss = (case.k as f64).sqrt() * (-22f64).exp2();
        let mut steps = memory.operation.steps().iter();
        let by_library = steps.any(|step| matches!(step, GemmStep::Multiply { .. }));
        if by_library && self.communicator.capabilities().flags & CAPABILITY_LAUNCH != 0 {
            loss = loss.max(T::LEAST_LOSS);
        }
        let twice = case.bias && by_library;
        for (row, a) in left_wide.chunks(case.k).enumerate() {
            let mut exact = vec![0.0; case.n];
            if case.bias {
                exact.copy_from_slice(&bias);
            }
            let mut size: Vec<f64> = exact.iter().map(|exact| exact.abs()).collect();
            for (a, b) in a.iter().zip(right_wide.chunks(case.n)) {
                let a = a * scale;
                for (column, b) in b.iter().enumerate() {
                    exact[column] += a * b;
                    size[column] += (a * b).abs();
                }
            }
            let made = &c[row * (case.n + case.gap)..][..case.n + case.gap];
            for (column, exact) in exact.into_iter().enumerate() {
                let made = made[column].to_f64();
                if exact.is_nan() && made.is_nan() {
                    continue;
                }
                let mut bound = T::Output::UNIT * exact.abs() + loss * size[column];
                if twice {
                    bound += T::Output::UNIT * (exact - bias[column]).abs();
                }
                let off = (made - exact).abs();
                if off.is_nan() || off > bound {
                    return Ok(Some(format!(
                        "C[{row}, {column}] is {made}, not {exact} within {bound:e}"
                    )));
                }
            }
            if !made[case.n..].iter().all(|&made| self.is_poison(made)) {
                return Ok(Some(format!(
                    "the padding after row {row} of C was overwritten"
                )));
            }
        }
        if let Some(gathered) = &memory.gathered {
            let mut whole = vec![T::POISON; gathered.len()];
            gathered.read(self.stream, 0, &mut whole)?;
            let other = whole
                .iter()
                .zip(left)
                .position(|(made, left)| made.as_bytes() != left.as_bytes());
            return Ok(other.map(|at| format!("element {at} of the gathered A is wrong")));
        }
        Ok(None)
    }
}

fn wide<T: Real>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().map(|it| it.to_f64()).collect()
}

fn operands<'a, T: GemmFloat>(memory: &'a Memory<T>, shape: &GemmShape) -> Result<Operands<'a, T>> {
    let GemmShape { m, n, k, .. } = *shape;
    let b_stride = shape.b_stride.unwrap_or(n);
    let c_stride = shape.c_stride.unwrap_or(n);
    let bias = Matrix::of(memory.bias.all(), 1, n)?;
    let scale = memory.scale.as_ref();
    Ok(Operands {
        a: memory.a.all(),
        b: Matrix::strided(memory.b.all(), k, n, b_stride, shape.b_order)?,
        c: Matrix::strided(memory.c.all(), m, n, c_stride, MatrixOrder::Rows)?,
        bias: shape.bias.then_some(bias),
        scale: scale.map(|scale| Matrix::of(scale, 1, 1)).transpose()?,
        gathered: memory.gathered.as_ref().map(SymmetricBuffer::all),
    })
}

impl<T: GemmFloat> Memory<T> {
    /// Frees the operation and the matrices. Collective.
    fn free(self) -> Result<()> {
        drop(self.operation);
        for buffer in [self.a, self.b] {
            buffer.free()?;
        }
        for buffer in [self.c, self.bias] {
            buffer.free()?;
        }
        self.scale.map_or(Ok(()), SymmetricBuffer::free)?;
        self.gathered.map_or(Ok(()), SymmetricBuffer::free)
    }
}
