use symmem::{Result, Stream, SymmetricBuffer};

fn send_what_is_gone(stream: &Stream, out: SymmetricBuffer<f32>) -> Result<()> {
    let mut exchange = stream.exchange();
    exchange.send(1, out.slice(..2)?)?;
    drop(out);
    exchange.enqueue()
}

fn main() {}
