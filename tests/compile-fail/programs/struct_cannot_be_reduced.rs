#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct Sample {
    time: u32,
    value: f32,
}

fn reduce<T: symmem::Reducible>() {}

fn main() {
    reduce::<Sample>();
}
