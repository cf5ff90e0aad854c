use symmem::{Result, Stream, SymmetricBuffer};

fn use_after_free(stream: &Stream, inbox: SymmetricBuffer<f32>, out: SymmetricBuffer<f32>) -> Result<()> {
    let range = inbox.all();
    inbox.free()?;
    stream.put(0, range, out.all())
}

fn main() {}
