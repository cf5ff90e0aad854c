use symmem::{Graph, Result, Stream};

fn capture_what_others_use(stream: &Stream) -> Result<Graph> {
    stream.capture(|queue| queue.barrier())
}

fn main() {}
