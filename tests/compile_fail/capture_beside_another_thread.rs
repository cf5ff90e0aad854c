use symmem::{Graph, Result, Stream};

// What the thread enqueues would be recorded, and its memory not kept.
fn enqueue_meanwhile(stream: &mut Stream) -> Result<Graph> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| stream.barrier());
        let graph = stream.capture(|_| Ok(()));
        other.join().expect("no panic")?;
        graph
    })
}

fn main() {}
