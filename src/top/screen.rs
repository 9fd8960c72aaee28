//! The screen and the keys of `gpushim top`.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{self, Block, Cell, Paragraph, Sparkline, Table, TableState};

use super::table::{HEADINGS, Row};
use crate::device_memory::table;
use crate::output::escape::shown;
use crate::output::table::Align;
use crate::output::units::{bytes, count, percent};

/// Lines of the list of holders below the processes.
const HOLDERS: u16 = 10;

/// Characters between two columns of the processes.
const SPACE: usize = 2;
/// Fewest characters of the last column.
const NAME: usize = 16;
/// Columns that are left out where there is no room, in this order.
const LEAST_FIRST: [&str; 6] = ["allocs/s", "peak", "history", "reserved", "OOM", "gpu"];

/// The processes, and which of them is chosen.
pub struct Screen {
    rows: Vec<Row>,
    chosen: usize,
    /// True if the chosen process has the whole screen.
    is_open: bool,
}

impl Screen {
    /// With these processes, the first one chosen.
    pub fn new(rows: Vec<Row>) -> Screen {
        Screen {
            rows,
            chosen: 0,
            is_open: false,
        }
    }

    /// Sets the processes; the same one stays chosen.
    pub fn update(&mut self, rows: Vec<Row>) {
        let chosen = self.rows.get(self.chosen).map(|row| row.trace.clone());
        let place = rows
            .iter()
            .position(|row| Some(&row.trace) == chosen.as_ref());
        self.chosen = place
            .unwrap_or(self.chosen)
            .min(rows.len().saturating_sub(1));
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
            KeyCode::Enter => self.is_open = !self.is_open,
            KeyCode::Esc if self.is_open => self.is_open = false,
            KeyCode::Esc => return false,
            _ => {}
        }
        true
    }

    /// Draws all parts of the screen.
    pub fn draw(&self, frame: &mut Frame) {
        let [head, body, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Line::from(self.heading()).bold(), head);
        let keys = if self.is_open {
            "Enter: all processes   ↑ ↓: another process   q: end"
        } else {
            "Enter: holders of its memory   ↑ ↓: another process   q: end"
        };
        frame.render_widget(Line::from(keys).dim(), foot);
        let Some(row) = self.rows.get(self.chosen) else {
            frame.render_widget(Paragraph::new("No process records here now."), body);
            return;
        };
        if self.is_open {
            let lines = memory_lines(row);
            let [curve, memory, list] = Layout::vertical([
                Constraint::Percentage(25),
                Constraint::Length(u16::try_from(lines.len()).unwrap_or(u16::MAX)),
                Constraint::Min(3),
            ])
            .areas(body);
            draw_curve(frame, curve, row);
            frame.render_widget(Paragraph::new(lines), memory);
            draw_holders(frame, list, row);
        } else {
            let [table, list] =
                Layout::vertical([Constraint::Min(3), Constraint::Length(HOLDERS)]).areas(body);
            self.draw_processes(frame, table);
            draw_holders(frame, list, row);
        }
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
        format!(
            "gpushim top   {processes}, {} allocated, {} reserved",
            sum(|row| row.allocated),
            sum(|row| row.reserved)
        )
    }

    fn draw_processes(&self, frame: &mut Frame, area: Rect) {
        let lines: Vec<_> = self.rows.iter().map(Row::cells).collect();
        let width = |column: usize| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            let heading = HEADINGS.get(column).map_or("", |(name, _)| *name);
            let letters = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            letters.max(heading.chars().count())
        };
        let columns = columns(usize::from(area.width), width);
        let widths = columns
            .iter()
            .map(|column| Constraint::Length(width(*column) as u16));
        let widths: Vec<_> = widths.collect();
        let aligned = |text: String, align: Align| {
            let side = match align {
                Align::Left => Alignment::Left,
                Align::Right => Alignment::Right,
            };
            Cell::from(Text::from(text).alignment(side))
        };
        let line = |cells: [String; HEADINGS.len()]| {
            let cells = cells.into_iter().zip(HEADINGS).enumerate();
            let cells = cells.filter(|(column, _)| columns.contains(column));
            widgets::Row::new(cells.map(|(_, (text, (_, align)))| aligned(text, align)))
        };
        let head = HEADINGS.map(|(name, _)| name.to_string());
        let table = Table::new(lines.iter().cloned().map(line), widths)
            .header(line(head).style(Style::new().bold()))
            .column_spacing(SPACE as u16)
            .row_highlight_style(Style::new().reversed());
        let mut state = TableState::new().with_selected(Some(self.chosen));
        frame.render_stateful_widget(table, area, &mut state);
    }
}

/// Columns that fit into a width.
///
/// The least important columns are dropped first. The last column stays, and its end may be cut
/// off.
fn columns(room: usize, width: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..HEADINGS.len()).collect();
    let needed = |columns: &[usize]| {
        let (_, before) = columns.split_last().unwrap_or((&0, &[]));
        before
            .iter()
            .map(|column| width(*column) + SPACE)
            .sum::<usize>()
            + NAME
    };
    for name in LEAST_FIRST {
        if needed(&columns) <= room {
            break;
        }
        columns.retain(|column| HEADINGS.get(*column).is_some_and(|(of, _)| *of != name));
    }
    columns
}

/// Draws allocated bytes over time.
fn draw_curve(frame: &mut Frame, area: Rect, row: &Row) {
    let title = format!(
        " {} of at most {} allocated, over the whole run ",
        bytes(row.allocated),
        bytes(row.peak)
    );
    let block = Block::bordered().title(title);
    let width = usize::from(block.inner(area).width);
    let each = row.history.len().div_ceil(width.max(1)).max(1);
    let most = |part: &[u64]| part.iter().max().copied().unwrap_or(0);
    let mut values: Vec<u64> = row.history.rchunks(each).map(most).collect();
    values.reverse();
    frame.render_widget(Sparkline::default().data(values).block(block), area);
}

