//! Sums of rows in Lamport packets with a residual and a norm. [`ReduceNormArguments`] says what is computed.

use super::arithmetic::{from_f32, to_f32};
use super::lamport::{self, Inboxes, Messages, WORDS};
use crate::backend::abi::*;
use crate::epoch::lamport::{from_packet, to_packet};
use crate::float::E4m3;
use crate::host::copies;
use crate::host::progress::{Pending, Step};

/// The largest number of E4M3.
const LARGEST_F8: f32 = 448.0;

/// Returns where bytes of this process are.
fn place_of(bytes: &mut [u8]) -> DeviceAddress {
    DeviceAddress(bytes.as_mut_ptr().expose_provenance() as u64)
}

/// Returns the bits of an element of at most 32 bits.
fn bits_of(bytes: &[u8]) -> u32 {
    let mut bits = [0; 4];
    bits[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(bits)
}

/// A call, as seen by this rank.
struct Call<'a> {
    arguments: &'a ReduceNormArguments,
    /// `None` in a group of one.
    inboxes: Option<Inboxes<'a>>,
}

impl<'a> Call<'a> {
    /// # Safety
    /// All memory in `arguments` is live while the call is used, and [`ReduceNormArguments::check`] has passed.
    unsafe fn new(arguments: &'a ReduceNormArguments) -> Self {
        let reduce = &arguments.reduce;
        let inboxes = (reduce.group.world > 1).then(|| {
            // SAFETY: this function has the same conditions.
            unsafe {
                Inboxes::new(
                    &reduce.group,
                    &reduce.inboxes,
                    reduce.counters,
                    reduce.part_bytes,
                )
            }
        });
        Self { arguments, inboxes }
    }

    fn element_bytes(&self) -> u64 {
        self.arguments.reduce.element.bytes()
    }

    /// Returns the address of a row of a matrix.
    fn place(&self, matrix: DeviceAddress, row: u64) -> DeviceAddress {
        let index = row * u64::from(self.arguments.hidden);
        DeviceAddress(matrix.0 + index * self.element_bytes())
    }

    /// Returns a row of a matrix; zeros where there is no matrix.
    fn load(&self, matrix: DeviceAddress, row: u64) -> Vec<f32> {
        let hidden = self.arguments.hidden as usize;
        if matrix == DeviceAddress::NULL {
            return vec![0.0; hidden];
        }
        let width = self.element_bytes() as usize;
        let mut bytes = vec![0; hidden * width];
        // SAFETY: the matrices are live, as `new` requires; the bytes are this function's.
        unsafe {
            copies::copy(
                place_of(&mut bytes),
                self.place(matrix, row),
                bytes.len() as u64,
            )
        };
        let element = self.arguments.reduce.element;
        let number = |bytes: &[u8]| to_f32(element, bits_of(bytes));
        bytes.chunks_exact(width).map(number).collect()
    }

    /// Stores a row of a matrix, rounded.
    fn store(&self, matrix: DeviceAddress, row: u64, numbers: &[f32]) {
        let (element, width) = (self.arguments.reduce.element, self.element_bytes() as usize);
        let mut bytes = Vec::with_capacity(numbers.len() * width);
        for number in numbers {
            bytes.extend_from_slice(&from_f32(element, *number).to_le_bytes()[..width]);
        }
        // SAFETY: the matrices are live, as `new` requires; the bytes are this function's.
        unsafe {
            copies::copy(
                self.place(matrix, row),
                place_of(&mut bytes),
                bytes.len() as u64,
            )
        };
    }

    /// Returns a word of a row that this rank sends. Behind the row's end there are zeros.
    fn word_of_row(&self, row: u64, index: u64) -> u32 {
        let own = self.arguments.reduce.group.rank as usize;
        let message = self.place(self.arguments.reduce.sources[own], row);
        let bytes = u64::from(self.arguments.hidden) * self.element_bytes();
        // SAFETY: the source is live, as `new` requires.
        unsafe { lamport::word_of(message, bytes, index) }
    }

    /// Returns a row's sum over all members with the residual, rounded, and empties the packets' places.
    fn sum(&self, row: u64, buffer: u64) -> Vec<f32> {
        let (reduce, width) = (&self.arguments.reduce, self.element_bytes());
        let hidden = u64::from(self.arguments.hidden);
        let words = self.arguments.row_bytes() / 4;
        let mut sums = vec![0.0; hidden as usize];
        for member in 0..reduce.group.world {
            for index in 0..words {
                let word = match &self.inboxes {
                    Some(inboxes) if member != reduce.group.rank => {
                        inboxes.take(member, buffer, row * words + index)
                    }
                    // As at the peers, or members would get different bits.
                    _ => from_packet(to_packet(self.word_of_row(row, index))),
                };
                let word = word.to_le_bytes();
                let elements = (index * 4 / width..hidden).zip(word.chunks_exact(width as usize));
                for (element, bytes) in elements {
                    let number = to_f32(reduce.element, bits_of(bytes));
                    let sum = &mut sums[element as usize];
                    *sum = if member == 0 { number } else { *sum + number };
                }
            }
        }
        if self.arguments.residual != DeviceAddress::NULL {
            let residual = self.load(self.arguments.residual, row);
            sums.iter_mut()
                .zip(residual)
                .for_each(|(sum, residual)| *sum += residual);
        }
        let rounded = |sum: f32| to_f32(reduce.element, from_f32(reduce.element, sum));
        sums.iter_mut().for_each(|sum| *sum = rounded(*sum));
        sums
    }

