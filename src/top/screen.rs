//! The screen and the keys of `gpushim top`.

use std::cmp::Reverse;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{StyledContent, Stylize};

use super::table::{Row, curve, shared_limits, table};
use crate::device_memory;
use crate::output::escape::shown;
use crate::output::units::{bytes, count, percent};
use crate::shared_limit::SharedLimit;

/// Fewest lines of the list of holders below the processes.
const HOLDERS: usize = 10;
/// Fewest lines of the processes, and of the list of holders below a curve.
const FEWEST: usize = 3;
/// Lines of the screen for each line of a curve.
const CURVE: usize = 4;

/// Columns that are left out where there is no room, in this order.
const LEAST_FIRST: [&str; 6] = ["allocs/s", "peak", "history", "reserved", "OOM", "gpu"];

/// A line of the screen and its look; it may have marks of [`style`](crate::output::style).
pub type Line = StyledContent<String>;

/// A column to sort by, and its value.
type Order = (&'static str, fn(&Row) -> i64);

/// The orders of the processes, the highest value first.
const ORDERS: [Order; 4] = [
    ("as they were found", |_| 0),
    ("allocated", |row| row.allocated.cast_signed()),
    ("growth/min", |row| {
        row.growth_per_minute.unwrap_or(i64::MIN)
    }),
    ("allocs/s", |row| row.rate as i64),
];

/// Keys of the screen, each with its effect.
const KEYS: [&str; 7] = [
    "↑ ↓ Home End  choose a process",
    "Enter         what holds its memory, on the whole screen; again: all processes",
    "s             sort: as they were found, by allocated, by growth/min, by allocs/s",
    "h ?           this help",
    "Esc           back, or end",
    "q Ctrl-C      end",
    "growth/min is the change of what stays allocated; history is allocated over time",
];

/// The processes, and which of them is chosen.
pub struct Screen {
    rows: Vec<Row>,
    chosen: usize,
    /// True if the chosen process has the whole screen.
    is_open: bool,
    /// True if the keys are shown.
    is_help: bool,
    /// The index of the order in [`ORDERS`].
    order: usize,
}

impl Screen {
    /// With these processes, the first one chosen.
    pub fn new(rows: Vec<Row>) -> Screen {
        Screen {
            rows,
            chosen: 0,
            is_open: false,
            is_help: false,
            order: 0,
        }
    }

    /// Sets the processes, and sorts them; the same one stays chosen.
    pub fn update(&mut self, mut rows: Vec<Row>) {
        if let Some((_, value)) = ORDERS.get(self.order) {
            rows.sort_by_key(|row| Reverse(value(row)));
        }
        let chosen = self.rows.get(self.chosen).map(|row| &row.trace);
        let place = rows.iter().position(|row| Some(&row.trace) == chosen);
        let last = rows.len().saturating_sub(1);
        self.chosen = place.unwrap_or(self.chosen).min(last);
        self.rows = rows;
    }

    /// A key was pressed; false if it was the one to end by.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return true;
        }
        let last = self.rows.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('q') => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Up => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down => self.chosen = (self.chosen + 1).min(last),
            KeyCode::Home => self.chosen = 0,
            KeyCode::End => self.chosen = last,
            KeyCode::Char('h' | '?') => self.is_help = !self.is_help,
            KeyCode::Char('s') => {
                self.order = (self.order + 1) % ORDERS.len();
                // The next update brings the order in which they were found.
                self.update(self.rows.clone());
            }
            KeyCode::Esc if self.is_help => self.is_help = false,
            KeyCode::Enter => self.is_open = !self.is_open,
            KeyCode::Esc if self.is_open => self.is_open = false,
            KeyCode::Esc => return false,
            _ => {}
        }
        true
    }

    /// The lines of a screen of this size.
    pub fn lines(&self, width: usize, height: usize) -> Vec<Line> {
        let body = height.saturating_sub(2);
        let (keys, mut lines) = match self.rows.get(self.chosen) {
            _ if self.is_help => {
                let keys = KEYS.iter().map(|line| line.to_string().stylize());
                ("h: back", keys.collect())
            }
            Some(row) if self.is_open => {
                let mut lines = curve_lines(row, width, body / CURVE);
                lines.extend(memory_lines(row));
                lines.truncate(body.saturating_sub(FEWEST));
                lines.extend(holder_lines(row, width));
                ("Enter: all processes", lines)
            }
            chosen => {
                let room = body.saturating_sub(HOLDERS).max(FEWEST);
                let mut lines = self.process_lines(width, room);
                let limits = shared_limits(&self.rows)
                    .into_iter()
                    .flat_map(SharedLimit::devices);
                lines.extend(limits.map(|(device, held, limit)| {
                    let line = format!(
                        "{} of {} of the shared limit of {device}",
                        bytes(held),
                        bytes(limit)
                    );
                    line.stylize()
                }));
                lines.extend(chosen.into_iter().flat_map(|row| holder_lines(row, width)));
                ("Enter: holders of its memory", lines)
            }
        };
        lines.resize(body, String::new().stylize());
        lines.insert(0, self.heading().bold());
        lines.push(format!("{keys}   ↑ ↓: another process   s: sort   h: help   q: end").dim());
        lines.truncate(height);
        let fit = |line: Line| {
            line.style()
                .apply(format!("{:<width$.width$}", line.content()))
        };
        lines.into_iter().map(fit).collect()
    }

    fn heading(&self) -> String {
        let sum = |of: fn(&Row) -> u64| {
            let all = self.rows.iter().map(of);
            bytes(all.fold(0, u64::saturating_add))
        };
        let processes = match self.rows.len() {
            1 => "1 process".to_string(),
            several => format!("{} processes", count(several as u64)),
        };
        let order = match ORDERS.get(self.order) {
            Some((name, _)) if self.order > 0 => format!(", by {name}"),
            _ => String::new(),
        };
        format!(
            "gpushim top   {processes}{order}, {} allocated, {} reserved",
            sum(|row| row.allocated),
            sum(|row| row.reserved)
        )
    }

    /// The table of the processes, from the first one, or so that the chosen one can be seen.
    fn process_lines(&self, width: usize, height: usize) -> Vec<Line> {
        if self.rows.is_empty() {
            return vec!["No process records here now.".to_string().stylize()];
        }
        let mut table = table(&self.rows);
        table.narrow(width, &LEAST_FIRST);
        let lines = table.lines().into_iter().enumerate();
        let lines = lines.map(|(at, text)| match at {
            0 => text.bold(),
            at if at == self.chosen + 1 => text.reverse(),
            _ => text.stylize(),
        });
        let room = height.saturating_sub(1);
        let unseen = (self.chosen + 1).saturating_sub(room);
        let (head, rows) = (lines.clone().take(1), lines.skip(1 + unseen));
        head.chain(rows.take(room)).collect()
    }
}

