//! The report as one screen of plain, aligned text.

use std::fmt::{self, Result, Write};

use super::build::Report;
use super::figures::{SizeGroup, Summary};
use crate::cut::shortened;
use crate::output::answer::plural;
use crate::output::escape::{screen, shown};
use crate::output::style::{self, Style, marked};
use crate::output::units::{bytes, count, moment, percent, span};
use crate::output::wrap::paragraph;
use crate::recording::Gpu;

mod findings;
mod peak;

use peak::{held, memory};

/// Renders the whole screen.
pub(super) fn render(report: &Report) -> std::result::Result<String, std::fmt::Error> {
    let mut text = String::new();
    write_all(&visible(report), &mut text)?;
    Ok(screen(&text))
}

/// Returns the report with all text from files escaped for a terminal.
fn visible(report: &Report) -> Report {
    let mut report = report.clone();
    let show = |text: &mut String| *text = shown(text);
    show(&mut report.trace);
    report.problems.iter_mut().for_each(show);
    report.steady.iter_mut().for_each(show);
    report.end.by.iter_mut().for_each(show);
    for (key, value) in &mut report.facts {
        show(key);
        show(value);
    }
    for finding in &mut report.findings {
        show(&mut finding.text);
        show(&mut finding.why);
        show(&mut finding.next);
        finding.fix.iter_mut().for_each(show);
    }
    for untold in &mut report.untold {
        show(&mut untold.what);
        show(&mut untold.record);
    }
    report
}

fn write_all(report: &Report, f: &mut String) -> Result {
    process(report, f)?;
    findings::write(report, f)?;
    let several = report.peaks.len() > 1;
    report
        .peaks
        .iter()
        .try_for_each(|peak| held(peak, several, report.is_one_moment(), f))?;
    let summary = &report.summary;
    memory(report, f)?;
    allocations(summary, f)?;
    notes(report, f)?;
    next(report, f)
}

/// Returns all facts of a key.
fn facts<'a>(report: &'a Report, key: &'a str) -> impl Iterator<Item = &'a str> {
    let of_key = report.facts.iter().filter(move |(name, _)| name == key);
    of_key.map(|(_, value)| value.as_str())
}

fn process(report: &Report, f: &mut String) -> Result {
    let first = |key| facts(report, key).next();
    let fact = |key| first(key).filter(|value| !value.is_empty());
    writeln!(f, "trace      {}", report.trace)?;
    if let Some(program) = fact("argv") {
        f.push_str(&paragraph(
            "program    ",
            &shortened(program, 200),
            style::columns().unwrap_or(usize::MAX),
        ));
    }
    // Recordings of other tools have few facts about the process.
    let mut process = Vec::new();
    match (fact("pid"), fact("host")) {
        (Some(pid), Some(host)) => process.push(format!("{pid} on {host}")),
        (pid, host) => process.extend(pid.or(host).map(str::to_string)),
    }
    process.extend(fact("rank").map(|rank| format!("rank {rank}")));
    if report.started_wall_ns > 0 {
        process.push(format!("started {}", moment(report.started_wall_ns)));
    }
    if !report.is_one_moment() && report.has_times {
        let last = span(report.summary.last_ns);
        process.push(format!("last event after {last}"));
    }
    if !process.is_empty() {
        writeln!(f, "process    {}", process.join(", "))?;
    }
    if let Some(end) = report.end.in_words().filter(|_| !report.is_one_moment()) {
        writeln!(f, "ended      {end}")?;
    }
    for (key, value) in &report.facts {
        if let Some(ordinal) = Gpu::ordinal(key) {
            writeln!(f, "gpu {ordinal:<6} {}", gpu(value))?;
        }
    }
    let versions = [("driver.cuda", "CUDA "), ("driver", "")];
    let driver: Vec<_> = versions
        .iter()
        .filter_map(|(key, prefix)| Some(format!("{prefix}{}", first(key)?)))
        .collect();
    if !driver.is_empty() {
        writeln!(f, "driver     {}", driver.join(", "))?;
    }
    let settings: Vec<_> = [
        "GPUSHIM_POLICY",
        "GPUSHIM_REUSE",
        "GPUSHIM_LIMIT",
        "GPUSHIM_CACHE_MAX",
    ]
    .iter()
    .filter_map(|name| {
        let value = first(name).filter(|value| *value != "none")?;
        Some(format!(
            "{} {value}",
            name.trim_start_matches("GPUSHIM_")
                .to_lowercase()
                .replace('_', " ")
        ))
    })
    .collect();
    if !settings.is_empty() {
        writeln!(f, "settings   {}", settings.join(", "))?;
    }
    if report.is_one_moment() {
        writeln!(
            f,
            "events     none: a snapshot of one moment, without a history"
        )?;
        return damage(report, f);
    }
    let events = &report.summary.events;
    write!(f, "events     {} recorded", count(events.recorded))?;
    if events.readable != events.recorded {
        let unread = [
            (events.lost, "lost"),
            (events.torn, "half written when the process ended"),
        ];
        let unread = unread.iter().filter(|(number, _)| *number > 0);
        let unread: Vec<_> = unread
            .map(|(number, what)| format!("{} {what}", count(*number)))
            .collect();
        let readable = count(events.readable);
        write!(f, ", {readable} can be read: {}", unread.join(", "))?;
    }
    writeln!(f)?;
    fact("times").map_or(Ok(()), |times| writeln!(f, "times      {times}"))?;
    damage(report, f)
}

/// Number of damages that a report shows.
const DAMAGES: usize = 4;

