use symmem::{Communicator, Result};

fn outlive(communicator: &Communicator) -> Result<()> {
    let exchange = {
        let stream = communicator.stream()?;
        stream.exchange()
    };
    exchange.enqueue()
}

fn main() {}
