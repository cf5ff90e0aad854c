//! A wave: its registers and its arithmetic.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use crate::block::Access;
use crate::memory::Path;
use crate::operation::{Condition, EXEC, MatrixElement, Operand, Operation, VCC};
use crate::pending::Pending;
use crate::program::Program;
use crate::vector::{Lane, Source};

/// Lanes of a wave.
pub const LANES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    AtBarrier,
    Ended,
}

/// Registers that an access will write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registers {
    Scalar(Range<usize>),
    Vector(Range<usize>),
}

/// A scalar load or an access to shared memory that has not been waited for.
pub struct Late {
    /// What it will write.
    pub registers: Registers,
    /// The words of shared memory.
    pub words: Vec<u64>,
    pub kind: Access,
}

pub struct Wave {
    pub program: Rc<Program>,
    pub rank: usize,
    pub block: usize,
    pub number: usize,
    pub path: Path,
    /// The index of its next instruction.
    pub next: usize,
    pub state: State,
    pub scalars: Vec<u32>,
    pub vectors: Vec<[u32; LANES]>,
    pub condition: bool,
    /// Accesses to global memory that are not complete, in order of issue.
    pub pending: Vec<Pending>,
    /// How many accesses it has issued.
    pub issued: u64,
    /// The last access whose value may be a flag, with no invalidation behind it.
    pub found: Option<u64>,
    /// The first instruction by which it has loaded a word that aborts.
    pub looked: Option<usize>,
    /// Scalar loads and accesses to shared memory that have not been waited for, in order of issue.
    pub scalar_pending: VecDeque<Late>,
    /// How many accesses will still write each register.
    busy_scalars: Vec<u8>,
    busy_vectors: Vec<u8>,
}

/// Describes an instruction: `rank 0 block 1 wave 0 at symmem_signal+0x138: global_store_dword …`.
pub fn place(
    program: &Program,
    (rank, block, number): (usize, usize, usize),
    instruction: usize,
) -> String {
    let kernel = &program.name;
    match program.instructions.get(instruction) {
        Some(each) => format!(
            "rank {rank} block {block} wave {number} at {kernel}+{:#x}: {}",
            each.offset, each.text
        ),
        None => format!("rank {rank} block {block} wave {number} behind {kernel}"),
    }
}

/// The use of a register whose value has not arrived.
pub type Busy = Registers;

impl Wave {
    /// Creates a wave at its first instruction, with `threads` of its lanes active.
    pub fn new(
        program: Rc<Program>,
        (rank, block, number): (usize, usize, usize),
        path: Path,
        threads: usize,
        arguments: u64,
    ) -> Self {
        // Registers hold garbage until the kernel writes them.
        const GARBAGE: u32 = 0xdead_beef;
        let mut wave = Self {
            rank,
            block,
            number,
            path,
            next: 0,
            state: State::Running,
            scalars: vec![GARBAGE; 128],
            vectors: vec![[GARBAGE; LANES]; 256],
            condition: false,
            pending: Vec::new(),
            issued: 0,
            found: None,
            looked: None,
            scalar_pending: VecDeque::new(),
            busy_scalars: vec![0; 128],
            busy_vectors: vec![0; 256],
            program,
        };
        wave.put_scalar(wave.program.arguments_register, arguments, true);
        wave.put_scalar(wave.program.block_register, block as u64, false);
        let exec = if threads >= LANES {
            !0
        } else {
            (1 << threads) - 1
        };
        wave.put_scalar(EXEC, exec, true);
        wave.vectors[0] = std::array::from_fn(|lane| (number * LANES + lane) as u32);
        wave
    }

    /// Describes one of its instructions.
    pub fn place(&self, instruction: usize) -> String {
        place(
            &self.program,
            (self.rank, self.block, self.number),
            instruction,
        )
    }

    /// Marks registers as waiting for a value, or as arrived.
    pub fn mark(&mut self, registers: &Registers, busy: bool) {
        let (counts, range) = match registers {
            Registers::Scalar(range) => (&mut self.busy_scalars, range),
            Registers::Vector(range) => (&mut self.busy_vectors, range),
        };
        for count in &mut counts[range.clone()] {
            *count = if busy { *count + 1 } else { *count - 1 };
        }
    }

    /// Fails if any of the registers has not arrived.
    pub fn check(&self, registers: Registers) -> Result<(), Busy> {
        let busy = match &registers {
            Registers::Scalar(range) => &self.busy_scalars[range.clone()],
            Registers::Vector(range) => &self.busy_vectors[range.clone()],
        };
        if busy.iter().all(|count| *count == 0) {
            Ok(())
        } else {
            Err(registers)
        }
    }

    /// Whether an access to shared memory will still write one of these registers.
    pub fn is_late(&self, registers: &Registers) -> bool {
        let Registers::Vector(range) = registers else {
            return false;
        };
        self.scalar_pending
            .iter()
            .any(|late| match &late.registers {
                Registers::Vector(other) => other.start < range.end && range.start < other.end,
                Registers::Scalar(_) => false,
            })
    }

