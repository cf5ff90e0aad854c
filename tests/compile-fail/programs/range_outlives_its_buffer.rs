use symmem::{Communicator, Result};

fn outlive(communicator: &Communicator) -> Result<()> {
    let range = {
        let buffer = communicator.allocate::<f32>(&[4])?;
        buffer.slice(..2)?
    };
    println!("{}", range.len());
    Ok(())
}

fn main() {}
