//! Texts cut to a length, never within a character.

/// The first `most` characters of a text; `None` if it has no more than these.
pub(crate) fn to_letters(text: &str, most: usize) -> Option<&str> {
    let (end, _) = text.char_indices().nth(most)?;
    text.get(..end)
}

/// A text, or its first `most` characters and `…` without a space before it.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    to_letters(text, most).map_or_else(|| text.to_string(), |cut| format!("{}…", cut.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushim_trace::cut_to;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut_to("aé", 3), "aé");
        assert_eq!(cut_to("aé", 2), "a");
        assert_eq!(cut_to("é", 1), "");
        assert_eq!(to_letters("éa", 1), Some("é"));
        assert_eq!(to_letters("éa", 2), None);
        assert_eq!(shortened("漢字", 1), "漢…");
        assert_eq!(shortened("漢字", 2), "漢字");
    }
}
