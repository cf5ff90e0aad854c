// Every element is `IntoBytes`, whose derive rejects padding.
#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct Padded {
    small: u8,
    large: u32,
}

fn main() {}