    pub fn exec(&self) -> u64 {
        self.pair(EXEC)
    }

    fn pair(&self, register: usize) -> u64 {
        u64::from(self.scalars[register + 1]) << 32 | u64::from(self.scalars[register])
    }

    /// Returns a scalar register or pair.
    pub fn scalar(&self, register: usize, wide: bool) -> Result<u64, Busy> {
        self.check(Registers::Scalar(
            register..register + 1 + usize::from(wide),
        ))?;
        Ok(if wide {
            self.pair(register)
        } else {
            self.scalars[register].into()
        })
    }

    fn put_scalar(&mut self, register: usize, value: u64, wide: bool) {
        self.scalars[register] = value as u32;
        if wide {
            self.scalars[register + 1] = (value >> 32) as u32;
        }
    }

    /// Returns the active lanes.
    pub fn lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let exec = self.exec();
        (0..LANES).filter(move |lane| exec >> lane & 1 == 1)
    }

    /// Runs an instruction that uses only registers; returns `None` for others.
    pub fn execute(&mut self, operation: &Operation) -> Option<Result<(), Busy>> {
        Some(match operation {
            Operation::Nothing => Ok(()),
            Operation::Branch { condition, target } => self.branch(*condition, *target),
            Operation::Scalar { .. } => self.scalar_operation(operation),
            Operation::Vector { .. } => self.vector_operation(operation),
            Operation::Compare { .. } => self.compare(operation),
            Operation::ReadLane {
                destination,
                source,
                lane,
            } => self.read_lane(*destination, *source, *lane),
            Operation::MatrixMultiply {
                element,
                elements,
                destination,
                a,
                b,
                c,
            } => self.matrix_multiply(*element, *elements, *destination, [*a, *b, *c]),
            _ => return None,
        })
    }

    fn matrix_multiply(
        &mut self,
        kind: MatrixElement,
        elements: usize,
        destination: usize,
        [a, b, c]: [usize; 3],
    ) -> Result<(), Busy> {
        let (target, in_register) = (self.program.target, kind.in_register());
        let words = elements / in_register;
        for (first, registers) in [(a, words), (b, words), (c, 4), (destination, 4)] {
            self.check(Registers::Vector(first..first + registers))?;
        }
        // The elements of an operand by line and depth.
        let matrix = |first: usize| {
            let mut lines = vec![vec![0f32; 4 * elements]; 16];
            for lane in 0..LANES {
                for element in 0..elements {
                    let word = self.vectors[first + element / in_register][lane];
                    let bits = word >> (element % in_register * (32 / in_register));
                    let value = kind.widen(bits, target);
                    lines[lane % 16][lane / 16 * elements + element] = value;
                }
            }
            lines
        };
        let (rows, columns) = (matrix(a), matrix(b));
        for lane in 0..LANES {
            // All of it first: the destination may overlap it in part, if it has no more than four registers.
            let added: [u32; 4] = std::array::from_fn(|element| self.vectors[c + element][lane]);
            for (element, added) in added.into_iter().enumerate() {
                let (row, column) = (&rows[lane / 16 * 4 + element], &columns[lane % 16]);
                let sum = f32::from_bits(added);
                let products = row.iter().zip(column).map(|(left, right)| left * right);
                let sum = products.fold(sum, |sum, product| sum + product);
                self.vectors[destination + element][lane] = sum.to_bits();
            }
        }
        Ok(())
    }

    /// Puts any value where a result goes: here, ones; a condition holds nowhere.
    pub fn put_any(&mut self, destination: Option<Operand>, wide: bool) -> Result<(), Busy> {
        match destination {
            Some(Operand::Vector(first)) => {
                let registers = first..first + 1 + usize::from(wide);
                self.check(Registers::Vector(registers.clone()))?;
                for register in registers {
                    for lane in self.lanes() {
                        self.vectors[register][lane] = 1f32.to_bits();
                    }
                }
            }
            Some(Operand::Scalar(first)) => {
                self.check(Registers::Scalar(first..first + 2))?;
                self.put_scalar(first, 0, true);
            }
            _ => {}
        }
        Ok(())
    }

    fn branch(&mut self, condition: Condition, target: usize) -> Result<(), Busy> {
        let taken = match condition {
            Condition::Always => true,
            Condition::ScalarCondition(wanted) => self.condition == wanted,
            Condition::ExecZero(wanted) => (self.exec() == 0) == wanted,
            Condition::VccZero(wanted) => (self.scalar(VCC, true)? == 0) == wanted,
        };
        if taken {
            self.next = target;
        }
        Ok(())
    }

    fn scalar_operand(&self, operand: Operand, wide: bool) -> Result<u64, Busy> {
        match operand {
            Operand::Scalar(register) => self.scalar(register, wide),
            Operand::Constant(value) => Ok(value as u64),
            // Scalar instructions that name a vector register are decoded separately.
            Operand::Vector(register) | Operand::Magnitude(register) => {
                Err(Registers::Vector(register..register + 1))
            }
        }
    }

    fn scalar_operation(&mut self, operation: &Operation) -> Result<(), Busy> {
        let Operation::Scalar {
            function,
            destination,
            sources,
        } = operation
        else {
            return Ok(());
        };
        let [wide, first, second] = function.wide();
        let fetch = |index: usize, wide| match sources.get(index) {
            Some(Operand::Constant(value)) if function.is_short() => {
                Ok(i64::from(*value as i16) as u64)
            }
            Some(operand) => self.scalar_operand(*operand, wide),
            None => Ok(0),
        };
        let a = fetch(0, first)?;
        let b = if function.saves_exec() {
            self.exec()
        } else {
            fetch(1, second)?
        };
        let (result, condition) = function.run(a, b, self.condition);
        if let Some(destination) = *destination {
            let width = 1 + usize::from(wide);
            self.check(Registers::Scalar(destination..destination + width))?;
            if function.saves_exec() {
                self.put_scalar(destination, b, true);
                self.put_scalar(EXEC, result, true);
            } else {
                self.put_scalar(destination, result, wide);
            }
        }
        self.condition = condition.unwrap_or(self.condition);
        Ok(())
    }

    /// Returns a source for each lane.
    fn per_lane(&self, operand: Operand, shape: Source) -> Result<[u64; LANES], Busy> {
        let wide = shape != Source::Word;
        Ok(match operand {
            Operand::Vector(register) => {
                self.check(Registers::Vector(
                    register..register + 1 + usize::from(wide),
                ))?;
                std::array::from_fn(|lane| {
                    let low = u64::from(self.vectors[register][lane]);
                    if wide {
                        u64::from(self.vectors[register + 1][lane]) << 32 | low
                    } else {
                        low
                    }
                })
            }
            Operand::Magnitude(register) => self
                .per_lane(Operand::Vector(register), Source::Word)?
                .map(|bits| bits & 0x7fff_ffff),
            other => {
                let value = self.scalar_operand(other, wide)?;
                match shape {
                    Source::Word => [value & 0xffff_ffff; LANES],
                    Source::Wide => [value; LANES],
                    Source::Bit => std::array::from_fn(|lane| value >> lane & 1),
                }
            }
        })
    }

    fn vector_operation(&mut self, operation: &Operation) -> Result<(), Busy> {
        let Operation::Vector {
            function,
            destination,
            carry_out,
            sources,
            parts,
            into,
        } = operation
        else {
            return Ok(());
        };
        let mut values = [[0; LANES]; 3];
        for (index, (operand, shape)) in sources.iter().zip(function.shape()).enumerate() {
            values[index] = self.per_lane(*operand, *shape)?;
        }
        for (values, part) in values.iter_mut().zip(parts) {
            if let Some((first, mask)) = part {
                *values = values.map(|value| value >> first & mask);
            }
        }
        let width = 1 + usize::from(function.is_wide());
        self.check(Registers::Vector(*destination..destination + width))?;
        let mut carries = 0;
        for lane in self.lanes() {
            let (result, carry) = function.run(&Lane {
                number: lane as u32,
                sources: [values[0][lane], values[1][lane], values[2][lane]],
            });
            let result = into.map_or(result, |(first, mask)| (result & mask) << first);
            self.vectors[*destination][lane] = result as u32;
            if function.is_wide() {
                self.vectors[destination + 1][lane] = (result >> 32) as u32;
            }
            carries |= u64::from(carry) << lane;
        }
        if let Some(register) = *carry_out {
            self.check(Registers::Scalar(register..register + 2))?;
            self.put_scalar(register, carries, true);
        }
        Ok(())
    }

    fn compare(&mut self, operation: &Operation) -> Result<(), Busy> {
        let Operation::Compare {
            function,
            wide,
            signed,
            destination,
            sources,
        } = operation
        else {
            return Ok(());
        };
        let shape = if *wide { Source::Wide } else { Source::Word };
        let extend = |value: u64| {
            if *signed && !*wide {
                i64::from(value as u32 as i32) as u64
            } else {
                value
            }
        };
        let [first, second] = [
            self.per_lane(sources[0], shape)?,
            self.per_lane(sources[1], shape)?,
        ];
        let holds = |lane: usize| function(extend(first[lane]), extend(second[lane]));
        let result = self
            .lanes()
            .fold(0, |bits, lane| bits | u64::from(holds(lane)) << lane);
        self.check(Registers::Scalar(*destination..destination + 2))?;
        self.put_scalar(*destination, result, true);
        Ok(())
    }

    fn read_lane(
        &mut self,
        destination: usize,
        source: usize,
        lane: Option<usize>,
    ) -> Result<(), Busy> {
        self.check(Registers::Vector(source..source + 1))?;
        self.check(Registers::Scalar(destination..destination + 1))?;
        // The first active lane is lane 0 if none is active. A numbered lane is read even if it is not.
        let lane = lane.unwrap_or_else(|| self.lanes().next().unwrap_or(0));
        self.scalars[destination] = self.vectors[source][lane];
        Ok(())
    }
}
