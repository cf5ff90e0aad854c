// An element is an `IntoBytes`, and this is what says whether a struct can be one.
#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct Padded {
    small: u8,
    large: u32,
}

fn main() {}