/// The line above a part of the screen.
fn title(text: &str, width: usize) -> Line {
    format!("{:─<width$}", format!("── {text} ")).stylize()
}

/// Allocated bytes over time, with a title.
fn curve_lines(row: &Row, width: usize, height: usize) -> Vec<Line> {
    let (now, most) = (bytes(row.allocated), bytes(row.peak));
    let text = format!("{now} of at most {most} allocated, over the whole run");
    let curve = curve(&row.history, width, height.saturating_sub(1));
    let curve = curve.into_iter().map(String::stylize);
    std::iter::once(title(&text, width)).chain(curve).collect()
}

/// Lines of the tables of a process's devices.
fn memory_lines(row: &Row) -> Vec<Line> {
    let several = row.memory.len() > 1;
    let tables = row.memory.iter();
    let text: String = tables
        .map(|of| device_memory::table(of, several, false))
        .collect();
    text.lines()
        .map(|line| line.to_string().stylize())
        .collect()
}

/// The stacks that hold the memory of a process, with a title.
fn holder_lines(row: &Row, width: usize) -> Vec<Line> {
    let pid = row.pid.map_or(String::new(), |pid| format!("{pid} "));
    let mut lines = vec![title(&format!("{pid}{}", shown(&row.program)), width)];
    for holder in &row.holders {
        let who = shown(&holder.who.function_or("no stack recorded"));
        let blocks = match holder.blocks {
            1 => "1 block".to_string(),
            several => format!("{} blocks", count(several)),
        };
        let (bytes, share) = (bytes(holder.bytes), percent(holder.share, 1.0));
        lines.push(format!("{bytes:>10} {share:>8} {blocks:>14}  {who}").stylize());
    }
    lines
}

