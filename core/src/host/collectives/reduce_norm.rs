//! Sums of rows in Lamport packets with a residual and a norm, one-shot and two-shot. [`ReduceNormArguments`] says what is computed.

use super::arithmetic::{from_f32, to_f32};
use super::lamport::{self, Inboxes, Messages};
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

    fn own(&self) -> u32 {
        self.arguments.reduce.group.rank
    }

    /// Returns a word of this rank's row for a member. Behind the row's end, and where there is no such row, there are zeros.
    fn word_of_row(&self, member: u32, row: u64, index: u64) -> u32 {
        if row >= self.arguments.rows_of(member).into() {
            return 0;
        }
        let message = self.place(self.arguments.reduce.sources[member as usize], row);
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
                    _ => from_packet(to_packet(self.word_of_row(self.own(), row, index))),
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
        if self.arguments.residual != DeviceAddress::NULL && self.is_present(row) {
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

    /// Returns whether a row of this rank's share exists.
    fn is_present(&self, row: u64) -> bool {
        row < self.arguments.rows_of(self.own()).into()
    }

    /// Does all that follows once the peers' packets are there.
    fn finish(&self, buffer: u64) {
        for row in 0..u64::from(self.arguments.block_rows()) {
            let mut numbers = self.sum(row, buffer);
            let out = self.arguments.residual_out;
            if out != DeviceAddress::NULL && self.is_present(row) {
                self.store(out, row, &numbers);
            }
            self.normalise(&mut numbers);
            match &self.inboxes {
                Some(inboxes) if self.arguments.is_two_shot() => {
                    self.give_result(inboxes, buffer, row, &numbers);
                }
                _ => self.store_result(row, &numbers),
            }
        }
    }

    /// Returns the words of a share in a message.
    fn share_words(&self) -> u64 {
        self.arguments.row_bytes() / 4 * u64::from(self.arguments.block_rows())
    }

    /// Stores a word of a member's row in the destination, as far as the row reaches; nowhere if there is no such row.
    fn store_word(&self, member: u32, row: u64, index: u64, word: u32) {
        if row >= self.arguments.rows_of(member).into() {
            return;
        }
        let row = u64::from(member) * u64::from(self.arguments.owner_rows) + row;
        let to = self.place(self.arguments.reduce.destination, row);
        let bytes = u64::from(self.arguments.hidden) * self.element_bytes();
        // SAFETY: the destination is live, as `new` requires.
        unsafe { lamport::store_word(to, bytes, index, word) };
    }

    /// Stores a row of this rank's results, and sends it to all peers.
    fn give_result(&self, inboxes: &Inboxes<'_>, buffer: u64, row: u64, numbers: &[f32]) {
        let (element, width) = (self.arguments.reduce.element, self.element_bytes() as usize);
        let mut bytes = Vec::with_capacity(self.arguments.row_bytes() as usize);
        for number in numbers {
            bytes.extend_from_slice(&from_f32(element, *number).to_le_bytes()[..width]);
        }
        bytes.resize(self.arguments.row_bytes() as usize, 0);
        let words = self.arguments.row_bytes() / 4;
        for (index, word) in (0..words).zip(bytes.chunks_exact(4)) {
            let word = bits_of(word);
            for peer in inboxes.members.peers() {
                let at = self.share_words() + row * words + index;
                inboxes.send(peer, buffer, at, word);
            }
            // As at the peers, or members would get different bits.
            self.store_word(self.own(), row, index, from_packet(to_packet(word)));
        }
    }

    /// Stores all peers' results, and empties their places.
    fn store_results(&self, inboxes: &Inboxes<'_>, buffer: u64) {
        let words = self.arguments.row_bytes() / 4;
        for peer in inboxes.members.peers() {
            for at in 0..self.share_words() {
                let word = inboxes.take(peer, buffer, self.share_words() + at);
                self.store_word(peer, at / words, at % words, word);
            }
        }
    }
}

impl Messages for Call<'_> {
    fn stages(&self) -> u32 {
        1 + u32::from(self.arguments.is_two_shot())
    }

    fn words(&self, _: u32, _: u32) -> u64 {
        self.share_words()
    }

    fn word(&self, to: u32, index: u64) -> u32 {
        // One-shot, all get the same, and only the own entry is read.
        let member = match self.arguments.is_two_shot() {
            true => to,
            false => self.own(),
        };
        let words = self.arguments.row_bytes() / 4;
        self.word_of_row(member, index / words, index % words)
    }

    fn take(&self, stage: u32, buffer: u64) {
        match &self.inboxes {
            Some(inboxes) if stage == 1 => self.store_results(inboxes, buffer),
            _ => self.finish(buffer),
        }
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
