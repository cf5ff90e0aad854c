use symmem::{Graph, Result, Stream, SymmetricBuffer};

fn write_while_it_is_captured(stream: &mut Stream, buffer: &SymmetricBuffer<f32>) -> Result<Graph> {
    stream.capture(|queue| {
        buffer.write(stream, 0, &[1.0])?;
        queue.barrier()
    })
}

fn main() {}
