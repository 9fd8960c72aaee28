//! Measures the mode `full` on recorded request sequences: bytes an event, and how many events a
//! second the spool's thread can take.
//!
//! `zcat x.csv.gz > x.csv; cargo run --release --example spool_rate -- x.csv …`
//!
//! A file has lines `op,ptr,size,stream,thread,time_ns`, `op` being `alloc` or `free`. `SECONDS`
//! (default 5) is how long each rate is held, `RING` (MiB, default 64) the size of the ring.

use std::time::{Duration, Instant};

use gpushim_trace::spool::{SpoolLimits, SpoolOptions, SpoolStatus, Spooler};
use gpushim_trace::{Class, Cost, Event, Kind, Trace, Writer, WriterOptions, flags};

/// The requests as events of a pool: the size stands for the place in the program that asked.
fn events(path: &str) -> Vec<Event> {
    let text = std::fs::read_to_string(path).expect("a file of requests");
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).expect("hexadecimal"),
        None => text.parse().unwrap_or(0),
    };
    let mut sizes = std::collections::HashMap::new();
    let event = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let address = number(fields[1]);
        let is_alloc = fields[0] == "alloc";
        let size = if is_alloc {
            sizes.insert(address, number(fields[2]));
            number(fields[2])
        } else {
            sizes.remove(&address).unwrap_or(0)
        };
        let kind = if is_alloc { Kind::Alloc } else { Kind::Free };
        Event {
            flags: flags::HIT,
            device: 0,
            thread: 1000 + number(fields[4]) as u32,
            stack: (size.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as u32,
            address,
            size,
            extra: [number(fields[3]), Cost::pack(0, size)],
            ..Event::new(kind, Class::PoolAsync)
        }
    };
    text.lines().skip(1).map(event).collect()
}

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

struct Run {
    dir: std::path::PathBuf,
    writer: Writer,
}

impl Run {
    fn new() -> Run {
        let dir = std::env::temp_dir().join(format!("spool_rate-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder for the trace");
        let bytes = env("RING", 64) << 20;
        let options = WriterOptions {
            bytes,
            ..WriterOptions::default()
        };
        let writer = Writer::create(&dir.join("a.trace"), &options).expect("a trace");
        while writer.prefault(1 << 40) {}
        Run { dir, writer }
    }

    fn spooler(&self, level: i32) -> Spooler {
        let limits = SpoolLimits {
            max_bytes: None,
            floor: 0,
        };
        let options = SpoolOptions {
            limits,
            level,
            ..SpoolOptions::new()
        };
        Spooler::start(&self.writer, options).expect("a spool")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn stop(spooler: Spooler) -> SpoolStatus {
    spooler.stop(Duration::from_secs(60)).expect("an answer")
}

/// Bytes of the spool per event.
fn each(status: &SpoolStatus) -> f64 {
    status.bytes as f64 / status.events.max(1) as f64
}

/// Processor time of this process, s.
fn processor() -> f64 {
    // SAFETY: rusage is plain numbers, for which zeros are valid, and the pointer is to a local
    // one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn main() {
    let seconds = env("SECONDS", 5);
    for path in std::env::args().skip(1) {
        let events = events(&path);
        println!("{path}: {} requests", events.len());
        // A ring filled to 9/10, without another working thread.
        for level in 1..=3 {
            let run = Run::new();
            let count = (env("RING", 64) << 20) / 64 * 9 / 10;
            for event in events.iter().cycle().take(count as usize) {
                run.writer.record(event);
            }
            let (begin, used) = (Instant::now(), processor());
            let status = stop(run.spooler(level));
            let rate = status.events as f64 / begin.elapsed().as_secs_f64() / 1e6;
            let time = (processor() - used) * 1e9 / status.events as f64;
            println!(
                "  level {level}, what the ring holds at once: {rate:.2} million events a second, {time:.0} ns of \
                 the processor and {:.2} bytes an event",
                each(&status)
            );
        }
        for rate in [100_000_u64, 1_000_000, 4_000_000] {
            let run = Run::new();
            let spooler = run.spooler(SpoolOptions::LEVEL);
            let (begin, mut count) = (Instant::now(), 0_u64);
            for event in events.iter().cycle() {
                // Between half and one and a half times the mean pause, as programs are not clocks.
                let due = (count * 2 + (count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63))
                    * 500_000_000
                    / rate;
                while begin.elapsed() < Duration::from_nanos(due) {
                    std::hint::spin_loop();
                }
                run.writer.record(event);
                count += 1;
                if begin.elapsed() > Duration::from_secs(seconds) {
                    break;
                }
            }
            let spent = begin.elapsed().as_secs_f64();
            let status = stop(spooler);
            let trace = Trace::open(run.writer.path()).expect("a trace");
            println!(
                "  {:.2} million a second asked, {:.2} recorded, for {spent:.1} s: {:.2} bytes an event, {} of {count} lost",
                rate as f64 / 1e6,
                count as f64 / spent / 1e6,
                each(&status),
                trace.lost(),
            );
        }
    }
}
