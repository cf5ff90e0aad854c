//! What a symmetric buffer can hold.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Plain old data: any bytes are a value, and a value is only its bytes. Peers write elements while
/// nobody looks, so nothing less will do.
///
/// All integers, `f32`, `f64`, `half::f16` and `half::bf16` are elements; for an own `repr(C)`
/// struct derive zerocopy's traits.
pub trait Element: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Element for T {}
