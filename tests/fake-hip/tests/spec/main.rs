//! What the fake runtime promises where it is HIP's own, as tests. Each runs in a process of its own,
//! since a runtime's state is one per process. What it shares is tested through `fake-cuda`.

mod devices;
mod kernels;
mod memory;
mod real;
mod sharing;
mod streams;
mod support;
