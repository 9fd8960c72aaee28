//! Curves as a picture of its own: SVG, without scripts, in light and dark.

use std::fmt::{self, Write};

use super::find::Curve;
use super::plot::Plot;
use super::text::{TimelineReport, drawn, title};
use crate::output::escape::shown;
use crate::output::units::{bytes, span};

/// Points of the picture: its width, and of a plot what is left of it, its width and height.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 84.0;
const PLOT: f64 = WIDTH - LEFT - 24.0;
/// Points of the height of a plot for each line that it would have in characters.
const HEIGHT: f64 = 15.7;
/// Points of a line of text.
pub(crate) const LINE: f64 = 18.0;
/// Parts of each axis.
const TICKS: u64 = 4;

const STYLE: &str = "\
svg{background:#fff;color:#1c2430;font:12px system-ui,sans-serif}\
text{fill:currentColor}.grid{stroke:currentColor;stroke-opacity:.15}\
.dim{fill-opacity:.7}.band{fill:#2a6fdb;fill-opacity:.35}.low{fill:#2a6fdb}.held{fill:#8a94a6;fill-opacity:.35}\
.phase{fill:#b4690e}\
@media (prefers-color-scheme:dark){svg{background:#14181f;color:#e4e8ee}\
.band{fill:#6ea8fe;fill-opacity:.4}.low{fill:#6ea8fe}.held{fill:#9aa4b5;fill-opacity:.3}.phase{fill:#e8a34c}}";

/// Writes recordings as one picture, one device below the other.
///
/// # Errors
/// Those of the formatter.
pub fn write_svg(reports: &[TimelineReport], out: &mut dyn Write) -> fmt::Result {
    let mut body = String::new();
    let mut at = 12.0;
    let mut told = Vec::new();
    for report in reports {
        at += LINE;
        writeln!(
            body,
            "<text x=\"12\" y=\"{at}\" font-weight=\"600\">{}</text>",
            escaped(&report.trace)
        )?;
        if !report.run.is_complete {
            at += LINE;
            writeln!(
                body,
                "<text class=\"dim\" x=\"12\" y=\"{at}\">The timeline has gaps: events were missed, or the file is \
                 cut off.</text>"
            )?;
        }
        for device in &report.run.devices {
            if let Some((handed_out, held)) = drawn(device) {
                let plot = Plot::of(&report.run, handed_out, held);
                panel(&title(device), &plot, &mut at, &mut body)?;
                told.push(format!(
                    "{}: at most {} {}",
                    title(device),
                    bytes(handed_out.peak),
                    handed_out.name
                ));
            }
        }
    }
    let names: Vec<&str> = reports.iter().map(|one| &*one.trace).collect();
    document(
        &format!("Memory over time: {}", names.join(", ")),
        &told,
        at,
        &body,
        out,
    )
}

/// A picture of its own, so high: what it shows, and that in words.
pub(crate) fn document(
    title: &str,
    told: &[String],
    height: f64,
    body: &str,
    out: &mut dyn Write,
) -> fmt::Result {
    let at = height + 12.0;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {at}\" width=\"{WIDTH}\" height=\"{at}\" \
         role=\"img\" aria-labelledby=\"title desc\">\n<title id=\"title\">{}</title>\n\
         <desc id=\"desc\">{}.</desc>\n<style>{STYLE}</style>\n{body}</svg>",
        escaped(title),
        if told.is_empty() {
            "No memory was used".to_string()
        } else {
            escaped(&told.join("; "))
        }
    )
}

/// One plot under a heading, below what ends at `at`.
pub(crate) fn panel(heading: &str, plot: &Plot<'_>, at: &mut f64, out: &mut String) -> fmt::Result {
    let (handed_out, held) = (plot.handed_out, plot.held);
    let height = HEIGHT * plot.lines as f64;
    *at += LINE * 1.5;
    let what = held.map_or(String::new(), |held| {
        format!(" of {} {}", bytes(held.peak), held.name)
    });
    writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{at}\">{}: {} {} at most{what}</text>",
        escaped(heading),
        bytes(handed_out.peak),
        handed_out.name
    )?;
    let top = *at + LINE / 2.0;
    let most = plot.top;
    for tick in 0..=TICKS {
        let part = tick as f64 / TICKS as f64;
        let (x, y) = (LEFT + PLOT * part, top + height * (1.0 - part));
        // The last would stand out of the picture.
        let anchor = if tick == TICKS { "end" } else { "middle" };
        let (of_bytes, of_time) = (
            bytes((most as f64 * part) as u64),
            span((plot.end_ns as f64 * part) as u64),
        );
        writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"dim\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{of_bytes}</text>\
             <text class=\"dim\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{of_time}</text>",
            LEFT + PLOT,
            LEFT - 6.0,
            y + 4.0,
            top + height + LINE
        )?;
    }
    let scale = |value: u64| top + height * (1.0 - value as f64 / most as f64);
    if let Some(held) = held {
        area("held", held, |(_, most)| most, scale, top + height, out)?;
    }
    area(
        "band",
        handed_out,
        |(_, most)| most,
        scale,
        top + height,
        out,
    )?;
    area(
        "low",
        handed_out,
        |(least, _)| least,
        scale,
        top + height,
        out,
    )?;
    *at = top + height + LINE;
    for phase in plot.phases {
        *at += LINE;
        let name: String = shown(&phase.name).chars().take(12).collect();
        write!(
            out,
            "<g><title>{}, {}</title><text x=\"{}\" y=\"{at}\" text-anchor=\"end\">{}</text>",
            escaped(&phase.name),
            span(phase.ns),
            LEFT - 6.0,
            escaped(&name)
        )?;
        let width = PLOT / phase.columns.len().max(1) as f64;
        for (index, part) in phase
            .columns
            .iter()
            .enumerate()
            .filter(|(_, part)| **part > 0.0)
        {
            write!(
                out,
                "<rect class=\"phase\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"10\" \
                 fill-opacity=\"{:.2}\"/>",
                LEFT + width * index as f64,
                *at - 9.0,
                part.max(0.15)
            )?;
        }
        writeln!(out, "</g>")?;
    }
    Ok(())
}

/// What is below a curve, in steps.
fn area(
    class: &str,
    curve: &Curve,
    of: impl Fn((u64, u64)) -> u64,
    scale: impl Fn(u64) -> f64,
    bottom: f64,
    out: &mut String,
) -> fmt::Result {
    let width = PLOT / curve.columns.len().max(1) as f64;
    let which = match class {
        "low" => "least in each stretch of time",
        _ => "most in each stretch of time",
    };
    write!(out, "<path class=\"{class}\" d=\"M{LEFT} {bottom:.1}")?;
    for (index, column) in curve.columns.iter().enumerate() {
        let x = LEFT + width * index as f64;
        let y = column.map_or(bottom, |column| scale(of(column)));
        write!(out, "L{x:.1} {y:.1}H{:.1}", x + width)?;
    }
    writeln!(
        out,
        "L{:.1} {bottom:.1}Z\"><title>{}, {which}: at most {}</title></path>",
        LEFT + PLOT,
        curve.name,
        bytes(curve.peak)
    )
}

/// Text that is safe in XML; what no XML may have was replaced before.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in shown(text).chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}
