use symmem::{Graph, Result, Stream};

// The capture would record the thread's call without keeping the memory that it uses.
fn enqueue_meanwhile(stream: &mut Stream) -> Result<Graph> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| stream.barrier());
        let graph = stream.capture(|_| Ok(()));
        other.join().expect("no panic")?;
        graph
    })
}

fn main() {}
