#[derive(Clone, Copy)]
#[repr(C)]
struct Sample {
    time: u32,
    value: f32,
}

fn element<T: symmem::Element>() {}

fn main() {
    element::<Sample>();
}
