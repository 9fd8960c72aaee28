//! Findings at the top of a report.

use std::fmt::{Result, Write};

use crate::output::answer::DAMAGED;
use crate::output::escape::shown;
use crate::output::numbered::{numbered, sureness};
use crate::output::style::{self, Style, marked};
use crate::output::units::count;
use crate::output::wrap::paragraph as wrapped;
use crate::recording::CallSite;
use crate::report::build::Report;
use crate::report::findings::{Finding, SHOWN};

/// Writes the first findings, or that there are none, and then the open questions.
pub fn write(report: &Report, f: &mut String) -> Result {
    if report.findings.is_empty() {
        none(report, f)?;
    } else {
        writeln!(f, "\n{}", marked(Style::Heading, "Findings"))?;
    }
    let shown = report.findings.iter().take(SHOWN).enumerate();
    for (index, finding) in shown {
        f.write_str(&one(index + 1, finding))?;
    }
    let rest = report.findings.get(SHOWN..).unwrap_or_default();
    if !rest.is_empty() {
        let kinds: Vec<_> = rest.iter().map(|one| one.next.as_str()).collect();
        paragraph(
            "  ",
            &format!(
                "and {} more: {}",
                count(rest.len() as u64),
                kinds.join("; ")
            ),
            f,
        )?;
    }
    if !report.untold.is_empty() {
        writeln!(
            f,
            "\n{}",
            marked(Style::Heading, "Not told by this recording")
        )?;
    }
    for untold in &report.untold {
        paragraph("  - ", &untold.what, f)?;
        paragraph("    next time: ", &untold.record, f)?;
    }
    Ok(())
}

/// Writes that there are no findings, and lists the searched kinds.
fn none(report: &Report, f: &mut String) -> Result {
    let mut text = match report.unread.filter(|_| !report.is_one_moment()) {
        _ if report.is_damaged => format!("not complete: {DAMAGED}. None in the rest."),
        None => "none.".to_string(),
        Some(_) => "none in what can be read of it.".to_string(),
    };
    if let Some(steady) = &report.steady {
        text.push(' ');
        text.push_str(steady);
    }
    text.push_str(match report.is_one_moment() {
        true => " Looked for: fragmentation, memory that is reserved and unused.",
        false => {
            " Looked for: out of memory, growth, leaks, lasting drops, fragmentation, memory that is reserved and \
             unused."
        }
    });
    writeln!(f)?;
    paragraph("Findings   ", &text, f)
}

fn one(number: usize, finding: &Finding) -> String {
    let style = match finding.kind.is_fault() && finding.sure {
        true => Style::Bad,
        false => Style::Warn,
    };
    let place = finding.site.as_ref().and_then(CallSite::with_caller);
    let owner = finding.kept_by.as_ref();
    let lines = [
        ("where", place.map(|place| shown(&place))),
        ("kept", owner.map(|owner| format!("by {}", shown(owner)))),
        (sureness(finding.sure), Some(finding.why.clone())),
        ("fix", finding.fix.clone()),
        ("more", Some(finding.next.clone())),
    ];
    numbered(number, style, &finding.text, &lines)
}

/// Writes a text after a label. The following lines are aligned with the text of the first one.
pub(super) fn paragraph(label: &str, text: &str, f: &mut String) -> Result {
    f.write_str(&wrapped(label, text, style::line()))
}
