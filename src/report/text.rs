//! The report as one screen of plain, aligned text.

use std::fmt::{Result, Write};

use super::Report;
use super::units::{bytes, count, moment, percent, span};
use crate::analysis::{DeviceFigures, Gauge, OutOfMemory, SizeGroup, Summary, TensorFigures};

/// How many lines of a list are shown.
const LINES: usize = 5;

/// The whole screen. Control characters in what the file says do not reach the terminal.
pub(super) fn render(report: &Report) -> std::result::Result<String, std::fmt::Error> {
    let mut text = String::new();
    write_all(report, &mut text)?;
    let shown = |letter: char| {
        if letter.is_control() && letter != '\n' {
            '\u{fffd}'
        } else {
            letter
        }
    };
    Ok(text.chars().map(shown).collect())
}

fn write_all(report: &Report, f: &mut String) -> Result {
    process(report, f)?;
    let summary = &report.summary;
    for device in &summary.devices {
        memory(device, summary.devices.len() > 1, f)?;
    }
    allocations(summary, f)?;
    out_of_memory(summary, f)?;
    notes(report, f)?;
    next(report, f)
}

fn process(report: &Report, f: &mut String) -> Result {
    let fact = |key| {
        report
            .fact(key)
            .filter(|value| !value.is_empty())
            .unwrap_or("unknown")
    };
    writeln!(f, "trace      {}", report.trace)?;
    writeln!(f, "program    {}", shortened(fact("argv"), 200))?;
    write!(f, "process    {} on {}", fact("pid"), fact("host"))?;
    if let Some(rank) = report.fact("rank") {
        write!(f, ", rank {rank}")?;
    }
    let last = span(report.summary.last_ns);
    writeln!(
        f,
        ", started {}, last event after {last}",
        moment(report.started_wall_ns)
    )?;
    for (key, value) in &report.facts {
        if let Some(ordinal) = key.strip_prefix("gpu.") {
            writeln!(f, "gpu {ordinal:<6} {}", gpu(value))?;
        }
    }
    let versions = [("driver.cuda", "CUDA "), ("driver", "")];
    let driver: Vec<_> = versions
        .iter()
        .filter_map(|(key, prefix)| Some(format!("{prefix}{}", report.fact(key)?)))
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
        let value = report.fact(name).filter(|value| *value != "none")?;
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
    let events = &report.summary.events;
    write!(f, "events     {} recorded", count(events.recorded))?;
    if events.readable != events.recorded {
        let (readable, lost, torn) = (
            count(events.readable),
            count(events.lost),
            count(events.torn),
        );
        write!(f, ", {readable} readable, {lost} lost, {torn} torn")?;
    }
    writeln!(f)
}

/// `NAME, N bytes` with the bytes as people read them.
fn gpu(value: &str) -> String {
    let parsed = value.strip_suffix(" bytes").and_then(|value| {
        let (name, number) = value.rsplit_once(", ")?;
        Some(format!("{name}, {}", bytes(number.parse().ok()?)))
    });
    parsed.unwrap_or_else(|| value.to_string())
}

fn memory(device: &DeviceFigures, several: bool, f: &mut String) -> Result {
    let title = match device.device {
        Some(ordinal) if several => format!("Memory of device {ordinal}"),
        None if several => "Memory of no known device".to_string(),
        _ => "Memory".to_string(),
    };
    writeln!(
        f,
        "\n{title:<26} {:>12} {:>12} {:>12}",
        "peak", "at", "at the end"
    )?;
    let mut line = |name: &str, gauge: &Gauge| {
        let at = gauge.peak_ns.map_or("-".to_string(), span);
        writeln!(
            f,
            "  {name:<24} {:>12} {at:>12} {:>12}",
            bytes(gauge.peak),
            bytes(gauge.end)
        )
    };
    line("requested", &device.requested)?;
    line("allocated", &device.allocated)?;
    line("reserved", &device.reserved)?;
    if let Some(utilization) = device.utilization {
        let share = percent(utilization, 1.0);
        writeln!(
            f,
            "  {:<24} {share:>12}   peak requested / peak reserved",
            "utilization"
        )?;
    }
    if let Some(tensors) = &device.tensors {
        framework(tensors, device, f)?;
    }
    if let Some(tensors) = &device.tensors {
        groups(
            "Largest tensors at their peak",
            &tensors.top_at_peak,
            tensors.tensors.peak,
            f,
        )?;
        groups(
            "Largest tensors at the end",
            &tensors.top_at_end,
            tensors.tensors.end,
            f,
        )?;
    } else {
        groups(
            "Largest blocks at the peak",
            &device.top_at_peak,
            device.requested.peak,
            f,
        )?;
        groups(
            "Largest blocks at the end",
            &device.top_at_end,
            device.requested.end,
            f,
        )?;
    }
    Ok(())
}

