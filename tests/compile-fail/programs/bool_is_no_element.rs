fn element<T: symmem::Element>() {}

fn main() {
    element::<bool>();
}
