//! Makes text from files safe to show.
//!
//! The result cannot move the cursor, begin a line, turn the direction of writing, or hide.
//!
//! Names of programs, hosts and functions come from files of unknown origin. Every value from a
//! file in text for people goes through [`shown`]. The whole printed output goes through
//! [`screen`], which keeps line feeds. A value that was not escaped with [`shown`] can therefore
//! only begin a line.

use std::fmt::Write;

use super::style;

/// A value in a line of text. Characters that are invisible or change the look of others become
/// `\n`, `\t` or `\u{1b}`.
pub fn shown(text: &str) -> String {
    escaped(text, |_| false)
}

/// A whole output: as [`shown`], with its line feeds.
pub fn screen(text: &str) -> String {
    escaped(text, |letter| {
        letter == '\n' || style::is_coloured() && style::is_mark(letter)
    })
}

/// JSON in which such characters of texts are escaped as `\u001b`. The meaning is the same.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter == '\n' || !is_unseen(letter) {
            out.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // Writing to a text cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

/// True if a character cannot be seen or changes the look of others.
///
/// Such are control characters (Unicode's class Cc), separators of lines and paragraphs, marks of
/// direction, characters without width, fillers and tags.
pub fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                // Noncharacters, of which some mark coloured parts.
                | '\u{fdd0}'..='\u{fdef}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            _ if stays(letter) || !is_unseen(letter) => out.push(letter),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Writing to a text cannot fail.
            _ => drop(write!(out, "\\u{{{:x}}}", u32::from(letter))),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_made_visible() {
        assert_eq!(shown("python -c 'a\nb\tc'"), r"python -c 'a\nb\tc'");
        assert_eq!(shown("\u{1b}[2J\u{9b}1m\r"), r"\u{1b}[2J\u{9b}1m\r");
        assert_eq!(
            shown("a\u{202e}b\u{200b}c\u{2028}"),
            r"a\u{202e}b\u{200b}c\u{2028}"
        );
        assert_eq!(shown("Größe 漢字 👍 ‘x’ "), "Größe 漢字 👍 ‘x’ ");
        assert_eq!(screen("a\nb\u{7f}"), "a\nb\\u{7f}");
    }

    #[test]
    fn json_means_the_same() {
        let value = "\u{1b}[2J\u{9b}\u{202e}\u{e0041}\"\\ \n漢";
        let text = serde_json::to_string_pretty(&[value]).expect("written");
        let ours = json(&text);
        assert!(
            !ours
                .chars()
                .any(|letter| letter != '\n' && is_unseen(letter))
        );
        let read: Vec<String> = serde_json::from_str(&ours).expect("JSON");
        assert_eq!(read, [value]);
    }
}
