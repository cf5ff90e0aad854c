//! Translates element types and reduction operators to `nccl.h`'s numbers.

use std::ffi::c_int;
use symmem_core::backend::abi::{CollectiveOperationCode, ElementTypeCode, ReduceOpCode};

/// First version with fp8.
const HAS_FLOAT8: u32 = 22_400;

/// Returns the `ncclDataType_t` of an element type; `None` if this version lacks it.
pub fn data_type(element: ElementTypeCode, version: u32) -> Option<c_int> {
    Some(match element {
        ElementTypeCode::I8 => 0,
        ElementTypeCode::U8 => 1,
        ElementTypeCode::I32 => 2,
        ElementTypeCode::U32 => 3,
        ElementTypeCode::I64 => 4,
        ElementTypeCode::U64 => 5,
        ElementTypeCode::F16 => 6,
        ElementTypeCode::F32 => 7,
        ElementTypeCode::F64 => 8,
        ElementTypeCode::BF16 => 9,
        ElementTypeCode::F8_E4M3 if version >= HAS_FLOAT8 => 10,
        ElementTypeCode::F8_E5M2 if version >= HAS_FLOAT8 => 11,
        // NCCL has no 16-bit integers.
        _ => return None,
    })
}

/// Returns the `ncclRedOp_t` of a reduction operator.
pub fn reduction(reduce: ReduceOpCode) -> Option<c_int> {
    Some(match reduce {
        ReduceOpCode::SUM => 0,
        ReduceOpCode::PRODUCT => 1,
        ReduceOpCode::MAXIMUM => 2,
        ReduceOpCode::MINIMUM => 3,
        ReduceOpCode::AVERAGE => 4,
        _ => return None,
    })
}

/// Returns whether the operation reduces, so that its element type matters.
pub fn reduces(operation: CollectiveOperationCode) -> bool {
    matches!(
        operation,
        CollectiveOperationCode::ALL_REDUCE
            | CollectiveOperationCode::REDUCE
            | CollectiveOperationCode::REDUCE_SCATTER
    )
}

/// Returns data type and count for elements that are only moved: their own type, or bytes if this version lacks it.
pub fn moved(element: ElementTypeCode, count: u64, version: u32) -> Option<(c_int, u64)> {
    match (data_type(element, version), element.bytes()) {
        (Some(kind), _) => Some((kind, count)),
        (None, 0) => None,
        (None, bytes) => Some((1, count.checked_mul(bytes)?)),
    }
}

/// Returns a version as text. Versions from 2.9 on count the major part in units of 10000.
pub fn version_text(version: u32) -> String {
    let (major, rest) = match version {
        ..10_000 => (version / 1000, version % 1000),
        _ => (version / 10_000, version % 10_000),
    };
    format!("{major}.{}.{}", rest / 100, rest % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats_are_bytes_to_a_library_that_lacks_them() {
        let element = ElementTypeCode::F8_E4M3;
        assert_eq!(moved(element, 5, 22_304), Some((1, 5)));
        assert_eq!(moved(element, 5, 22_400), Some((10, 5)));
        assert_eq!(data_type(element, 22_304), None);
    }

    #[test]
    fn sixteen_bit_integers_can_be_moved_and_not_reduced() {
        assert_eq!(moved(ElementTypeCode::I16, 3, 22_800), Some((1, 6)));
        assert_eq!(moved(ElementTypeCode::U16, u64::MAX, 22_800), None);
        assert_eq!(data_type(ElementTypeCode::U16, 22_800), None);
        assert_eq!(moved(ElementTypeCode(99), 3, 22_800), None);
    }

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version_text(22_809), "2.28.9");
        assert_eq!(version_text(2_804), "2.8.4");
    }
}
