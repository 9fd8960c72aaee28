//! Sentences in lines of a width.

use super::style::letters;

/// Words that a line needs to be taken for a sentence.
const WORDS: usize = 6;

/// Lines of at most `width` characters, broken between words; a longer word has a line of its own.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if letters(line) + letters(word) < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// A text after a label, in lines of at most `width` characters.
///
/// Later lines begin below the first one's text. The result ends with a line feed.
pub fn paragraph(label: &str, text: &str, width: usize) -> String {
    let indent = letters(label);
    let mut out = String::new();
    for (index, line) in wrapped(text, width.saturating_sub(indent))
        .into_iter()
        .enumerate()
    {
        match index {
            0 => out.push_str(label),
            _ => out.push_str(&" ".repeat(indent)),
        }
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// At most this many lines, the last one with `…` if there were more.
pub fn cut_to_lines(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = wrapped(text, width);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            while letters(last) >= width && last.pop().is_some() {}
            let kept = last
                .trim_end_matches([' ', ',', ';', ':', '.', '(', '…'])
                .len();
            last.truncate(kept);
            last.push('…');
        }
    }
    lines
}

/// Fits a whole output to a terminal of `columns` columns.
///
/// Lines that are sentences and do not fit are broken between words, at most `width` characters
/// long. Tables and lines without words are kept.
pub fn fitted(text: &str, columns: usize, width: usize) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.split_inclusive('\n') {
        let (body, end) = match line.strip_suffix('\n') {
            Some(body) => (body, "\n"),
            None => (line, ""),
        };
        let start = body.trim_start();
        let indent = body.len() - start.len();
        let is_long = letters(body) > columns.min(width);
        if !is_long || !is_sentence(start) {
            out.push_str(line);
            continue;
        }
        let limit = columns.min(width).saturating_sub(indent);
        let lines = wrapped(start, limit);
        let space = " ".repeat(indent);
        let lines: Vec<String> = lines.iter().map(|line| format!("{space}{line}")).collect();
        out.push_str(&lines.join("\n"));
        out.push_str(end);
    }
    out
}

/// True if a line consists of words. Cells of a table are two spaces apart.
fn is_sentence(text: &str) -> bool {
    !text.contains("  ") && text.split(' ').count() >= WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_and_tables_are_not() {
        let sentence =
            "  Memory grows by 2.0 MiB per iteration since 5.44 s, by allocations in forward.";
        let table = "      1.0 MiB  26.0 MiB      52  50.0 %  Net.forward  losses.py with more words than fit\n";
        let text = format!("{sentence}\n{table}");
        let narrow = fitted(&text, 40, 110);
        let lines: Vec<&str> = narrow.lines().collect();
        let (sentences, rows): (Vec<&str>, Vec<&str>) =
            lines.iter().partition(|line| !line.contains("26.0"));
        assert_eq!(rows, [table.trim_end_matches('\n')], "{narrow}");
        assert_eq!(sentences.len(), 3, "{narrow}");
        for line in &sentences {
            assert!(
                line.chars().count() <= 40 && line.starts_with("  "),
                "{line:?}"
            );
        }
        let joined: Vec<&str> = sentences.iter().map(|line| line.trim()).collect();
        assert_eq!(joined.join(" "), sentence.trim());
        assert_eq!(fitted(&text, 200, 110), text, "nothing to break");
    }

    #[test]
    fn a_word_that_does_not_fit_stays_whole() {
        let path = "/a/very/long/path/of/a/trace/which/must/stay/in/one/piece.trace";
        let lines = wrapped(&format!("wrote {path} now"), 20);
        assert_eq!(lines, ["wrote", path, "now"]);
    }

    #[test]
    fn paragraphs_hang_below_their_first_word() {
        let text = paragraph("  1. ", "one two three four", 14);
        assert_eq!(text, "  1. one two\n     three\n     four\n");
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        assert_eq!(
            cut_to_lines("one two three, four", 8, 2),
            ["one two", "three…"]
        );
        assert_eq!(cut_to_lines("one two", 8, 2), ["one two"]);
        assert_eq!(cut_to_lines("abcdefgh ijk", 8, 1), ["abcdefg…"]);
        assert_eq!(cut_to_lines("abc… ijk", 4, 1), ["abc…"]);
    }
}
