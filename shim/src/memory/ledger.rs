//! The ledger of the processes that share the limit (`GPUSHIM_LIMIT_SCOPE`), and this process's
//! part in it.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, OnceLock};

use gpushim_config::{Limit, LimitScope, Log};
use gpushim_ledger::{Member, Terms, View};

use crate::base::lock::lock;
use crate::base::settings;
use crate::base::stderr::say;
use crate::cuda::devices;
use crate::memory::miss;
use crate::record::trace;

/// Number of device ordinals with a part in a ledger.
const DEVICES: usize = 64;

/// Most times that the peers are written into the trace.
const MOST_TOLD: usize = 16;

/// State of the shared limit: nothing before the first use.
static JOINED: OnceLock<Option<Member>> = OnceLock::new();

/// Part of the ledger for each device ordinal, looked up once: a count must not change its place.
static PARTS: [OnceLock<Option<Part>>; DEVICES] = [const { OnceLock::new() }; DEVICES];

/// This process's part of the ledger for one device.
#[derive(Clone, Copy)]
pub struct Part {
    member: &'static Member,
    device: usize,
    held: &'static AtomicU64,
}

impl Part {
    /// Returns the part for a device. `None`: the limit is not shared, or the device is unknown.
    #[inline]
    pub fn of(device: i32) -> Option<Part> {
        let place = PARTS.get(usize::try_from(device).ok()?)?;
        *place.get_or_init(|| {
            let member = member()?;
            let index = member.device(devices::uuid(device)?)?;
            let held = member.held(index)?;
            // The background thread asks NVML what the process uses.
            miss::begins();
            Some(Part {
                member,
                device: index,
                held,
            })
        })
    }

    /// Count of the bytes that this process holds.
    pub fn held(self) -> &'static AtomicU64 {
        self.held
    }

    /// Takes bytes, if the limit of all processes allows it.
    pub fn take(self, bytes: u64) -> bool {
        self.member.take(self.device, bytes)
    }

    /// Returns the bytes that this process may still take.
    pub fn free(self) -> u64 {
        self.member.free(self.device)
    }

    /// Writes into the trace, after a request was refused: the bytes `rest` of this process that are
    /// no allocation, and a line for each other process, of bytes, process id, rank or `-`, and name.
    pub fn tell_peers(self, ordinal: i32, rest: u64) {
        let peers = self.member.peers(self.device);
        let in_words: Vec<_> = peers
            .iter()
            .map(|peer| {
                let rank = peer.rank.map_or("-".to_string(), |rank| rank.to_string());
                format!("{} {} {rank} {}", peer.held, peer.pid, peer.name)
            })
            .collect();
        static TOLD: Mutex<Vec<(i32, u64, String)>> = Mutex::new(Vec::new());
        let mut told = lock(&TOLD);
        let now = (ordinal, rest, in_words.join("\n"));
        if told.len() < MOST_TOLD && told.last() != Some(&now) {
            trace::fact(&format!("limit.rest.{ordinal}"), &rest.to_string());
            trace::fact(&format!("limit.peers.{ordinal}"), &now.2);
            told.push(now);
        }
    }
}

/// Returns this process's membership, and joins the ledger at the first call. `None`: the limit is
/// this process's alone.
fn member() -> Option<&'static Member> {
    let joined = JOINED.get_or_init(|| {
        let limit = settings::config().limit?;
        let scope = settings::config().limit_scope.ledger(settings::variable);
        let result = scope.and_then(|scope| {
            let join = |scope| Member::join(&scope, terms(limit));
            scope
                .map(join)
                .transpose()
                .map_err(|error| error.to_string())
        });
        match result {
            Ok(member) => {
                if let Some(member) = &member {
                    trace::fact("limit.ledger", &member.path().display().to_string());
                }
                member
            }
            Err(why) => {
                let told = format!("failed to {why}; GPUSHIM_LIMIT holds for this process alone");
                if settings::config().log >= Log::Error {
                    say(&told);
                }
                trace::fact("limit.ledger.problem", &why);
                None
            }
        }
    });
    joined.as_ref()
}

fn terms(limit: Limit) -> Terms {
    Terms {
        limit: limit.bytes,
        guarantee: limit.guarantee,
        rank: gpushim_config::rank(settings::variable),
        name: name(),
    }
}

/// Returns the command line of the process without folders: a name for people.
fn name() -> String {
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let file = |argument: &[u8]| {
        let argument = String::from_utf8_lossy(argument).into_owned();
        let file = Path::new(&argument).file_name();
        file.map_or_else(
            || argument.clone(),
            |file| file.to_string_lossy().into_owned(),
        )
    };
    let arguments = arguments.split(|byte| *byte == 0).take(4).map(file);
    arguments.collect::<Vec<_>>().join(" ").trim().to_string()
}

/// Returns the random identity of the ledger, by which processes recognise their peers.
pub fn id() -> Option<[u8; 16]> {
    let [low, high] = member()?.id().map(u128::from);
    Some((high << 64 | low).to_le_bytes())
}

/// Returns the bytes that this process may still take of the device with a UUID. `None`: the limit
/// is not shared. A process without a part only reads the ledger: it may fork before it uses CUDA.
pub fn free(uuid: [u8; 16]) -> Option<u64> {
    if let Some(joined) = JOINED.get() {
        let member = joined.as_ref()?;
        return Some(member.free(member.device(uuid)?));
    }
    let config = settings::config();
    let path = config.limit_scope.ledger(settings::variable).ok()??.path();
    let view = path.and_then(|path| View::read(&path)).ok()?;
    let its = view.entries.iter().filter(|entry| entry.device == uuid);
    let held = its.map(|entry| entry.held.max(entry.guaranteed)).sum();
    Some(config.limit?.bytes.saturating_sub(held))
}

/// True if `GPUSHIM_LIMIT` is in force for the processes that were asked for.
fn is_in_force() -> bool {
    let config = settings::config();
    config.limit.is_some() && (config.limit_scope == LimitScope::Process || member().is_some())
}

/// True unless a limit is required (`GPUSHIM_LIMIT_REQUIRED`) and not in force: no context may be
/// made then. The reason is written once.
pub fn admits() -> bool {
    static ADMITS: OnceLock<bool> = OnceLock::new();
    *ADMITS.get_or_init(|| {
        let admits = !settings::config().limit_required || is_in_force();
        if !admits {
            say("GPUSHIM_LIMIT_REQUIRED is on and no limit is in force; no context is made (error 800)");
        }
        admits
    })
}
