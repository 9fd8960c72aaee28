//! Texts cut to a length, never within a character.

/// The longest beginning of a text that has at most `most` bytes.
pub(crate) fn to_bytes(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The first `most` characters of a text; `None` if it has no more than these.
pub(crate) fn to_letters(text: &str, most: usize) -> Option<&str> {
    let (end, _) = text.char_indices().nth(most)?;
    text.get(..end)
}

/// A text, or its first `most` characters and `…`.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    to_letters(text, most).map_or_else(|| text.to_string(), |cut| format!("{cut}…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(to_bytes("aé", 3), "aé");
        assert_eq!(to_bytes("aé", 2), "a");
        assert_eq!(to_bytes("é", 1), "");
        assert_eq!(to_letters("éa", 1), Some("é"));
        assert_eq!(to_letters("éa", 2), None);
        assert_eq!(shortened("漢字", 1), "漢…");
        assert_eq!(shortened("漢字", 2), "漢字");
    }
}
