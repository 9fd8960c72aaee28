//! Texts in a line of a file: cut to a length, and with escapes.

/// Returns the longest beginning of a text with at most this many bytes, in whole characters.
///
/// ```
/// assert_eq!(gpushim_trace::cut_to("aé", 2), "a");
/// ```
pub fn cut_to(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Appends a text in the form of the facts: backslash, tab and line feed escaped.
pub fn escape_into(line: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '\\' => line.push_str(r"\\"),
            '\t' => line.push_str(r"\t"),
            '\n' => line.push_str(r"\n"),
            other => line.push(other),
        }
    }
}

/// Reverses [`escape_into`].
pub fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => match letters.next() {
                Some('t') => plain.push('\t'),
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => plain.push('\\'),
            },
            (other, false) => plain.push(other),
        }
    }
    plain
}
