//! Thread of the spool: follows the ring, makes frames, writes them, and keeps the timeline.

use std::fmt;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::FRAME_EVENTS;
use super::area::{Area, SpoolLimits};
use super::frame::{Frame, Header};
use crate::Error;
use crate::background::{self, Background, is_left_alone};
use crate::tail::Tailed;
use crate::timeline_follower::{Held, TimelineFollower};
use crate::writer::Writer;

/// Time after which events of a quiet process are written, although they fill no frame.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rate of events, a second, for which a thread that found none still polls in time.
const BURST: u64 = 20_000_000;
/// Interval at which the thread checks if it is the process's last.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of the thread's stack; zstd keeps its state on the heap.
const STACK: usize = 256 << 10;

/// Function that is called once with the reason when a spool stops.
pub type Tell = Box<dyn FnOnce(&str) + Send>;

/// Options with which a spool starts.
pub struct SpoolOptions {
    /// Limits of the space that the frames take.
    pub limits: SpoolLimits,
    /// Level of zstd compression.
    pub level: i32,
    /// Function called once, on the spool's thread, with the reason when it stops writing. The
    /// thread has a table of descriptors of its own. The program's descriptors are not in it,
    /// standard error included.
    pub stopped: Tell,
    /// Function called on the spool's thread when the timeline may be wrong; see
    /// [`TimelineFollower::new`].
    pub held: Option<Held>,
}

impl SpoolOptions {
    /// Default level of zstd. On recorded PyTorch requests it takes 2.0 to 2.2 bytes an event,
    /// level 1 takes 2.3 to 2.5. The cost is the same, as most of it is not in zstd.
    pub const LEVEL: i32 = 3;

    /// Returns options without a limit, with 1 GiB of the disk left free. No function is called
    /// when the spool stops.
    pub fn new() -> SpoolOptions {
        SpoolOptions {
            limits: SpoolLimits {
                max_bytes: None,
                floor: 1 << 30,
            },
            level: SpoolOptions::LEVEL,
            stopped: Box::new(|_| {}),
            held: None,
        }
    }
}

impl Default for SpoolOptions {
    fn default() -> SpoolOptions {
        SpoolOptions::new()
    }
}

impl fmt::Debug for SpoolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SpoolOptions");
        shown.field("limits", &self.limits);
        shown.field("level", &self.level).finish_non_exhaustive()
    }
}

/// State of a spool, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolStatus {
    /// Number of events written.
    pub events: u64,
    /// Current bytes of the frames.
    pub bytes: u64,
    /// Number of frames written.
    pub frames: u64,
    /// Number of events overwritten in the ring before they were read.
    pub missed: u64,
    /// Number of events that were read and not written, because the spool had stopped.
    pub unwritten: u64,
    /// Reason why the spool stopped, if it did.
    pub stopped: Option<String>,
}

enum Command {
    Flush(Sender<SpoolStatus>),
    Status(Sender<SpoolStatus>),
    Stop(Sender<SpoolStatus>),
}

/// A running spool. When dropped, it writes the remaining events and ends; in a forked child it
/// does nothing.
///
/// It starts its own thread, `gpushim-spool`, with a small stack and all signals but SIGBUS
/// blocked. It feeds the timeline, too: there must be no [`TimelineFollower`] beside it.
///
/// ```
/// use std::time::Duration;
/// use gpushim_trace::spool::{SpoolOptions, Spooler};
/// use gpushim_trace::{Class, Event, Kind, Trace, Writer, WriterOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("run.trace");
/// let writer = Writer::create(&path, &WriterOptions::default())?;
/// let spooler = Spooler::start(&writer, SpoolOptions::new())?;
/// writer.record(&Event { size: 512, ..Event::new(Kind::Alloc, Class::Device) });
/// let status = spooler.stop(Duration::from_secs(60)).ok_or("the spool did not answer")?;
/// assert_eq!((status.events, status.missed), (1, 0));
///
/// let trace = Trace::open(&path)?;
/// assert_eq!((trace.spooled(), trace.events().count()), (1, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Spooler {
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Spooler {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started, or memory is short.
    pub fn start(writer: &Writer, options: SpoolOptions) -> Result<Spooler, Error> {
        let failed = |error| Error::io("write the spool of the trace", writer.path(), "", error);
        let (commands, receiver) = bounded(4);
        let mut worker = Worker {
            follower: TimelineFollower::new(writer, options.held),
            output: Output {
                area: Area::new(writer, options.limits),
                frame: Frame::new(options.level).map_err(failed)?,
                trace: writer.wall_ns(),
                pending: Vec::new(),
                since: Instant::now(),
                each: 0,
                stopped: Some(options.stopped),
                missed: 0,
                status: SpoolStatus::default(),
            },
            reached: 0,
            last: Instant::now(),
        };
        let thread = background::spawn("gpushim-spool", STACK, move || {
            keep_descriptors_apart();
            worker.run(&receiver);
        });
        Ok(Spooler {
            commands,
            thread: Some(thread.map_err(failed)?),
            process: std::process::id(),
        })
    }

    /// Writes all events recorded until now. `None` if it took longer than this time, or the thread
    /// has ended.
    pub fn flush(&self, timeout: Duration) -> Option<SpoolStatus> {
        self.ask(Command::Flush, timeout)
    }

    /// Returns the state of the spool. `None` if it did not answer in this time, or has ended.
    pub fn status(&self, timeout: Duration) -> Option<SpoolStatus> {
        self.ask(Command::Status, timeout)
    }

    /// Writes all events recorded until now, and ends. `None` if it took longer than this time:
    /// then the thread is detached.
    pub fn stop(mut self, timeout: Duration) -> Option<SpoolStatus> {
        let status = self.ask(Command::Stop, timeout);
        match self.thread.take() {
            // It ends right after its answer. A panic in it cannot be handled here.
            Some(thread) if status.is_some() => drop(thread.join()),
            thread => std::mem::forget(thread),
        }
        status
    }

    fn ask(
        &self,
        command: impl FnOnce(Sender<SpoolStatus>) -> Command,
        timeout: Duration,
    ) -> Option<SpoolStatus> {
        // A forked child has no such thread, and its locks may be held for ever.
        if self.process != std::process::id() {
            return None;
        }
        let (from, (answer, answered)) = (Instant::now(), bounded(1));
        self.commands.send_timeout(command(answer), timeout).ok()?;
        let left = timeout.saturating_sub(from.elapsed());
        answered.recv_timeout(left).ok()
    }
}

