//! Flame graphs of memory: the bytes of each stack.

use std::collections::BTreeMap;
use std::fmt;

use inferno::flamegraph::{Options, from_lines};
use serde::Serialize;

use super::weights::{Weight, weights};
use crate::error::{Context, Result, failed};
use crate::ledger::{Focus, lost_peak};
use crate::loops::without_numbers;
use crate::output::answer::{Answer, Subject, lost_peak_in_words};
use crate::output::escape::is_unseen;
use crate::output::holder::no_stack;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, percent};
use crate::recording::{CallSite, Function, Names, Recording, calls};

/// What `gpushim flamegraph` draws.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlameReport {
    /// The recording and the memory that was examined.
    #[serde(flatten)]
    pub subject: Subject,
    /// Which bytes, in words.
    pub what: &'static str,
    /// All of them.
    pub bytes: u64,
    /// The most that was live in the whole run, bytes, if that was before the events that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_peak: Option<u64>,
    /// By function, those with most first.
    pub functions: Vec<Flame>,
    /// A line for each stack: its functions from the outermost on, joined by semicolons.
    pub stacks: BTreeMap<String, u64>,
}

/// The bytes of a function.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Flame {
    /// The function responsible; null where no stack was recorded.
    pub function: Option<Function>,
    /// Bytes.
    pub bytes: u64,
    /// The blocks were made before the recording began, and have no stack.
    pub made_before: bool,
}

impl FlameReport {
    /// Of a recording. Stacks have the frames of allocators, runtimes and interpreters only if `all_frames` says so.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        weight: Weight,
        all_frames: bool,
        names: &mut dyn Names,
    ) -> FlameReport {
        let mut stacks = BTreeMap::<String, u64>::new();
        let mut functions = BTreeMap::<(Option<Function>, bool), u64>::new();
        let mut all = 0_u64;
        for ((stack, made_before), bytes) in weights(recording, focus, weight) {
            all = all.saturating_add(bytes);
            let stack = names.stack(stack);
            let mut who = CallSite::new(&stack);
            if all_frames {
                who.frames = calls(&stack).map(Function::of).collect();
            }
            for sum in [
                stacks.entry(folded(&who, made_before)).or_default(),
                functions.entry((who.function, made_before)).or_default(),
            ] {
                *sum = sum.saturating_add(bytes);
            }
        }
        let mut functions: Vec<Flame> = functions
            .into_iter()
            .map(|((function, made_before), bytes)| Flame {
                function,
                bytes,
                made_before,
            })
            .collect();
        functions.sort_by_key(|flame| std::cmp::Reverse(flame.bytes));
        FlameReport {
            subject: Subject::of(recording, focus),
            what: match weight {
                Weight::Live | Weight::Peak if recording.is_one_moment() => {
                    "live when the snapshot was taken"
                }
                Weight::Live => "live at the end",
                Weight::Peak => "live at the peak",
                Weight::Total => "allocated in all",
                Weight::Temporary => "freed in the iteration or range of their allocation",
            },
            bytes: all,
            lost_peak: lost_peak(recording, focus, all).filter(|_| weight == Weight::Peak),
            functions,
            stacks,
        }
    }
}

/// A stack on one line, from the outermost on: its ranges and its functions. Numbers in the names of ranges
/// would tear apart what is the same.
fn folded(who: &CallSite, made_before: bool) -> String {
    let ranges = who.ranges.iter().rev();
    let ranges = ranges.map(|name| format!("[{}]", without_numbers(name)));
    let functions = who.frames.iter().rev();
    let functions = functions.map(|function| match function.place().as_str() {
        "" => function.name.clone(),
        place => format!("{} ({place})", function.name),
    });
    let labels: Vec<String> = ranges
        .chain(functions)
        .map(|label| label.replace(';', ":").replace(is_unseen, " "))
        .collect();
    if labels.is_empty() {
        return format!("({})", no_stack(made_before));
    }
    labels.join(";")
}

/// The stacks of several recordings as lines, each recording below a frame of its own.
pub fn folded_lines(reports: &[FlameReport]) -> Vec<String> {
    let mut lines = Vec::new();
    for report in reports {
        let name = report.subject.trace.replace(';', ":");
        let name = name.replace(is_unseen, " ");
        for (stack, bytes) in &report.stacks {
            lines.push(match reports.len() {
                1 => format!("{stack} {bytes}"),
                _ => format!("{name};{stack} {bytes}"),
            });
        }
    }
    lines
}

/// In the dark: the background, and the text upon it. Functions stay as they are.
const DARK: &str = "<style>@media (prefers-color-scheme:dark){#background stop{stop-color:#14181f}\
#title,#subtitle,#details,#search,#matched,#unzoom{fill:#e4e8ee}}</style>";

/// Draws recordings as one picture that can be zoomed and searched in a browser.
///
/// # Errors
/// There is nothing to draw.
pub fn flame_svg(reports: &[FlameReport]) -> Result<String> {
    let lines = folded_lines(reports);
    let Some(first) = reports.first().filter(|_| !lines.is_empty()) else {
        let what = reports.first().map_or("recorded", |report| report.what);
        return Err(failed!(
            "draw a flame graph: no bytes were {what}; choose others with --of"
        ));
    };
    let mut options = Options::default();
    options.title = format!("{}: bytes {}", first.subject.of, first.what);
    options.count_name = "bytes".to_string();
    options.deterministic = true;
    let names: Vec<&str> = reports
        .iter()
        .map(|one| one.subject.trace.as_str())
        .collect();
    options.subtitle = Some(crate::output::escape::shown(&names.join(", ")));
    let mut drawn = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut drawn)
        .context("draw a flame graph")?;
    let text = String::from_utf8(drawn).context("draw a flame graph")?;
    Ok(match text.rfind("</svg>") {
        Some(end) => format!("{}{DARK}</svg>\n", text.get(..end).unwrap_or_default()),
        None => text,
    })
}

impl Answer for FlameReport {
    const COMMAND: &'static str = "flamegraph";

    fn is_found(&self) -> bool {
        false
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        writeln!(f, "{} {}", bytes(self.bytes), self.what)?;
        if let Some(most) = self.lost_peak {
            writeln!(f, "{}", lost_peak_in_words(most))?;
        }
        let mut table = Table::new([
            ("bytes", Align::Right),
            ("", Align::Right),
            ("by", Align::Left),
        ]);
        for flame in self.functions.iter().take(top) {
            let function = match &flame.function {
                Some(function) => function.label(),
                None => no_stack(flame.made_before).to_string(),
            };
            table.row([
                bytes(flame.bytes),
                percent(flame.bytes as f64, self.bytes as f64),
                function,
            ]);
        }
        if !table.is_empty() {
            write!(f, "\n{table}")?;
        }
        writeln!(f, "\nTo draw it: --svg FILE; the stacks as lines: --folded")
    }
}

#[cfg(test)]
mod tests;