/// Writes what cannot be read, before the findings.
fn damage(report: &Report, f: &mut String) -> Result {
    // The missing history is stated above.
    let is_told = |problem: &&String| report.is_one_moment() && problem.contains("no history");
    let all = report.problems.iter().filter(|one| !is_told(one));
    let mut lines: Vec<String> = all.clone().take(DAMAGES).cloned().collect();
    let rest = all.count().saturating_sub(DAMAGES);
    if rest > 0 {
        lines.push(format!("and {} more", count(rest as u64)));
    }
    for (index, line) in lines.iter().enumerate() {
        let label = match index {
            0 if report.is_damaged => "damage     ",
            0 => "missing    ",
            _ => "           ",
        };
        findings::paragraph(label, line, f)?;
    }
    Ok(())
}

/// Formats the fact of a GPU with readable bytes.
fn gpu(fact: &str) -> String {
    Gpu::parse(fact).map_or_else(
        || fact.to_string(),
        |gpu| format!("{}, {}", gpu.name, bytes(gpu.bytes)),
    )
}

fn allocations(summary: &Summary, f: &mut String) -> Result {
    if summary.classes.is_empty() {
        return writeln!(f, "\nNo allocations.");
    }
    let heading = format!(
        "{:<18} {:>12} {:>12} {:>12} {:>18}",
        "Allocations", "count", "freed", "bytes", "live at the end"
    );
    writeln!(f, "\n{}", marked(Style::Heading, &heading))?;
    for class in &summary.classes {
        let live = format!("{} ({})", bytes(class.live_bytes), count(class.live));
        let (made, freed, sum) = (
            count(class.allocations),
            count(class.frees),
            bytes(class.bytes),
        );
        writeln!(
            f,
            "  {:<16} {made:>12} {freed:>12} {sum:>12} {live:>18}",
            class.class
        )?;
    }
    let sources = &summary.sources;
    let total = sources.total();
    // Without the pool, all come from the driver.
    if total > sources.forwarded {
        let each = [
            (sources.hit, "from its cache"),
            (
                sources.ordered,
                "from its cache, ordered after work on the device",
            ),
            (sources.waited, "from its cache, after a wait of the host"),
            (sources.grown, "by new memory of the driver"),
            (sources.forwarded, "by the driver alone"),
        ];
        let each = each.iter().filter(|(number, _)| *number > 0);
        let each: Vec<_> = each
            .map(|(number, what)| {
                let share = percent(*number as f64, total as f64);
                format!("{} ({share}) {what}", count(*number))
            })
            .collect();
        let (taken, freed) = (
            span(summary.allocation_driver_ns),
            span(summary.free_driver_ns),
        );
        findings::paragraph("  gpushim's pool served ", &each.join(", "), f)?;
        writeln!(
            f,
            "  the driver took {taken} for allocations, {freed} for frees"
        )?;
    }
    Ok(())
}

fn notes(report: &Report, f: &mut String) -> Result {
    let summary = &report.summary;
    let mut notes = Vec::new();
    let events = &summary.events;
    if events.wrapped {
        let older = match summary.older {
            Some(SizeGroup { count: 0, .. }) => String::new(),
            Some(older) => format!(
                ", and of {} live at the end ({})",
                plural(older.count, "older block"),
                bytes(older.bytes)
            ),
            None => ", and blocks that lived through all of it are not seen".to_string(),
        };
        notes.push(format!(
            "the ring has wrapped: figures are of the last {} (from {} on){}; a larger GPUSHIM_TRACE_SIZE or \
             GPUSHIM_TRACE_MODE=full keeps more",
            span(summary.last_ns.saturating_sub(summary.first_ns)),
            span(summary.first_ns),
            older
        ));
    } else if events.lost + events.torn > 0 {
        notes.push(format!(
            "figures may be off by the {} that cannot be read",
            plural(events.lost + events.torn, "event")
        ));
    }
    notes.extend(facts(report, "problem").map(|problem| format!("at run time: {problem}")));
    notes.extend(facts(report, "deepbind").map(|library| {
        format!(
            "{library} was loaded with RTLD_DEEPBIND: calls from within it may not be in the trace"
        )
    }));
    for (number, what) in [
        (
            summary.contexts_gone,
            "contexts were destroyed or reset, with their memory",
        ),
        (summary.captures, "stream captures"),
        (
            summary.exported,
            "blocks left the process (IPC, DMA-BUF, shareable handles)",
        ),
        (summary.failed, "calls failed for other reasons than memory"),
        (
            summary.unknown,
            "events are of a kind that this version does not know",
        ),
    ] {
        if number > 0 {
            notes.push(format!("{} {what}", count(number)));
        }
    }
    if summary.trimmed_bytes > 0 {
        notes.push(format!(
            "the cache gave {} back to the driver",
            bytes(summary.trimmed_bytes)
        ));
    }
    if summary.ambiguous_bytes > 0 {
        let lost = bytes(summary.ambiguous_bytes);
        notes.push(format!(
            "{lost} of destroyed contexts are in the sums but missing in the lists"
        ));
    }
    if notes.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{}", marked(Style::Heading, "Notes"))?;
    notes.iter().try_for_each(|note| writeln!(f, "  {note}"))
}

/// Writes the command with more details, if no finding names one.
fn next(report: &Report, f: &mut String) -> Result {
    if !report.findings.is_empty() || report.is_damaged {
        return Ok(());
    }
    let what = if report.peaks.is_empty() {
        "events"
    } else {
        "peak"
    };
    writeln!(f, "\nNext: gpushim {what} {}", report.trace)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render(self)?)
    }
}
