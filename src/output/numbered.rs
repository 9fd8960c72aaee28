//! Numbered answer with labelled lines below it: a finding, or ranks that stand out.

use super::style::{self, Style, marked};
use super::wrap::paragraph;

/// Formats an answer. Lines without a text are left out.
pub fn numbered(
    number: usize,
    style: Style,
    text: &str,
    lines: &[(&str, Option<String>)],
) -> String {
    let mut all = styled(style, &format!("  {number}. "), text);
    for (label, text) in lines {
        let Some(text) = text else { continue };
        let head = format!("     {label:<7}");
        all.push_str(&match *label {
            "fix" => styled(Style::Good, &head, text),
            _ => paragraph(&head, text, style::line()),
        });
    }
    all
}

/// Label of the reason for a finding.
pub fn sureness(sure: bool) -> &'static str {
    if sure { "sure" } else { "likely" }
}

/// A paragraph with each line in a style.
fn styled(style: Style, label: &str, text: &str) -> String {
    let lines = paragraph(label, text, style::line());
    let lines = lines
        .lines()
        .map(|line| format!("{}\n", marked(style, line)));
    lines.collect()
}
