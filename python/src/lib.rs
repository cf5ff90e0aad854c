//! The native module of the Python package `symmem`.
//!
//! A call from Python finds its operands ([`memory`]), its stream ([`stream`]) and enqueues ([`calls`]). What Python can say
//! better than Rust is in `symmem/*.py`.

mod arrays;
mod buffer;
mod calls;
mod command;
mod communicator;
mod dlpack;
mod element;
mod failure;
mod gemm;
mod gemm_reduce;
mod interrupt;
mod join;
mod memory;
mod number;
mod operand;
mod peer_buffer;
mod rank;
mod segments;
mod shared;
mod stream;
mod torch;

use pyo3::prelude::*;

#[pymodule]
fn _symmem(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<buffer::Buffer>()?;
    module.add_class::<peer_buffer::PeerBuffer>()?;
    module.add_class::<memory::At>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<gemm::AllGatherGemm>()?;
    module.add_class::<gemm_reduce::GemmReduce>()?;
    module.add_class::<torch::Products>()?;
    module.add_function(wrap_pyfunction!(join::join, module)?)?;
    module.add("reductions", element::reductions())?;
    module.add_function(wrap_pyfunction!(torch::register_operators, module)?)?;
    module.add_function(wrap_pyfunction!(torch::take_exception, module)?)?;
    module.add_function(wrap_pyfunction!(segments::take_allocation_failure, module)?)?;
    module.add_function(wrap_pyfunction!(command::main, module)?)
}
