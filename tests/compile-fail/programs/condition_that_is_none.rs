use symmem::{Condition, Result, Stream, SymmetricBuffer};

fn wait(stream: &Stream, words: &SymmetricBuffer<u64>) -> Result<()> {
    stream.wait_word(words, Condition(7), 0)?;
    stream.wait_word(words, Condition::default(), 0)
}

fn main() {}
