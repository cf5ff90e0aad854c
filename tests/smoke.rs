//! Ranks, as threads of one process, pass numbers around a ring by puts with signals.
use std::time::Duration;
use symmem::backends::Selection;
use symmem::{Builder, LaunchEnvironment};

fn world(n: u32, f: impl Fn(symmem::Communicator) + Send + Sync + Copy) {
    let job = format!(
        "smoke-{}-{:?}",
        std::process::id(),
        std::time::Instant::now()
    );
    std::thread::scope(|s| {
        for r in 0..n {
            let job = job.clone();
            s.spawn(move || {
                let c = Builder::new()
                    .launch(LaunchEnvironment::local(r, n, job).unwrap())
                    .backend(Selection::Named(
                        std::env::var("SMOKE_BACKEND").unwrap_or("host".into()),
                    ))
                    .setup_deadline(Duration::from_secs(10))
                    .deadline(Duration::from_secs(10))
                    .build()
                    .unwrap();
                f(c);
            });
        }
    });
}

#[test]
fn ring() {
    for n in [1, 2, 4] {
        world(n, |c| {
            let (rank, world) = (c.rank(), c.world_size());
            let mut stream = c.stream().unwrap();
            let inbox = c.allocate::<u32>(&[1 << 16]).unwrap();
            let outbox = c.allocate::<u32>(&[1 << 16]).unwrap();
            let data: Vec<u32> = (0..1 << 16).map(|i| i * 7 + rank as u32).collect();
            outbox.write(&stream, 0, &data).unwrap();
            let (next, prev) = ((rank + 1) % world, (rank + world - 1) % world);
            for _ in 0..20 {
                stream
                    .put_signal(next, inbox.all(), outbox.all(), 3)
                    .unwrap();
                stream.wait_signal(prev, 3).unwrap();
                stream.barrier().unwrap();
            }
            let mut got = vec![0; 1 << 16];
            inbox.read(&stream, 0, &mut got).unwrap();
            assert!(
                got.iter()
                    .enumerate()
                    .all(|(i, &x)| x == i as u32 * 7 + prev as u32)
            );
            let graph = stream
                .capture(|queue| {
                    queue.put_signal(next, inbox.all(), outbox.all(), 3)?;
                    queue.wait_signal(prev, 3)?;
                    queue.barrier()
                })
                .unwrap();
            for _ in 0..10 {
                stream.launch_graph(&graph).unwrap();
            }
            stream
                .put_signal(next, inbox.all(), outbox.all(), 3)
                .unwrap();
            stream.wait_signal(prev, 3).unwrap();
            stream.synchronize().unwrap();
            drop(graph);
            inbox.free().unwrap();
            drop(outbox);
            println!("{rank}: {:?}", c.finalize().unwrap());
        });
    }
}
