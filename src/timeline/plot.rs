//! Plots of curves in characters.

use std::fmt;

use super::find::{Curve, Run};
use crate::output::escape::shown;
use crate::output::style;
use crate::output::units::{bytes, span};

/// Characters of a line before its columns: the axis.
const AXIS: usize = 12;

/// Columns where nothing is known of a terminal.
const COLUMNS: usize = 80;

/// Number of lines of a plot.
const LINES: u64 = 14;
/// Lines from one label of the axis to the next.
const LABEL_EACH: u64 = 4;

/// Legend of the plotted curves.
pub fn legend(handed_out: &Curve, held: Option<&Curve>) -> String {
    let mut text = format!("█ {}, ▓ at times", handed_out.name);
    if let Some(held) = held {
        text.push_str(&format!(", ░ {}", held.name));
    }
    text
}

/// Draws handed out memory, held memory behind it, and the phases of the run.
pub fn plot(
    run: &Run,
    handed_out: &Curve,
    held: Option<&Curve>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let top = handed_out.peak.max(held.map_or(0, |held| held.peak)).max(1);
    let columns = handed_out.columns.len();
    for line in (0..LINES).rev() {
        // Value that fills at least half of a character's height.
        let at = (u128::from(top) * u128::from(2 * line + 1) / u128::from(2 * LINES)) as u64;
        let label = if line == LINES - 1 {
            bytes(top)
        } else if line > 0 && line % LABEL_EACH == 0 {
            bytes((u128::from(top) * u128::from(line) / u128::from(LINES)) as u64)
        } else {
            String::new()
        };
        let cell = |column: usize| {
            let of = |curve: &Curve| curve.columns.get(column).copied().flatten();
            let (least, most) = of(handed_out).unwrap_or((0, 0));
            let (_, held) = held.and_then(of).unwrap_or((0, 0));
            match () {
                () if least > at => '█',
                () if most > at => '▓',
                () if held > at => '░',
                () => ' ',
            }
        };
        let cells: String = (0..columns).map(cell).collect();
        let text = format!("{label:>10} ┤{cells}");
        writeln!(f, "{}", text.trim_end())?;
    }
    writeln!(f, "{:>10} └{}", "0", "─".repeat(columns))?;
    writeln!(f, "{}", times(run.end_ns, columns).trim_end())?;
    for phase in &run.phases {
        let name: String = shown(&phase.name).chars().take(AXIS - 2).collect();
        let cells = phase.columns.iter().map(|part| match part {
            part if *part > 0.66 => '█',
            part if *part > 0.33 => '▒',
            part if *part > 0.0 => '░',
            _ => ' ',
        });
        let text = format!("{name:>10}  {}", cells.collect::<String>());
        writeln!(f, "{}", text.trim_end())?;
    }
    Ok(())
}

/// The times at the beginning, in the middle, as far as there is room, and at the end.
fn times(end_ns: u64, columns: usize) -> String {
    let mut text = vec![' '; AXIS + columns];
    let mut put = |label: &str, column: usize| {
        let from = (AXIS + column).saturating_sub(label.chars().count());
        for (at, letter) in (from..).zip(label.chars()) {
            if let Some(place) = text.get_mut(at) {
                *place = letter;
            }
        }
    };
    put("0 s", 3);
    if columns >= 40 {
        put(&span(end_ns / 2), columns / 2);
    }
    put(&span(end_ns), columns);
    text.into_iter().collect()
}

/// Columns of a plot: the given number, or the width of the terminal.
pub fn columns(asked: Option<u16>) -> usize {
    let asked = asked.map(usize::from);
    let width = asked.or_else(style::columns).unwrap_or(COLUMNS);
    width.saturating_sub(AXIS).max(10)
}
