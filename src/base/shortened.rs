//! Texts that must fit into a message.

/// Returns the start of `text`, at most so many bytes, cut between characters.
pub fn shortened(text: &str, most: usize) -> &str {
    let mut ends = (0..=text.len().min(most)).rev();
    let end = ends.find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("aé", 2), "a");
        assert_eq!(shortened("é", 1), "");
    }
}
