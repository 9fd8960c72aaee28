//! Results in the format of JUnit, which CI servers show.

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use super::outcome::Status;
use super::output::Checked;
use crate::error::Result;

/// Formats all results as a document.
pub fn document(all: &[Checked]) -> Result<String> {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    xml.write_event(Event::Start(BytesStart::new("testsuites")))?;
    for checked in all {
        let number = |status| {
            let all = checked.checks.iter();
            all.filter(|outcome| outcome.status == status)
                .count()
                .to_string()
        };
        let (tests, failures, skipped) = (
            checked.checks.len().to_string(),
            number(Status::Failed),
            number(Status::Unknown),
        );
        let suite = BytesStart::new("testsuite").with_attributes([
            ("name", checked.trace.as_str()),
            ("tests", &tests),
            ("failures", &failures),
            ("skipped", &skipped),
        ]);
        xml.write_event(Event::Start(suite))?;
        for outcome in &checked.checks {
            let case = BytesStart::new("testcase")
                .with_attributes([("classname", "gpushim"), ("name", outcome.name.as_str())]);
            xml.write_event(Event::Start(case))?;
            // A reader takes a line feed in an attribute for a space.
            let text = outcome.text.replace('\n', " ");
            let message = [("message", text.as_str())];
            match outcome.status {
                Status::Passed => {
                    xml.write_event(Event::Start(BytesStart::new("system-out")))?;
                    xml.write_event(Event::Text(BytesText::new(&outcome.text)))?;
                    xml.write_event(Event::End(BytesEnd::new("system-out")))?;
                }
                Status::Failed => {
                    let failure = BytesStart::new("failure").with_attributes(message);
                    xml.write_event(Event::Empty(failure))?;
                }
                Status::Unknown => {
                    let skipped = BytesStart::new("skipped").with_attributes(message);
                    xml.write_event(Event::Empty(skipped))?;
                }
            }
            xml.write_event(Event::End(BytesEnd::new("testcase")))?;
        }
        xml.write_event(Event::End(BytesEnd::new("testsuite")))?;
    }
    xml.write_event(Event::End(BytesEnd::new("testsuites")))?;
    Ok(format!("{}\n", String::from_utf8_lossy(&xml.into_inner())))
}
