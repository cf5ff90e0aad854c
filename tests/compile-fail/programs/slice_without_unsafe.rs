use symmem::SymmetricBuffer;

fn look(buffer: &SymmetricBuffer<f32>) -> f32 {
    buffer.local().as_slice()[0]
}

fn main() {}
