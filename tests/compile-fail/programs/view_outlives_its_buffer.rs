use symmem::SymmetricBuffer;

fn outlive(buffer: SymmetricBuffer<f32>) {
    let view = buffer.local();
    drop(buffer);
    println!("{:?}", view.address());
}

fn main() {}
