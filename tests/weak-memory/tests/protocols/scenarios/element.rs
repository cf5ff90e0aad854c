//! Numbers in the matrices of scenarios.

use half::{bf16, f16};

/// An element type of matrices.
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

impl Element {
    /// Returns small whole numbers, whose products and sums are exact in f32.
    pub fn numbers(&self, count: usize, salt: usize) -> Vec<u8> {
        let numbers = (0..count).map(|at| ((at * 5 + salt * 3) % 7) as f32 - 3.0);
        numbers.flat_map(self.narrow).collect()
    }

    pub fn at(&self, bytes: &[u8], at: usize) -> f32 {
        (self.widen)([bytes[2 * at], bytes[2 * at + 1]])
    }

    pub fn rounded(&self, number: f32) -> f32 {
        (self.widen)((self.narrow)(number))
    }
}
