//! Sums of rows with a residual and a norm.

use super::collectives::{EVERY_MEMBER, ElementTypeCode, ReduceLamportArguments, ReduceOpCode};
use super::forms::open_enum;
use super::handles::DeviceAddress;

open_enum!(
    /// A norm over the elements of a row.
    NormCode {
        /// None.
        NONE = 0,
        /// Divided by the root of the mean of their squares.
        ROOT_MEAN_SQUARE = 1,
        /// Less their mean, and divided by their standard deviation.
        LAYER = 2,
    }
);

open_enum!(
    /// How a result becomes [`ElementTypeCode::F8_E4M3`]: divided by a scale, and rounded; what is too large becomes the largest
    /// number.
    QuantizationCode {
        /// It keeps its type.
        NONE = 0,
        /// One scale for all, which is given.
        TENSOR = 1,
        /// A scale for each row, with which its largest magnitude becomes 448, the largest number of the type.
        ROW = 2,
        /// The same for each [`NORM_GROUP`] adjacent elements of a row.
        GROUP = 3,
    }
);

impl QuantizationCode {
    /// Returns the number of scales of `rows` rows of `hidden` elements.
    pub const fn scales(self, rows: u64, hidden: u64) -> u64 {
        match self {
            Self::TENSOR => 1,
            Self::ROW => rows,
            Self::GROUP => rows * (hidden / NORM_GROUP as u64),
            _ => 0,
        }
    }
}

/// Elements that share a scale of [`QuantizationCode::GROUP`].
pub const NORM_GROUP: u32 = 128;
/// The smallest of the largest magnitudes from which a scale is computed; a row of zeros has none.
pub const SMALLEST_MAXIMUM: f32 = 1e-10;

/// Arguments of a sum of rows in Lamport packets, one-shot for every member, to which this rank adds its residual, and which it
/// normalises:
///
/// - `y` = the sum of the members' rows + `residual`, in f32 in that order, rounded once, goes to `residual_out`;
/// - the norm of `y`, (`y` - mean) · factor · (`weight` + `weight_offset`) + `bias`, in f32 and rounded once, goes to
///   `reduce.destination`. The factor is 1 / √(mean of squares + `epsilon`), of the differences from the mean if the norm has one.
///
/// A message has the rows one after the other, each filled up with zeros to a multiple of 16 bytes. In a group of one there are
/// no inboxes, counters and peers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReduceNormArguments {
    /// The sum: its operator is [`ReduceOpCode::SUM`], its `count` is `rows` · `hidden`, its destination where the result goes.
    pub reduce: ReduceLamportArguments,
    /// A row of `hidden` elements for each row; null for zeros.
    pub residual: DeviceAddress,
    /// Where the sums with the residual go, which may be the residual; null for nowhere.
    pub residual_out: DeviceAddress,
    /// `hidden` elements; null for zeros.
    pub weight: DeviceAddress,
    /// `hidden` elements; null for zeros.
    pub bias: DeviceAddress,
    /// f32: the scale with [`QuantizationCode::TENSOR`], or where those of rows or groups go.
    pub scales: DeviceAddress,
    /// Elements of a row; a multiple of [`NORM_GROUP`] with [`QuantizationCode::GROUP`].
    pub hidden: u32,
    /// Number of rows, at least as many as the grid has blocks.
    pub rows: u32,
    /// Added to the mean of squares.
    pub epsilon: f32,
    /// Added to each weight.
    pub weight_offset: f32,
    /// The norm.
    pub norm: NormCode,
    /// What the results become.
    pub quantization: QuantizationCode,
}

impl ReduceNormArguments {
    /// Returns whether rows of a type can be normalised.
    pub const fn can_carry(element: ElementTypeCode) -> bool {
        matches!(
            element,
            ElementTypeCode::F16 | ElementTypeCode::BF16 | ElementTypeCode::F32
        )
    }

    /// Returns whether the call has neither a mean, nor a bias, nor results of 8 bits.
    pub fn is_plain(&self) -> bool {
        self.has_no_mean() && self.quantization == QuantizationCode::NONE
    }

    /// Returns whether the call has neither a mean nor a bias, and results of 8 bits.
    pub fn is_narrow(&self) -> bool {
        self.has_no_mean() && self.quantization != QuantizationCode::NONE
    }