impl Drop for Spooler {
    fn drop(&mut self) {
        let (empty, _) = bounded(1);
        let commands = std::mem::replace(&mut self.commands, empty);
        if self.process != std::process::id() {
            // Even dropping them can take a lock, which no thread of this process would ever
            // release.
            std::mem::forget((commands, self.thread.take()));
            return;
        }
        // Without a sender the thread ends.
        drop(commands);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Gives the calling thread an empty table of descriptors of its own. The program then cannot close
/// the thread's descriptors, and the thread's descriptors take no number in the program. Before
/// Linux 5.9 it does nothing.
fn keep_descriptors_apart() {
    // SAFETY: only the calling thread's table changes, and no code of the thread holds a
    // descriptor.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            0_u32,
            u32::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
}

struct Worker {
    follower: TimelineFollower,
    output: Output,
    /// Slots reached at the last poll, and the time of that poll.
    reached: u64,
    last: Instant,
}

impl Worker {
    fn run(&mut self, commands: &Receiver<Command>) {
        let _background = Background::new();
        let mut looked = Instant::now();
        let (capacity, _) = self.follower.progress();
        self.output.each = (capacity as usize / 4).clamp(1, FRAME_EVENTS);
        let mut pause = Duration::ZERO;
        loop {
            // A sender that no longer exists waits for no answer.
            match commands.recv_timeout(pause) {
                Ok(Command::Status(answer)) => {
                    let _ = answer.try_send(self.output.status());
                }
                Ok(Command::Flush(answer)) => {
                    self.flush();
                    let _ = answer.try_send(self.output.status());
                }
                Ok(Command::Stop(answer)) => {
                    self.flush();
                    let _ = answer.try_send(self.output.status());
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            pause = self.poll();
            if looked.elapsed() >= LOOK {
                if is_left_alone() {
                    return self.flush();
                }
                looked = Instant::now();
            }
        }
    }

    fn flush(&mut self) {
        let output = &mut self.output;
        self.follower.flush_with(&mut |events| output.take(events));
        self.output.missed(self.follower.missed().overwritten);
        self.output.write_all();
    }

    /// Follows the ring once; returns the time until the next poll.
    fn poll(&mut self) -> Duration {
        let output = &mut self.output;
        self.follower.poll_with(&mut |events| output.take(events));
        self.output.missed(self.follower.missed().overwritten);
        if self.output.since.elapsed() > PATIENCE {
            self.output.write_all();
        }
        let (capacity, reached) = self.follower.progress();
        let events = reached.saturating_sub(self.reached);
        let pause = pause(capacity, events, self.last.elapsed());
        (self.reached, self.last) = (reached, Instant::now());
        pause
    }
}

/// Returns the time until the next poll, if the last events came in this time. At twice their rate
/// at most an eighth of the ring is filled then. Even a sudden burst fills at most half of it.
fn pause(capacity: u64, events: u64, passed: Duration) -> Duration {
    if events > capacity / 8 {
        return Duration::ZERO;
    }
    let burst = Duration::from_secs(1) * u32::try_from(capacity / 2).unwrap_or(u32::MAX);
    let burst = burst / BURST as u32;
    let burst = burst.clamp(Duration::from_millis(1), Duration::from_millis(100));
    let eighth = u32::try_from(capacity / 16).unwrap_or(u32::MAX);
    let steady = u32::try_from(events.max(1)).map(|events| passed * eighth / events);
    burst.min(steady.unwrap_or(Duration::ZERO))
}

/// Output of the events: pending ones, frames and their area.
struct Output {
    area: Area,
    frame: Frame,
    trace: u64,
    pending: Vec<Tailed>,
    /// Time when the first pending event came.
    since: Instant,
    /// Events of a frame: never more than a quarter of the ring, which still holds them then.
    each: usize,
    stopped: Option<Tell>,
    /// Overwritten events that no frame has named yet.
    missed: u64,
    status: SpoolStatus,
}

impl Output {
    fn take(&mut self, mut events: &[Tailed]) {
        while !events.is_empty() {
            if self.pending.is_empty() {
                self.since = Instant::now();
            }
            let room = self.each.saturating_sub(self.pending.len()).max(1);
            let (now, later) = events.split_at(room.min(events.len()));
            self.pending.extend_from_slice(now);
            events = later;
            if self.pending.len() >= self.each {
                self.write_all();
            }
        }
    }

    fn missed(&mut self, overwritten: u64) {
        self.missed += overwritten.saturating_sub(self.status.missed);
        self.status.missed = overwritten;
    }

    /// Writes the pending events as a frame.
    fn write_all(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        // Events that a thread published late were handed on late. A reader merges whole frames,
        // not the events within.
        self.pending.sort_by_key(Tailed::rank);
        let events = self.pending.len() as u64;
        let header = Header {
            trace: self.trace,
            number: self.status.frames,
            missed: self.missed,
            ..Header::default()
        };
        let result = match self.status.stopped {
            Some(_) => Err(None),
            None => (self.frame.make(header, &self.pending))
                .and_then(|()| self.area.append(&self.frame.bytes))
                .map_err(Some),
        };
        match result {
            Ok(()) => {
                self.status.events += events;
                self.status.frames += 1;
                self.missed = 0;
            }
            Err(why) => {
                self.status.unwritten += events;
                if let (Some(why), Some(tell)) = (why, self.stopped.take()) {
                    // A truncated trace is noticed by the writer's own check.
                    if why.kind() != io::ErrorKind::UnexpectedEof {
                        tell(&why.to_string());
                    }
                    self.status.stopped = Some(why.to_string());
                }
            }
        }
        self.pending.clear();
    }

    fn status(&self) -> SpoolStatus {
        SpoolStatus {
            bytes: self.area.bytes(),
            ..self.status.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Event, Kind, Trace, WriterOptions};

    #[test]
    fn what_was_published_late_is_in_order_within_its_frame() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default());
        let writer = writer.unwrap();
        let mut output = Output {
            area: Area::new(&writer, SpoolOptions::new().limits),
            frame: Frame::new(SpoolOptions::LEVEL).unwrap(),
            trace: writer.wall_ns(),
            pending: Vec::new(),
            since: Instant::now(),
            each: 4,
            stopped: None,
            missed: 0,
            status: SpoolStatus::default(),
        };
        let event = |ticks, number| Tailed {
            words: Event::new(Kind::Alloc, Class::Device).words(ticks),
            number,
            chunk: 0,
        };
        // The thread of the third one was put off for longer than the others are held back.
        output.take(&[event(1000, 0), event(3000, 1)]);
        output.take(&[event(2000, 2)]);
        // And that of the last one until its frame was written.
        output.take(&[event(5000, 3), event(4000, 4)]);
        output.write_all();
        let trace = Trace::open(writer.path()).unwrap();
        let times: Vec<u64> = trace.events().map(|record| record.ns).collect();
        assert_eq!((times.len(), times.is_sorted()), (5, true), "{times:?}");
    }

    #[test]
    fn the_pause_fits_the_rate() {
        let ms = Duration::from_millis;
        assert_eq!(pause(1 << 20, 0, ms(20)), Duration::from_nanos(26_214_400));
        // 100,000 events a second.
        assert_eq!(
            pause(1 << 20, 1000, ms(10)),
            Duration::from_nanos(26_214_400)
        );
        // 10 million a second: 6.5 ms for 64 Ki events.
        assert!((ms(6)..ms(7)).contains(&pause(1 << 20, 100_000, ms(10))));
        assert_eq!(pause(1 << 20, 200_000, ms(10)), Duration::ZERO);
        assert_eq!(pause(64, 0, ms(1)), ms(1));
        assert_eq!(pause(1 << 34, 0, ms(1)), ms(100));
    }
}
