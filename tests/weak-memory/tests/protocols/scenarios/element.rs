//! Numbers in the matrices of scenarios.

use half::{bf16, f16};

/// An element type of matrices. One of 8 bits has two elements in the 16 bits of a pair, which are what kernels call an element.
#[derive(Clone, Copy)]
pub struct Element {
    /// Its number as `ElementType`.
    pub number: u32,
    pub narrow: fn(f32) -> [u8; 2],
    widen: fn([u8; 2]) -> f32,
}

pub const F16: Element = Element {
    number: 9,
    narrow: |number| f16::from_f32(number).to_le_bytes(),
    widen: |bytes| f16::from_le_bytes(bytes).to_f32(),
};
pub const BF16: Element = Element {
    number: 10,
    narrow: |number| bf16::from_f32(number).to_le_bytes(),
    widen: |bytes| bf16::from_le_bytes(bytes).to_f32(),
};

pub const F8: Element = Element {
    number: 13,
    // Not used: C and the bias are of bf16.
    narrow: |_| unreachable!("no result has 8 bits"),
    widen: |_| unreachable!("a pair has two numbers"),
};

/// The byte of each whole number from -3 to 3 as OCP E4M3; 0 is -0.
const F8_NUMBERS: [u8; 7] = [0xc4, 0xc0, 0xb8, 0x80, 0x38, 0x40, 0x44];

impl Element {
    fn is_f8(&self) -> bool {
        self.number == F8.number
    }

    /// Returns the type of C and the bias.
    pub fn output(&self) -> Self {
        if self.is_f8() { BF16 } else { *self }
    }

    /// Returns small whole numbers, whose products and sums are exact in f32.
    pub fn numbers(&self, count: usize, salt: usize) -> Vec<u8> {
        let places = |count: usize| (0..count).map(move |at| (at * 5 + salt * 3) % 7);
        if self.is_f8() {
            return places(2 * count).map(|place| F8_NUMBERS[place]).collect();
        }
        let numbers = places(count).map(|place| place as f32 - 3.0);
        numbers.flat_map(self.narrow).collect()
    }

    /// Returns the product of an element of two matrices, or the sum of those of a pair.
    pub fn product(&self, (left, at): (&[u8], usize), (right, there): (&[u8], usize)) -> f32 {
        if !self.is_f8() {
            return self.at(left, at) * self.at(right, there);
        }
        let number = |byte: u8| {
            let place = F8_NUMBERS.iter().position(|each| *each == byte);
            place.map_or(f32::NAN, |place| place as f32 - 3.0)
        };
        let products =
            (0..2).map(|half| number(left[2 * at + half]) * number(right[2 * there + half]));
        products.sum()
    }

    pub fn at(&self, bytes: &[u8], at: usize) -> f32 {
        (self.widen)([bytes[2 * at], bytes[2 * at + 1]])
    }

    pub fn rounded(&self, number: f32) -> f32 {
        (self.widen)((self.narrow)(number))
    }
}
