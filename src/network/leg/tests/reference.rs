//! What a reduction must give.

use crate::backend::abi::{ElementTypeCode, ReduceOpCode};
use crate::network::leg::memory::Reduction;

/// All element types, and all operators.
pub const TYPES: [ElementTypeCode; 14] = [
    ElementTypeCode::I8,
    ElementTypeCode::U8,
    ElementTypeCode::I16,
    ElementTypeCode::U16,
    ElementTypeCode::I32,
    ElementTypeCode::U32,
    ElementTypeCode::I64,
    ElementTypeCode::U64,
    ElementTypeCode::F16,
    ElementTypeCode::BF16,
    ElementTypeCode::F32,
    ElementTypeCode::F64,
    ElementTypeCode::F8_E4M3,
    ElementTypeCode::F8_E5M2,
];
pub const OPERATORS: [ReduceOpCode; 5] = [
    ReduceOpCode::SUM,
    ReduceOpCode::AVERAGE,
    ReduceOpCode::MINIMUM,
    ReduceOpCode::MAXIMUM,
    ReduceOpCode::PRODUCT,
];

/// Returns the reduction of the same range of all members' memory, in member order.
pub fn reduced(memory: &[Vec<u8>], range: std::ops::Range<usize>, reduction: Reduction) -> Vec<u8> {
    let mut result = vec![0; range.len()];
    let sources: Vec<_> = memory
        .iter()
        .map(|one| one[range.clone()].as_ptr())
        .collect();
    // SAFETY: every source has the bytes of the range, as the result does, which overlaps none.
    unsafe { reduction.run(&sources, result.as_mut_ptr(), range.len() as u64) };
    result
}

#[test]
fn the_reference_sums_in_order_and_divides_by_all_ranks() {
    let vectors: Vec<Vec<u8>> = [1.0_f32, 2.0, 4.5].map(|x| x.to_le_bytes().to_vec()).into();
    let of = |reduce| {
        let reduction = Reduction::new(ElementTypeCode::F32, reduce, 6).expect("known");
        f32::from_le_bytes(
            reduced(&vectors, 0..4, reduction)
                .try_into()
                .expect("4 bytes"),
        )
    };
    assert_eq!(of(ReduceOpCode::SUM), 7.5);
    assert_eq!(of(ReduceOpCode::AVERAGE), 1.25);
    assert_eq!(of(ReduceOpCode::MAXIMUM), 4.5);
}
