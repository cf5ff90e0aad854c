fn element<T: symmem::Element>() {}

fn main() {
    element::<&'static u8>();
}
