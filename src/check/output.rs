//! Formats the results of a check as text, and as annotations of GitHub.

use std::fmt::Write as _;

use serde::Serialize;

use super::outcome::{Outcome, Status};
use crate::output::escape::shown;
use crate::output::style::{Style, marked};

/// The results of one recording.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checked {
    /// Path of the recording.
    pub trace: String,
    /// One for each thing that was checked.
    pub checks: Vec<Outcome>,
}

impl Checked {
    /// True if the result of a rule is unknown.
    pub fn is_open(&self) -> bool {
        self.checks.iter().any(|one| one.status == Status::Unknown)
    }

    /// True if at least one rule fails.
    pub fn fails(&self) -> bool {
        self.checks.iter().any(|one| one.status == Status::Failed)
    }
}

/// Formats one line for each result.
pub fn text(all: &[Checked]) -> String {
    let mut text = String::new();
    for checked in all {
        text.push_str(&shown(&checked.trace));
        text.push('\n');
        for outcome in &checked.checks {
            let (word, style) = match outcome.status {
                Status::Passed => ("ok", Style::Good),
                Status::Failed => ("FAIL", Style::Bad),
                Status::Unknown => ("?", Style::Warn),
            };
            let word = marked(style, &format!("{word:<5}"));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "  {word} {}: {}",
                shown(&outcome.name),
                shown(&outcome.text)
            );
        }
    }
    text
}

/// Formats workflow commands of GitHub: an error for each failed rule, and a notice for each
/// unknown result. <https://docs.github.com/actions/reference/workflow-commands-for-github-actions>
pub fn github(all: &[Checked]) -> String {
    let mut text = String::new();
    for checked in all {
        for outcome in &checked.checks {
            let line = format!("{}: {}", checked.trace, outcome.text);
            let (title, line) = (property(&outcome.name), data(&line));
            let _ = match outcome.status {
                Status::Passed => writeln!(text, "ok: {}: {}", shown(&outcome.name), shown(&line)),
                Status::Failed => writeln!(text, "::error title=gpushim {title}::{line}"),
                Status::Unknown => writeln!(text, "::notice title=gpushim {title}::{line}"),
            };
        }
    }
    text
}

/// Escapes a text after `::` into one line.
fn data(text: &str) -> String {
    shown(text).replace('%', "%25")
}

/// Escapes the value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::junit;
    use super::*;

    fn checked() -> Vec<Checked> {
        let outcome = |status, name: &str, text: &str| Outcome {
            name: name.to_string(),
            status,
            text: text.to_string(),
            measured: None,
            allowed: None,
        };
        vec![Checked {
            trace: "a.trace".to_string(),
            checks: vec![
                outcome(Status::Passed, "peak of tensors", "1.0 GiB"),
                outcome(
                    Status::Failed,
                    "growth: x, y",
                    "100 % <by> \"f\"\n::warning::",
                ),
                outcome(Status::Unknown, "leaks", "not told"),
            ],
        }]
    }

    #[test]
    fn as_text() {
        insta::assert_snapshot!(text(&checked()), @r#"
        a.trace
          ok    peak of tensors: 1.0 GiB
          FAIL  growth: x, y: 100 % <by> "f"\n::warning::
          ?     leaks: not told
        "#);
    }

    #[test]
    fn as_annotations() {
        // No name begins a line.
        insta::assert_snapshot!(github(&checked()), @r#"
        ok: peak of tensors: a.trace: 1.0 GiB
        ::error title=gpushim growth%3A x%2C y::a.trace: 100 %25 <by> "f"\n::warning::
        ::notice title=gpushim leaks::a.trace: not told
        "#);
    }

    #[test]
    fn as_junit() {
        insta::assert_snapshot!(junit::document(&checked()).unwrap(), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites>
          <testsuite name="a.trace" tests="3" failures="1" skipped="1">
            <testcase classname="gpushim" name="peak of tensors">
              <system-out>1.0 GiB</system-out>
            </testcase>
            <testcase classname="gpushim" name="growth: x, y">
              <failure message="100 % &lt;by&gt; &quot;f&quot; ::warning::"/>
            </testcase>
            <testcase classname="gpushim" name="leaks">
              <skipped message="not told"/>
            </testcase>
          </testsuite>
        </testsuites>
        "#);
    }
}