    /// Normalises a row.
    fn normalise(&self, row: &mut [f32]) {
        let arguments = self.arguments;
        if arguments.norm == NormCode::NONE {
            return;
        }
        let mean = match arguments.norm {
            NormCode::LAYER => row.iter().sum::<f32>() / row.len() as f32,
            _ => 0.0,
        };
        let squares: f32 = row.iter().map(|number| (number - mean).powi(2)).sum();
        let factor = 1.0 / (squares / row.len() as f32 + arguments.epsilon).sqrt();
        let weights = self.load(arguments.weight, 0);
        let biases = self.load(arguments.bias, 0);
        for (number, (weight, bias)) in row.iter_mut().zip(weights.iter().zip(biases)) {
            *number = (*number - mean) * factor * (weight + arguments.weight_offset) + bias;
        }
    }

    /// Stores a row of results, as numbers of 8 bits if that was asked for.
    fn store_result(&self, row: u64, numbers: &[f32]) {
        let arguments = self.arguments;
        let to = arguments.reduce.destination;
        let width = match arguments.quantization {
            QuantizationCode::NONE => return self.store(to, row, numbers),
            QuantizationCode::GROUP => NORM_GROUP as usize,
            _ => numbers.len(),
        };
        let groups = (numbers.len() / width) as u64;
        let mut bytes = Vec::with_capacity(numbers.len());
        for (group, numbers) in numbers.chunks(width).enumerate() {
            let scale = self.scale_of(row * groups + group as u64, numbers);
            let narrow = |number: &f32| E4m3::narrow(number * (1.0 / scale)) as u8;
            bytes.extend(numbers.iter().map(narrow));
        }
        let to = DeviceAddress(to.0 + row * u64::from(arguments.hidden));
        // SAFETY: the destination is live, as `new` requires; the bytes are this function's.
        unsafe { copies::copy(to, place_of(&mut bytes), bytes.len() as u64) };
    }

    /// Returns the scale of a row or a group, which it stores if it was not given.
    fn scale_of(&self, index: u64, numbers: &[f32]) -> f32 {
        let scales = self.arguments.scales;
        let mut bytes = [0; 4];
        if self.arguments.quantization == QuantizationCode::TENSOR {
            // SAFETY: the scales are live, as `new` requires; the bytes are on this stack.
            unsafe { copies::copy(place_of(&mut bytes), scales, 4) };
            return f32::from_le_bytes(bytes);
        }
        let largest = numbers
            .iter()
            .fold(0.0_f32, |most, number| most.max(number.abs()));
        let scale = largest.max(SMALLEST_MAXIMUM) / LARGEST_F8;
        bytes = scale.to_le_bytes();
        // SAFETY: as above.
        unsafe { copies::copy(DeviceAddress(scales.0 + index * 4), place_of(&mut bytes), 4) };
        scale
    }

    /// Does all that follows once the peers' packets are there.
    fn finish(&self, buffer: u64) {
        for row in 0..u64::from(self.arguments.rows) {
            let mut numbers = self.sum(row, buffer);
            let out = self.arguments.residual_out;
            if out != DeviceAddress::NULL {
                self.store(out, row, &numbers);
            }
            self.normalise(&mut numbers);
            self.store_result(row, &numbers);
        }
    }
}

impl Messages for Call<'_> {
    fn words(&self, _: u32, _: u32) -> u64 {
        self.arguments.row_bytes() / lamport::VECTOR * WORDS * u64::from(self.arguments.rows)
    }

    fn word(&self, _: u32, index: u64) -> u32 {
        let words = self.arguments.row_bytes() / 4;
        self.word_of_row(index / words, index % words)
    }

    fn take(&self, _: u32, buffer: u64) {
        self.finish(buffer);
    }
}

/// Advances a call.
///
/// # Safety
/// All memory in `arguments` is live, and [`super::Collective::check`] has passed.
pub(crate) unsafe fn advance(
    arguments: &ReduceNormArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: the memory is live and the arguments are checked, as this function requires.
    let call = unsafe { Call::new(arguments) };
    match &call.inboxes {
        // SAFETY: the watch's words are null or live, as this function requires.
        Some(inboxes) => unsafe { inboxes.advance(pending, &call) },
        None => {
            call.finish(0);
            Step::Done
        }
    }
}
