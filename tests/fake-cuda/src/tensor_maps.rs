//! Tensor maps. The fake stores the values that a map is encoded from in place of the driver's own format.

use fake_device::api;
use fake_device::error::Code;
use fake_device::kernels::TensorMap;

/// The granularity in bytes of addresses and strides, without interleaving.
const ALIGNMENT: u64 = 16;
/// Most elements of a box along a side.
const LONGEST_BOX: u32 = 256;
/// This swizzle, and the most bytes that a line of a box may have with it.
const SWIZZLE_128B: (u32, u32) = (3, 128);

api! { unsafe;
    fn [cuTensorMapEncodeTiled](
        map: *mut TensorMap, data_type: u32, rank: u32, address: u64, sizes: *const u64, strides: *const u64,
        boxes: *const u32, steps: *const u32, interleave: u32, swizzle: u32, promotion: u32, fill: u32,
    ) {
        // symmem only uses matrices of 16-bit floats with the 128-byte swizzle.
        let known = rank == 2 && (data_type == 6 || data_type == 9) && interleave == 0 && fill == 0;
        if map.is_null() || !map.addr().is_multiple_of(64) || !known || promotion > 3 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller promises `rank` entries in each array, and one less in `strides`.
        let (length, count, stride, boxes, steps) = unsafe {
            (*sizes, *sizes.add(1), *strides, [*boxes, *boxes.add(1)], [*steps, *steps.add(1)])
        };
        let sizes_fit = [length, count].iter().all(|size| (1..=1 << 32).contains(size));
        let boxes_fit = boxes.iter().all(|side| (1..=LONGEST_BOX).contains(side));
        let swizzled = swizzle == SWIZZLE_128B.0 && boxes[0] * 2 <= SWIZZLE_128B.1;
        let aligned = [address, stride].iter().all(|number| number.is_multiple_of(ALIGNMENT)) && stride < 1 << 40;
        if !sizes_fit || !boxes_fit || !swizzled || !aligned || steps != [1, 1] {
            return Err(Code::INVALID_VALUE);
        }
        let encoded = TensorMap {
            address, length, count, stride, boxes, data_type, swizzle, ..TensorMap::default()
        };
        // SAFETY: the caller promises room for a map.
        unsafe { map.write(encoded) };
        Ok(())
    }
}