#[cfg(test)]
mod tests {
    use crossterm::style::Attribute;

    use super::*;
    use crate::device_memory::DeviceMemory;
    use crate::output::holder::Holder;
    use crate::recording::{CallSite, Function};
    use crate::symbols::Kind;

    fn row(pid: u32, allocated: u64) -> Row {
        let holder = |function: &str, bytes: u64| Holder {
            who: CallSite {
                function: (!function.is_empty()).then(|| Function {
                    name: function.to_string(),
                    file: None,
                    line: None,
                    module: None,
                    kind: Kind::Python,
                }),
                ..CallSite::default()
            },
            blocks: 2,
            bytes,
            per_iteration: None,
            share: bytes as f64 / allocated as f64,
            oldest_ns: None,
            made_before: false,
            kept_by: None,
        };
        Row {
            shared_limit: None,
            trace: format!("{pid}.trace"),
            pid: Some(pid),
            program: format!("python train{pid}.py"),
            rank: None,
            runs: true,
            gpus: vec![0],
            allocated,
            reserved: 2 * allocated,
            share: Some(0.5),
            peak: allocated,
            growth_per_minute: None,
            rate: 10.0,
            out_of_memory: 0,
            history: vec![1, 2, 4, 8],
            holders: vec![
                holder(&format!("keep{pid}"), allocated / 2),
                holder("", 512),
            ],
            memory: vec![DeviceMemory::of_tensors(allocated)],
        }
    }

    fn drawn(screen: &Screen) -> Vec<String> {
        drawn_on(screen, 140)
    }

