use symmem::{Graph, Result, Stream, SymmetricBuffer};

fn write_into_a_graph(stream: &mut Stream, buffer: &SymmetricBuffer<f32>) -> Result<Graph> {
    stream.capture(|queue| {
        buffer.write(queue, 0, &[1.0])?;
        queue.synchronize()
    })
}

fn main() {}
