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

/// Arguments of a sum of rows in Lamport packets, to which this rank adds its residual, and which it normalises:
///
/// - `y` = the sum of the members' rows + `residual`, in f32 in that order, rounded once, goes to `residual_out`;
/// - the norm of `y`, (`y` - mean) · factor · (`weight` + `weight_offset`) + `bias`, in f32 and rounded once, goes to
///   `reduce.destination`. The factor is 1 / √(mean of squares + `epsilon`), of the differences from the mean if the norm has one.
///
/// One-shot (`share_rows` is 0), every member does so with every row. A message has the rows one after the other, each filled up
/// with zeros to a multiple of 16 bytes. In a group of one there are no inboxes, counters and peers.
///
/// Two-shot, member `p` owns `share_rows` rows from number `p` · `owner_rows` on, as far as there are `rows`. `reduce.sources[p]`
/// are its rows, and `residual` and `residual_out` are this rank's rows only. The owner sends the normalised rows to all, so that
/// every member has all rows in `reduce.destination`. A message is a share, filled up with rows of zeros, and behind it the sender's
/// result, filled up alike.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReduceNormArguments {
    /// The sum: its operator is [`ReduceOpCode::SUM`], its `count` is `rows` · `hidden`, its destination where the result goes; two-shot
    /// member 0's. Its `share_bytes` is `share_rows` · [`ReduceNormArguments::row_bytes`].
    pub reduce: ReduceLamportArguments,
    /// A row of `hidden` elements for each row, two-shot for each own one; null for zeros.
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
    /// Number of rows, one-shot at least as many as the grid has blocks; two-shot those of all members, counted from the first one
    /// in `reduce.destination` on.
    pub rows: u32,
    /// Added to the mean of squares.
    pub epsilon: f32,
    /// Added to each weight.
    pub weight_offset: f32,
    /// The norm.
    pub norm: NormCode,
    /// What the results become; two-shot [`QuantizationCode::NONE`].
    pub quantization: QuantizationCode,
    /// Two-shot, rows of a share in this call, at least as many as the grid has blocks; otherwise 0.
    pub share_rows: u32,
    /// Two-shot, number of rows from a member's first one to the next member's, at least `share_rows`; otherwise 0.
    pub owner_rows: u32,
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

    /// Returns whether each member sums and normalises its own rows only.
    pub fn is_two_shot(&self) -> bool {
        self.share_rows != 0
    }

    /// Returns the number of rows of which a grid's blocks have at least one each.
    pub fn block_rows(&self) -> u32 {
        match self.is_two_shot() {
            true => self.share_rows,
            false => self.rows,
        }
    }

    /// Returns the number of rows that member `member` owns in this call; one-shot all.
    pub fn rows_of(&self, member: u32) -> u32 {
        if !self.is_two_shot() {
            return self.rows;
        }
        let before = u64::from(member) * u64::from(self.owner_rows);
        u64::from(self.rows)
            .saturating_sub(before)
            .min(self.share_rows.into()) as u32
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

    /// Returns the arguments of a two-shot call for rows `first` to `first + count` of each member's `owner_rows`, of `rows` rows of
    /// `source` and `destination`. A member without rows has no address.
    pub fn of_shares(
        &self,
        (first, count): (u64, u32),
        (rows, owner_rows): (u64, u32),
        (source, destination): (DeviceAddress, DeviceAddress),
    ) -> Self {
        let mut some = *self;
        let row = u64::from(self.hidden) * self.reduce.element.bytes();
        some.rows = (rows - first) as u32;
        some.reduce.count = u64::from(some.rows) * u64::from(self.hidden);
        some.share_rows = count;
        some.owner_rows = owner_rows;
        some.reduce.share_bytes = u64::from(count) * self.row_bytes();
        for member in 0..self.reduce.group.world {
            let before = u64::from(member) * u64::from(owner_rows) + first;
            some.reduce.sources[member as usize] = match some.rows_of(member) {
                0 => DeviceAddress::NULL,
                _ => from(source, before * row),
            };
        }
        let owns = some.rows_of(self.reduce.group.rank) != 0;
        let own = |address| match owns {
            true => from(address, first * row),
            false => DeviceAddress::NULL,
        };
        some.residual = own(self.residual);
        some.residual_out = own(self.residual_out);
        some.reduce.destination = from(destination, first * row);
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
        let share = self.row_bytes().saturating_mul(self.share_rows.into());
        if reduce.share_bytes != share || reduce.receiver != EVERY_MEMBER {
            return Err(format!(
                "shares of {} bytes and {} rows, and receiver {}: give a share all bytes of its rows, and every member the sum",
                reduce.share_bytes, self.share_rows, reduce.receiver
            ));
        }
        let fits = match self.is_two_shot() {
            true => {
                let wide = self.quantization == QuantizationCode::NONE;
                wide && reduce.group.world > 1 && self.share_rows <= self.owner_rows
            }
            false => self.owner_rows == 0,
        };
        if !fits {
            return Err(format!(
                "shares of {} of a member's {} rows, quantization {} and {} members: two-shot calls have at least two members and \
                 results of the rows' type, and a share at most a member's rows; one-shot calls have no shares",
                self.share_rows, self.owner_rows, self.quantization.0, reduce.group.world
            ));
        }
        let sent = match self.is_two_shot() {
            true => 2 * u64::from(self.share_rows),
            false => rows.into(),
        };
        let taken = self.row_bytes().saturating_mul(sent);
        let room = u64::from(reduce.part_bytes);
        if reduce.group.world > 1 && (taken > room || !room.is_multiple_of(16)) {
            return Err(format!(
                "{sent} rows take {taken} of a part of {room} bytes: give a part of a multiple of 16 bytes that holds them"
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

/// Returns the address `bytes` behind one that is not null.
fn from(address: DeviceAddress, bytes: u64) -> DeviceAddress {
    match address {
        DeviceAddress::NULL => address,
        address => DeviceAddress(address.0 + bytes),
    }
}
