use symmem::{ReduceOp, Result, Stream, SymmetricBuffer};

fn reduce(stream: &Stream, buffer: &SymmetricBuffer<i32>) -> Result<()> {
    stream.all_reduce(buffer, buffer, ReduceOp(77))
}

fn main() {}