/// The framework's layer and how it relates to the driver's.
fn framework(tensors: &TensorFigures, device: &DeviceFigures, f: &mut String) -> Result {
    let at = tensors.tensors.peak_ns.map_or("-".to_string(), span);
    let mut line = |name: &str, peak: u64, at: &str, end: u64| {
        writeln!(
            f,
            "  {name:<24} {:>12} {at:>12} {:>12}",
            bytes(peak),
            bytes(end)
        )
    };
    line("tensors", tensors.tensors.peak, &at, tensors.tensors.end)?;
    line(
        "framework allocated",
        tensors.allocated_peak,
        "",
        tensors.allocated_end,
    )?;
    line(
        "framework reserved",
        tensors.reserved_peak,
        "",
        tensors.reserved_end,
    )?;
    let steps = [
        ("tensors", tensors.tensors.peak),
        ("framework allocated", tensors.allocated_peak),
        ("framework reserved", tensors.reserved_peak),
        ("reserved from the driver", device.reserved.peak),
    ];
    write!(f, "  peaks: {} {}", steps[0].0, bytes(steps[0].1))?;
    for pair in steps.windows(2) {
        let sign = match pair[0].1.cmp(&pair[1].1) {
            std::cmp::Ordering::Less => "<",
            std::cmp::Ordering::Equal => "=",
            std::cmp::Ordering::Greater => ">",
        };
        write!(f, " {sign} {} {}", pair[1].0, bytes(pair[1].1))?;
    }
    writeln!(f)
}

fn groups(title: &str, groups: &[SizeGroup], whole: u64, f: &mut String) -> Result {
    if groups.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "\n{title:<30} {:>12} {:>8} {:>12}",
        "each", "count", "together"
    )?;
    for group in groups.iter().take(LINES) {
        let share = percent(group.bytes as f64, whole as f64);
        let (each, together) = (bytes(group.size), bytes(group.bytes));
        writeln!(
            f,
            "{:30} {each:>12} {:>8} {together:>12} {share:>8}",
            "",
            count(group.count)
        )?;
    }
    Ok(())
}

fn allocations(summary: &Summary, f: &mut String) -> Result {
    if summary.classes.is_empty() {
        return writeln!(f, "\nNo allocations.");
    }
    writeln!(
        f,
        "\n{:<18} {:>12} {:>12} {:>12} {:>18}",
        "Allocations", "count", "freed", "bytes", "live at the end"
    )?;
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
    if total > 0 {
        write!(f, "Served from")?;
        let mut separator = "  ";
        for (name, number) in [
            ("hit", sources.hit),
            ("ordered", sources.ordered),
            ("waited", sources.waited),
            ("grown", sources.grown),
            ("forwarded", sources.forwarded),
        ] {
            if number > 0 {
                write!(
                    f,
                    "{separator}{name} {} ({})",
                    count(number),
                    percent(number as f64, total as f64)
                )?;
                separator = ", ";
            }
        }
        writeln!(f)?;
        if let Some(rate) = sources.hit_rate() {
            writeln!(f, "Hit rate     {}", percent(rate, 1.0))?;
        }
        let (taken, freed) = (
            span(summary.allocation_driver_ns),
            span(summary.free_driver_ns),
        );
        writeln!(
            f,
            "In the driver  {taken} for allocations, {freed} for frees"
        )?;
    }
    Ok(())
}

fn out_of_memory(summary: &Summary, f: &mut String) -> Result {
    if summary.out_of_memory_count == 0 {
        return Ok(());
    }
    writeln!(f, "\nOut of memory: {}", count(summary.out_of_memory_count))?;
    for event in summary.out_of_memory.iter().take(LINES) {
        let OutOfMemory {
            ns,
            device,
            by,
            size,
            state: [first, second],
        } = event;
        let place = device.map_or(String::new(), |device| format!(" on device {device}"));
        let state = match *by {
            "framework" => format!(
                "framework allocated {}, reserved {}",
                bytes(*first),
                bytes(*second)
            ),
            _ => format!("{} of {} free", bytes(*first), bytes(*second)),
        };
        writeln!(
            f,
            "  after {}{place}: the {by} was asked for {}; {state}",
            span(*ns),
            bytes(*size)
        )?;
    }
    Ok(())
}

fn notes(report: &Report, f: &mut String) -> Result {
    let summary = &report.summary;
    let mut notes = Vec::new();
    let events = &summary.events;
    if events.wrapped {
        notes.push(format!(
            "the ring has wrapped: figures are of the last {} (from {} on), and blocks that lived through all of it \
             are not seen; a larger GPUSHIM_TRACE_SIZE keeps more",
            span(summary.last_ns.saturating_sub(summary.first_ns)),
            span(summary.first_ns)
        ));
    } else if events.lost + events.torn > 0 {
        notes.push(format!(
            "{} events are lost and {} torn: figures may be off by those",
            count(events.lost),
            count(events.torn)
        ));
    }
    notes.extend(
        report
            .problems
            .iter()
            .map(|problem| format!("damage: {problem}")),
    );
    notes.extend(
        report
            .facts_of("problem")
            .map(|problem| format!("at run time: {problem}")),
    );
    notes.extend(report.facts_of("deepbind").map(|library| {
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
        (
            summary.imported,
            "blocks of other processes or APIs were opened; they are counted there",
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
            "{lost} of destroyed contexts are in the sums but not told apart in the lists"
        ));
    }
    if notes.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nNotes")?;
    notes.iter().try_for_each(|note| writeln!(f, "  {note}"))
}

fn next(report: &Report, f: &mut String) -> Result {
    let oom = match report
        .summary
        .out_of_memory
        .iter()
        .map(|event| event.by)
        .max()
    {
        // "framework" comes after "driver".
        Some("framework") => " --kind tensor-out-of-memory",
        Some(_) => " --kind out-of-memory",
        None => "",
    };
    writeln!(f, "\nNext: gpushim events{oom} {}", report.trace)
}

fn shortened(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}
