#![deny(unused_must_use)]

use symmem::{Result, Stream};

fn forget(stream: &Stream) -> Result<()> {
    stream.exchange();
    Ok(())
}

fn main() {}
