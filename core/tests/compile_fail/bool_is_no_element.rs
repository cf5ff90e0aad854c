fn element<T: symmem_core::Element>() {}

fn main() {
    element::<bool>();
}
