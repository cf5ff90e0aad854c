use symmem::{Communicator, Result};

fn outlive(communicator: &Communicator) -> Result<()> {
    let range = {
        let buffer = communicator.allocate::<f32>(&[4])?;
        buffer.range(0, 2)?
    };
    println!("{}", range.len());
    Ok(())
}

fn main() {}
