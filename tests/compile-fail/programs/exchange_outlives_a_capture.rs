use symmem::{Result, Stream};

fn outlive(stream: &mut Stream) -> Result<()> {
    let mut kept = None;
    let graph = stream.capture(|queue| {
        kept = Some(queue.exchange());
        Ok(())
    })?;
    drop(graph);
    kept.map_or(Ok(()), |exchange| exchange.enqueue())
}

fn main() {}