/// Lines of the tables of a process's devices.
fn memory_lines(row: &Row) -> Vec<Line<'static>> {
    let several = row.memory.len() > 1;
    let tables = row
        .memory
        .iter()
        .map(|memory| table(memory, several, false));
    let text: String = tables.collect();
    text.lines()
        .map(|line| Line::from(line.to_string()))
        .collect()
}

/// The stacks that hold the memory of a process.
fn draw_holders(frame: &mut Frame, area: Rect, row: &Row) {
    let pid = row.pid.map_or(String::new(), |pid| format!("{pid} "));
    let title = format!(" {pid}{} ", shown(&row.program));
    let lines: Vec<Line> = row
        .holders
        .iter()
        .map(|holder| {
            let who = shown(&holder.who.function_or("no stack recorded"));
            let blocks = if holder.blocks == 1 {
                "1 block".to_string()
            } else {
                format!("{} blocks", count(holder.blocks))
            };
            Line::from(format!(
                "{:>10} {:>8} {blocks:>14}  {who}",
                bytes(holder.bytes),
                percent(holder.share, 1.0)
            ))
        })
        .collect();
    let list = Paragraph::new(lines).block(Block::bordered().title(title));
    frame.render_widget(list, area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

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

    fn drawn_on(screen: &Screen, width: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(width));
        let text = |line: &[ratatui::buffer::Cell]| -> String {
            line.iter().map(|cell| cell.symbol()).collect()
        };
        lines
            .map(|line| text(line).trim_end().to_string())
            .collect()
    }

    /// Lines that have something in them.
    fn filled(lines: &[String]) -> String {
        let lines = lines.iter().map(String::as_str);
        let filled: Vec<&str> = lines
            .filter(|line| !line.trim_matches([' ', '│']).is_empty())
            .collect();
        filled.join("\n")
    }

    fn press(screen: &mut Screen, code: KeyCode) -> bool {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn processes_and_who_holds_the_memory_of_the_chosen_one() {
        let mut screen = Screen::new(vec![row(11, 8 << 20), row(22, 16 << 20)]);
        let lines = drawn(&screen);
        insta::assert_snapshot!(filled(&lines), @"
        gpushim top   2 processes, 24.0 MiB allocated, 48.0 MiB reserved
        pid  program            gpu  allocated  reserved  of gpu      peak  growth/min  allocs/s  OOM  history  most is held by
         11  python train11.py  0      8.0 MiB  16.0 MiB  50.0 %   8.0 MiB           -        10    0  ▁▂▄█     keep11
         22  python train22.py  0     16.0 MiB  32.0 MiB  50.0 %  16.0 MiB           -        10    0  ▁▂▄█     keep22
        ┌ 11 python train11.py ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┐
        │   4.0 MiB   50.0 %       2 blocks  keep11                                                                                                │
        │     512 B    0.0 %       2 blocks  no stack recorded                                                                                     │
        └──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
        Enter: holders of its memory   ↑ ↓: another process   q: end
        ");
        let has = |lines: &[String], text: &str| lines.iter().any(|line| line.contains(text));
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
    fn one_process_on_the_whole_screen() {
        let mut screen = Screen::new(vec![row(11, 8 << 20)]);
        assert!(press(&mut screen, KeyCode::Enter));
        insta::assert_snapshot!(filled(&drawn(&screen)), @"
        gpushim top   1 process, 8.0 MiB allocated, 16.0 MiB reserved
        ┌ 8.0 MiB of at most 8.0 MiB allocated, over the whole run ────────────────────────────────────────────────────────────────────────────────┐
        │   █                                                                                                                                      │
        │   █                                                                                                                                      │
        │  ██                                                                                                                                      │
        │▄███                                                                                                                                      │
        └──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
              at 0 ns           Memory
              8.0 MiB  100.0 %  PyTorch: tensors
              8.0 MiB           recorded: the driver was not asked what else is used
        ┌ 11 python train11.py ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┐
        │   4.0 MiB   50.0 %       2 blocks  keep11                                                                                                │
        │     512 B    0.0 %       2 blocks  no stack recorded                                                                                     │
        └──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
        Enter: all processes   ↑ ↓: another process   q: end
        ");
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
        insta::assert_snapshot!(filled(&drawn_on(&screen, 80)), @"
        gpushim top   1 process, 8.0 MiB allocated, 16.0 MiB reserved
        pid  program            gpu  allocated  of gpu  growth/min  most is held by
         11  python train11.py  0      8.0 MiB  50.0 %           -  keep11
        ┌ 11 python train11.py ────────────────────────────────────────────────────────┐
        │   4.0 MiB   50.0 %       2 blocks  keep11                                    │
        │     512 B    0.0 %       2 blocks  no stack recorded                         │
        └──────────────────────────────────────────────────────────────────────────────┘
        Enter: holders of its memory   ↑ ↓: another process   q: end
        ");
    }

    #[test]
    fn nobody_records_and_small_windows() {
        let mut screen = Screen::new(vec![row(11, 8 << 20)]);
        screen.update(Vec::new());
        assert!(press(&mut screen, KeyCode::Down) && press(&mut screen, KeyCode::Enter));
        assert!(drawn(&screen).join("\n").contains("No process records"));
        for (width, height) in [(1, 1), (5, 3), (20, 8)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            let screen = Screen::new(vec![row(11, 8 << 20)]);
            terminal.draw(|frame| screen.draw(frame)).unwrap();
        }
    }
}
