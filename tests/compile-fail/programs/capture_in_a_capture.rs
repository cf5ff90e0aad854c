use symmem::{Graph, Result, Stream};

fn capture_twice(stream: &mut Stream) -> Result<Graph> {
    stream.capture(|queue| {
        queue.capture(|_| Ok(()))?;
        Ok(())
    })
}

fn main() {}
