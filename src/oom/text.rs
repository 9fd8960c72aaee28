//! Requests that could not be met, in words and figures.

use std::fmt;

use serde::Serialize;

use super::find::{Shortage, Why};
use crate::growth::Growth;
use crate::iterations::Iterations;
use crate::ledger::Focus;
use crate::output::escape::shown;
use crate::output::finding::{Finding, Holder, Subject};
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent, span};
use crate::recording::{CallSite, Names, Recording};

/// What `gpushim oom` finds.
#[derive(Clone, Debug, Serialize)]
pub struct OomReport {
    /// Of what.
    #[serde(flatten)]
    pub subject: Subject,
    /// The requests, the first ones.
    pub shortages: Vec<Told>,
}

/// A request that could not be met.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    /// The figures.
    #[serde(flatten)]
    pub shortage: Shortage,
    /// Why it did not fit.
    pub why: Why,
    /// In which iteration, from 0.
    pub iteration: Option<usize>,
    /// Who held the rest, those with most first.
    pub held_by: Vec<Holder>,
    /// All of it in sentences.
    pub verdict: String,
    /// What would have helped.
    pub advice: Vec<String>,
}

impl OomReport {
    /// Looks at a recording.
    pub fn of(recording: &dyn Recording, focus: Focus, names: &mut dyn Names) -> OomReport {
        let shortages = Shortage::all(recording, focus);
        let iterations = if shortages.is_empty() {
            None
        } else {
            Iterations::find(recording, focus)
        };
        let growth = iterations
            .as_ref()
            .map(|all| Growth::of(recording, focus, all));
        let grows = growth.filter(|growth| growth.grows);
        OomReport::new(
            Subject::of(recording, focus),
            shortages,
            iterations.as_ref(),
            grows.as_ref(),
            names,
        )
    }

    /// Of what was found, with the iterations, and how memory grows, if it does.
    pub fn new(
        subject: Subject,
        shortages: Vec<Shortage>,
        iterations: Option<&Iterations>,
        grows: Option<&Growth>,
        names: &mut dyn Names,
    ) -> OomReport {
        let told = shortages.into_iter().map(|shortage| {
            let asker = (shortage.stack != 0).then(|| CallSite::of(names, shortage.stack));
            let iteration = iterations.and_then(|all| all.of(shortage.ticket));
            let held_by = shortage
                .holders
                .iter()
                .map(|held| Holder::of(names, held, shortage.live));
            Told {
                why: shortage.why(),
                iteration,
                held_by: held_by.collect(),
                verdict: sentence(&shortage, asker.as_ref(), iteration),
                advice: advice(&shortage, grows),
                shortage,
            }
        });
        OomReport {
            subject,
            shortages: told.collect(),
        }
    }
}

fn sentence(shortage: &Shortage, asker: Option<&CallSite>, iteration: Option<usize>) -> String {
    let mut text = format!("Out of memory at {}", span(shortage.ns));
    if let Some(iteration) = iteration {
        text.push_str(&format!(", in iteration {iteration}"));
    }
    let who = match (asker, shortage.by_framework) {
        (Some(who), _) => who.in_a_sentence(),
        (None, true) => "the framework".to_string(),
        (None, false) => "the program".to_string(),
    };
    text.push_str(&format!(": {who} asked for {}", bytes(shortage.size)));
    if let Some(device) = shortage.device {
        text.push_str(&format!(" of gpu {device}"));
    }
    if let Some([free, total]) = shortage.device_free {
        text.push_str(&format!(
            ", of which {} of {} were free",
            bytes(free),
            bytes(total)
        ));
    }
    text.push('.');
    if let Some(held) = shortage.held {
        let whose = if shortage.by_framework {
            "The framework"
        } else {
            "The pool"
        };
        text.push_str(&format!(
            " {whose} held {}, {} of it handed out and {} cached",
            bytes(held.reserved),
            bytes(held.allocated),
            bytes(held.cached())
        ));
        if let Some(largest) = held.largest_free {
            text.push_str(&format!(", the largest free block {}", bytes(largest)));
        }
        text.push('.');
        if held.waiting > 0 {
            text.push_str(&format!(
                " {} were freed and wait for captures and graphs that may use them.",
                bytes(held.waiting)
            ));
        }
    }
    if let Some(others) = shortage.others().filter(|others| *others > 0) {
        text.push_str(&format!(
            " Other processes and the driver held {}.",
            bytes(others)
        ));
    }
    match shortage.why() {
        Why::Fragmented => text.push_str(
            " Free and cached memory together would have been enough, but it was in pieces.",
        ),
        Why::Short(short) => text.push_str(&format!(
            " All that was free or cached is {} less than was asked for.",
            bytes(short)
        )),
        Why::Unknown => {}
    }
    text
}

fn advice(shortage: &Shortage, grows: Option<&Growth>) -> Vec<String> {
    let mut advice = Vec::new();
    if shortage.why() == Why::Fragmented {
        advice.push(if shortage.by_framework {
            "GPUSHIM_TAKEOVER=torch serves PyTorch from a pool that maps free pages to where they are needed.".to_string()
        } else {
            "GPUSHIM_POLICY=vmm maps free pages to where they are needed.".to_string()
        });
    }
    if let Some(growth) = grows {
        advice.push(format!(
            "Memory grows by {} per iteration: see `gpushim growth`.",
            bytes(growth.per_iteration as u64)
        ));
    }
    if let Why::Short(short) = shortage.why() {
        advice.push(format!("The run needs {} less: who held most is below; `gpushim peak` and `gpushim phases` say more.", bytes(short)));
    }
    advice
}

impl Finding for OomReport {
    fn is_found(&self) -> bool {
        !self.shortages.is_empty()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        if self.shortages.is_empty() {
            return writeln!(f, "No request failed for lack of memory.");
        }
        for told in &self.shortages {
            writeln!(f, "{}", shown(&told.verdict))?;
            for advice in &told.advice {
                writeln!(f, "  {}", shown(advice))?;
            }
            let mut table = Table::new([
                ("held", Align::Right),
                ("", Align::Right),
                ("blocks", Align::Right),
                ("by", Align::Left),
            ]);
            for holder in told.held_by.iter().take(top) {
                table.row([
                    bytes(holder.bytes),
                    percent(holder.share, 1.0),
                    count(holder.blocks),
                    holder.who.function_or("no stack recorded"),
                ]);
            }
            if !table.is_empty() {
                write!(f, "\n{table}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