    fn has_no_mean(&self) -> bool {
        self.norm != NormCode::LAYER && self.bias == DeviceAddress::NULL
    }

    /// Returns the bytes of a row in a message.
    pub fn row_bytes(&self) -> u64 {
        Self::taken_bytes(self.hidden.into(), self.reduce.element)
    }

    /// Returns the bytes that a row of `hidden` elements takes in a message.
    pub fn taken_bytes(hidden: u64, element: ElementTypeCode) -> u64 {
        let bytes = hidden.saturating_mul(element.bytes());
        bytes.checked_next_multiple_of(16).unwrap_or(u64::MAX)
    }

    /// Returns the arguments for `rows` rows from number `first` on of `source` and `destination`, and of the other matrices.
    pub fn of_rows(
        &self,
        first: u64,
        rows: u32,
        (source, destination): (DeviceAddress, DeviceAddress),
    ) -> Self {
        let mut some = *self;
        let width = self.reduce.element.bytes();
        let before = first * u64::from(self.hidden);
        let from = |address: DeviceAddress, bytes: u64| match address {
            DeviceAddress::NULL => address,
            address => DeviceAddress(address.0 + bytes),
        };
        for source_of in &mut some.reduce.sources[..self.reduce.group.world as usize] {
            *source_of = from(source, before * width);
        }
        some.residual = from(self.residual, before * width);
        some.residual_out = from(self.residual_out, before * width);
        let (width, scales) = match self.quantization {
            QuantizationCode::NONE => (width, 0),
            QuantizationCode::ROW => (1, first),
            QuantizationCode::GROUP => (1, before / u64::from(NORM_GROUP)),
            _ => (1, 0),
        };
        some.reduce.destination = from(destination, before * width);
        some.scales = from(self.scales, scales * size_of::<f32>() as u64);
        some.rows = rows;
        some.reduce.count = u64::from(rows) * u64::from(self.hidden);
        some
    }

    /// Returns the number of scales that are read or written.
    pub fn scales_used(&self) -> u64 {
        self.quantization
            .scales(self.rows.into(), self.hidden.into())
    }

    /// Returns the bytes of the result.
    pub fn result_bytes(&self) -> u64 {
        let elements = u64::from(self.rows) * u64::from(self.hidden);
        match self.quantization {
            QuantizationCode::NONE => elements.saturating_mul(self.reduce.element.bytes()),
            _ => elements,
        }
    }

    /// Checks that the numbers fit together.
    ///
    /// # Errors
    /// The number that is out of range.
    pub fn check(&self) -> Result<(), String> {
        let (reduce, hidden, rows) = (&self.reduce, self.hidden, self.rows);
        if !Self::can_carry(reduce.element) || reduce.reduce != ReduceOpCode::SUM {
            return Err(format!(
                "{} of elements {} (numbers {} and {}): use sums of f16, bf16 or f32",
                reduce.reduce.name(),
                reduce.element.name(),
                reduce.reduce.0,
                reduce.element.0
            ));
        }
        let elements = u64::from(rows) * u64::from(hidden);
        if elements == 0 || reduce.count != elements {
            return Err(format!(
                "{rows} rows of {hidden} elements for a count of {}: give at least one row of one element, and their product",
                reduce.count
            ));
        }
        if reduce.share_bytes != 0 || reduce.receiver != EVERY_MEMBER {
            return Err(format!(
                "shares of {} bytes and receiver {}: the sum is one-shot, for every member",
                reduce.share_bytes, reduce.receiver
            ));
        }
        let taken = self.row_bytes().saturating_mul(rows.into());
        let room = u64::from(reduce.part_bytes);
        if reduce.group.world > 1 && (taken > room || !room.is_multiple_of(16)) {
            return Err(format!(
                "{rows} rows take {taken} of a part of {room} bytes: give a part of a multiple of 16 bytes that holds them"
            ));
        }
        if self.quantization == QuantizationCode::GROUP && !hidden.is_multiple_of(NORM_GROUP) {
            return Err(format!(
                "rows of {hidden} elements in groups of {NORM_GROUP}: their length must be a multiple"
            ));
        }
        let known = self.norm <= NormCode::LAYER && self.quantization <= QuantizationCode::GROUP;
        match known {
            true => Ok(()),
            false => Err(format!(
                "norm {} or quantization {} is of a newer release",
                self.norm.0, self.quantization.0
            )),
        }
    }
}
