//! The rules of the fake runtime that are specific to HIP, as tests. Each test runs in its own process because the
//! runtime's state exists once per process. The shared rules are tested through `fake-cuda`.

mod devices;
mod kernels;
mod memory;
mod real;
mod sharing;
mod streams;
mod support;
