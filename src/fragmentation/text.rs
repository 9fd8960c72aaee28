//! Reserved memory that cannot be used, in words, figures and a map.

use std::fmt;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::find::{Fragmentation, Pin};
use super::layout::Room;
use super::map;
use crate::ledger::{Focus, Moment};
use crate::output::answer::{Answer, Subject};
use crate::output::escape::shown;
use crate::output::holder::labels;
use crate::output::style::verdict;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent, span};
use crate::recording::{CallSite, Function, Names, Recording};
use crate::unused::{Cause, Replays};

/// Answer of `gpushim fragmentation`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FragmentationReport {
    /// The recording and the memory that was examined.
    #[serde(flatten)]
    pub subject: Subject,
    /// True if most was held at this moment.
    pub is_peak: bool,
    /// The figures.
    #[serde(flatten)]
    pub fragmentation: Fragmentation,
    /// The call site of the request for which memory grew to its peak.
    pub asker: Option<CallSite>,
    /// The stacks that pin nearly empty segments, those with most free bytes first.
    pub keepers: Vec<Keeper>,
    /// The result in one sentence.
    pub verdict: String,
    /// Why memory is free that no block keeps: it waits for a stream, or is of another one.
    pub cause: Option<String>,
    /// The settings that would have reserved less, by replay.
    pub advice: Option<String>,
}

/// A stack whose blocks pin nearly empty segments.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Keeper {
    /// The call site.
    #[serde(flatten)]
    pub who: CallSite,
    /// How many segments.
    pub segments: u64,
    /// Free bytes of these.
    pub free: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// When the oldest was allocated, ns since the start.
    pub oldest_ns: u64,
}

impl FragmentationReport {
    /// Analyses a moment of a recording.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        moment: Moment,
        names: &mut dyn Names,
    ) -> FragmentationReport {
        let fragmentation = Fragmentation::at(recording, focus, moment);
        let asked = fragmentation.asked.filter(|asked| asked.stack != 0);
        let worst = fragmentation.devices.iter().max_by_key(|room| room.stuck);
        let worst = worst.filter(|room| room.is_fragmented());
        let advice = worst.and_then(|room| {
            let replays = Replays::of(recording, focus, room.device?)?;
            replays.advice(room.stuck)
        });
        let unused = unused(recording, focus, &fragmentation, names);
        let (cause, advice) = unused.map_or((None, advice), |(why, fix)| (Some(why), Some(fix)));
        let mut report = FragmentationReport {
            subject: Subject::of(recording, focus),
            is_peak: moment == Moment::Peak,
            asker: asked.map(|asked| CallSite::of(names, asked.stack)),
            keepers: keepers(recording, &fragmentation.pins, names),
            verdict: String::new(),
            cause,
            advice,
            fragmentation,
        };
        report.verdict = report.sentence();
        report
    }

    fn sentence(&self) -> String {
        let found = &self.fragmentation;
        let worst = found.devices.iter().max_by_key(|room| room.stuck);
        let Some(room) = worst.filter(|room| room.reserved > 0) else {
            return match self.subject.wrapped {
                true => "Not told: what is reserved was reserved before the recording began."
                    .to_string(),
                false => "The recording has no reserved memory.".to_string(),
            };
        };
        let of = match room.device.filter(|_| found.devices.len() > 1) {
            Some(device) => format!(" of gpu {device}"),
            None => String::new(),
        };
        if let Some(room) = found.devices.iter().max_by_key(|room| room.untold)
            && room.untold > 0
            && !found.is_found()
        {
            return format!(
                "Not told: {} of the {} that are reserved are free, but where they lie is not known: they were reserved \
                 before the recording began.",
                bytes(room.untold),
                bytes(room.reserved)
            );
        }
        let share = percent(room.stuck as f64, room.reserved as f64);
        let (stuck, reserved) = (bytes(room.stuck), bytes(room.reserved));
        if !found.is_found() {
            return format!(
                "Not fragmented: {stuck} ({share}) of the {reserved}{of} that are reserved lie free beside blocks."
            );
        }
        let when = match found.asked {
            Some(asked) => format!("when memory grew to its peak for {}", bytes(asked.size)),
            None => format!("at {}", span(found.ns)),
        };
        let mut text = format!(
            "Fragmented: {when}, {stuck} ({share}) of the {reserved}{of} that are reserved lay free in pieces, the \
             largest {}, beside blocks that keep them",
            bytes(self.largest_piece(room))
        );
        if room.pinned > 0 {
            text.push_str(&format!(
                "; {} of it in {}, nearly empty",
                bytes(room.pinned),
                several(room.pinned_segments, "segment")
            ));
        }
        if let Some(keeper) = self.keepers.first() {
            text.push_str(&format!(
                ": {} keeps {} of those with {} of {} in all",
                keeper.who.in_a_sentence(),
                count(keeper.segments),
                several(keeper.blocks, "block"),
                bytes(keeper.bytes)
            ));
        }
        text.push('.');
        text
    }

    /// The largest free piece beside blocks of a device.
    fn largest_piece(&self, room: &Room) -> u64 {
        let segments = self.fragmentation.segments.iter();
        let stuck = segments.filter(|one| one.blocks > 0 && one.device == room.device);
        stuck.map(|one| one.largest_free).max().unwrap_or(0)
    }

    fn figures(&self) -> Table {
        let mut table = Table::new([
            ("gpu", Align::Right),
            ("reserved", Align::Right),
            ("allocated", Align::Right),
            ("requested", Align::Right),
            ("free, whole", Align::Right),
            ("free beside blocks", Align::Right),
            ("pinned", Align::Right),
            ("largest free", Align::Right),
        ]);
        for room in &self.fragmentation.devices {
            let with_share = |part: u64| {
                let share = percent(part as f64, room.reserved as f64);
                format!("{} ({share})", bytes(part))
            };
            table.row([
                room.device
                    .map_or("-".to_string(), |device| device.to_string()),
                bytes(room.reserved),
                bytes(room.allocated),
                bytes(room.requested),
                bytes(room.empty),
                with_share(room.stuck),
                with_share(room.pinned),
                bytes(room.largest_free),
            ]);
        }
        table
    }

    fn pins(&self, top: usize) -> Table {
        let mut table = Table::new([
            ("nearly empty", Align::Left),
            ("size", Align::Right),
            ("free", Align::Right),
            ("kept by blocks", Align::Right),
            ("of", Align::Right),
            ("age", Align::Right),
        ]);
        for pin in self.fragmentation.pins.iter().take(top) {
            table.row([
                format!("{:#x}", pin.address),
                bytes(pin.size),
                bytes(pin.free),
                count(pin.blocks),
                bytes(pin.bytes),
                span(self.fragmentation.ns.saturating_sub(pin.oldest_ns)),
            ]);
        }
        table
    }

    fn kept(&self, top: usize) -> Table {
        let mut table = Table::new([
            ("free", Align::Right),
            ("segments", Align::Right),
            ("kept by blocks", Align::Right),
            ("of", Align::Right),
            ("since", Align::Right),
            ("by", Align::Left),
        ]);
        let sites = self.keepers.iter().take(top).map(|keeper| &keeper.who);
        for (keeper, label) in self.keepers.iter().zip(labels(sites, "no stack recorded")) {
            table.row([
                bytes(keeper.free),
                count(keeper.segments),
                count(keeper.blocks),
                bytes(keeper.bytes),
                span(keeper.oldest_ns),
                label,
            ]);
        }
        table
    }
}

