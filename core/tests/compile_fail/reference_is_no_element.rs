fn element<T: symmem_core::Element>() {}

fn main() {
    element::<&'static u8>();
}