    fn drawn_on(screen: &Screen, width: usize) -> Vec<String> {
        let lines = screen.lines(width, 24);
        assert_eq!(lines.len(), 24);
        let text = |line: &Line| line.content().trim_end().to_string();
        lines.iter().map(text).collect()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> bool {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn processes_and_who_holds_the_memory_of_the_chosen_one() {
        let mut screen = Screen::new(vec![row(11, 8 << 20), row(22, 16 << 20)]);
        let lines = drawn(&screen);
        assert_eq!(
            lines[0],
            "gpushim top   2 processes, 24.0 MiB allocated, 48.0 MiB reserved"
        );
        assert!(lines[1].starts_with("pid  program"), "{lines:#?}");
        assert!(
            lines[2].contains("11  python train11.py  0      8.0 MiB  16.0 MiB  50.0 %"),
            "{lines:#?}"
        );
        assert!(
            lines[2].contains("▁▂▄█") && lines[3].starts_with(" 22"),
            "{lines:#?}"
        );
        let has = |lines: &[String], text: &str| lines.iter().any(|line| line.contains(text));
        assert!(
            has(&lines, "4.0 MiB   50.0 %       2 blocks  keep11"),
            "{lines:#?}"
        );
        assert!(has(&lines, "no stack recorded"), "{lines:#?}");
        assert!(press(&mut screen, KeyCode::Down) && press(&mut screen, KeyCode::Down));
        assert!(has(&drawn(&screen), "keep22"));
        // The same one stays chosen.
        screen.update(vec![row(7, 1 << 20), row(11, 8 << 20), row(22, 16 << 20)]);
        let lines = drawn(&screen);
        assert!(
            has(&lines, "keep22") && has(&lines, "3 processes"),
            "{lines:#?}"
        );
        assert!(press(&mut screen, KeyCode::Up));
        assert!(has(&drawn(&screen), "keep11"));
    }

    #[test]
    fn keys_are_explained_and_sort() {
        let mut screen = Screen::new(vec![row(11, 8 << 20), row(22, 16 << 20)]);
        let first = |screen: &Screen| drawn(screen)[2].trim().chars().take(2).collect::<String>();
        assert_eq!(first(&screen), "11");
        assert!(press(&mut screen, KeyCode::Char('s')));
        assert_eq!(first(&screen), "22");
        let lines = drawn(&screen);
        assert!(
            lines[0].contains("2 processes, by allocated, "),
            "{lines:#?}"
        );
        // The same one stays chosen.
        assert!(lines.join("\n").contains("keep11"), "{lines:#?}");
        screen.update(vec![row(11, 32 << 20), row(22, 16 << 20)]);
        assert_eq!(first(&screen), "11");
        for key in ['h', '?'] {
            assert!(press(&mut screen, KeyCode::Char(key)));
            let text = drawn(&screen).join("\n");
            assert!(
                text.contains("sort: ") && !text.contains("keep11"),
                "{text}"
            );
            assert!(press(&mut screen, KeyCode::Esc), "back");
            assert!(drawn(&screen).join("\n").contains("keep11"));
        }
        for _ in 0..3 {
            press(&mut screen, KeyCode::Char('s'));
        }
        assert!(drawn(&screen)[0].starts_with("gpushim top   2 processes, 48.0 MiB"));
    }

    #[test]
    fn one_process_on_the_whole_screen() {
        let mut screen = Screen::new(vec![row(11, 8 << 20)]);
        assert!(press(&mut screen, KeyCode::Enter));
        let lines = drawn(&screen);
        let text = lines.join("\n");
        assert!(
            text.contains("8.0 MiB of at most 8.0 MiB allocated"),
            "{text}"
        );
        assert!(
            text.contains("keep11") && !text.contains("allocs/s"),
            "{text}"
        );
        assert_eq!(lines[2..6], ["   █", "   █", "  ██", "▄███"]);
        let at = text.find("100.0 %  PyTorch: tensors").expect(&text);
        assert!(Some(at) < text.find("keep11"), "{text}");
        assert!(press(&mut screen, KeyCode::Esc), "back to all");
        assert!(drawn(&screen).join("\n").contains("allocs/s"));
        assert!(!press(&mut screen, KeyCode::Char('q')));
        assert!(!press(&mut screen, KeyCode::Esc));
        let ended = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!screen.key(ended));
    }

    #[test]
    fn a_narrow_terminal_has_the_columns_that_matter_most() {
        let screen = Screen::new(vec![row(11, 8 << 20)]);
        let lines = drawn_on(&screen, 80);
        for name in [
            "pid",
            "program",
            "allocated",
            "of gpu",
            "growth/min",
            "most is held by",
        ] {
            assert!(lines[1].contains(name), "no {name}: {lines:#?}");
        }
        assert!(!lines[1].contains("allocs/s"), "{lines:#?}");
        assert!(lines[2].contains("keep11"), "{lines:#?}");
    }

    #[test]
    fn the_chosen_process_is_reversed_and_can_be_seen() {
        let mut screen = Screen::new((1..=40).map(|pid| row(pid, 1 << 20)).collect());
        let chosen = |screen: &Screen| {
            let lines = screen.lines(140, 24).into_iter();
            let is_reversed = |line: &Line| line.style().attributes.has(Attribute::Reverse);
            let reversed: Vec<_> = lines.filter(is_reversed).collect();
            assert_eq!(reversed.len(), 1, "{reversed:#?}");
            reversed[0].content().clone()
        };
        let first = chosen(&screen);
        assert!(first.starts_with("  1  python"), "{first}");
        assert_eq!(first.chars().count(), 140);
        press(&mut screen, KeyCode::End);
        let last = chosen(&screen);
        assert!(last.starts_with(" 40  python"), "{last}");
        assert!(drawn(&screen)[1].starts_with("pid  program"));
    }

    #[test]
    fn nobody_records_and_small_windows() {
        let mut screen = Screen::new(vec![row(11, 8 << 20)]);
        screen.update(Vec::new());
        assert!(press(&mut screen, KeyCode::Down) && press(&mut screen, KeyCode::Enter));
        assert!(drawn(&screen).join("\n").contains("No process records"));
        for (width, height) in [(0, 0), (1, 1), (5, 3), (20, 8)] {
            let mut screen = Screen::new(vec![row(11, 8 << 20)]);
            for _ in 0..2 {
                let lines = screen.lines(width, height);
                assert_eq!(lines.len(), height);
                let fits = |line: &Line| line.content().chars().count() <= width;
                assert!(lines.iter().all(fits), "{lines:#?}");
                press(&mut screen, KeyCode::Enter);
            }
        }
    }
}