/// Returns the reason why reserved memory is not in use although no block pins it, and the change
/// to make.
fn unused(
    recording: &dyn Recording,
    focus: Focus,
    found: &Fragmentation,
    names: &mut dyn Names,
) -> Option<(String, String)> {
    let free = |room: &Room| room.empty.saturating_add(room.stuck);
    let worst = found.devices.iter().max_by_key(|room| free(room))?;
    if found.is_found() || !worst.is_much(free(worst)) {
        return None;
    }
    let replays = Replays::of(recording, focus, worst.device?)?;
    let cause = Cause::of(recording, focus, &replays, free(worst), worst.reserved)?;
    let site = cause.site(names);
    Some((cause.sentence(site.as_ref()), cause.fix()))
}

fn several(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{} {what}s", count(number)),
    }
}

/// Groups pins by the function that allocated most of the bytes in a segment.
fn keepers(recording: &dyn Recording, pins: &[Pin], names: &mut dyn Names) -> Vec<Keeper> {
    let mut by_function: FxHashMap<Option<Function>, usize> = FxHashMap::default();
    let mut frames: FxHashMap<u64, CallSite> = FxHashMap::default();
    let mut keepers: Vec<Keeper> = Vec::new();
    for pin in pins {
        let who = frames
            .entry(recording.frames(pin.stack))
            .or_insert_with(|| CallSite::of(names, pin.stack));
        let index = *by_function.entry(who.function.clone()).or_insert_with(|| {
            keepers.push(Keeper {
                who: who.clone(),
                segments: 0,
                free: 0,
                blocks: 0,
                bytes: 0,
                oldest_ns: pin.oldest_ns,
            });
            keepers.len() - 1
        });
        if let Some(keeper) = keepers.get_mut(index) {
            keeper.segments += 1;
            keeper.free = keeper.free.saturating_add(pin.free);
            keeper.blocks = keeper.blocks.saturating_add(pin.blocks);
            keeper.bytes = keeper.bytes.saturating_add(pin.bytes);
            keeper.oldest_ns = keeper.oldest_ns.min(pin.oldest_ns);
        }
    }
    keepers.sort_by_key(|keeper| std::cmp::Reverse(keeper.free));
    keepers
}

impl Answer for FragmentationReport {
    const COMMAND: &'static str = "fragmentation";

    fn is_found(&self) -> bool {
        self.fragmentation.is_found()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        let what = if self.is_peak {
            ", when most was reserved"
        } else {
            ""
        };
        if self.subject.one_moment {
            writeln!(f, "When the snapshot was taken")?;
        } else if !self.fragmentation.devices.is_empty() {
            writeln!(f, "At {}{what}", span(self.fragmentation.ns))?;
        }
        writeln!(f, "{}", verdict(self.is_found(), &shown(&self.verdict)))?;
        for line in self.cause.iter().chain(&self.advice) {
            writeln!(f, "  {}", shown(line))?;
        }
        let figures = self.figures();
        if figures.is_empty() {
            return Ok(());
        }
        write!(f, "\n{figures}")?;
        map::write(&self.fragmentation.segments, f)?;
        for table in [self.pins(top), self.kept(top)] {
            if !table.is_empty() {
                write!(f, "\n{table}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
