//! Processes that share a ledger, and are killed.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpushim_ledger::{Member, Scope, Terms, View};
use memmap2::MmapRaw;

const DEVICE: [u8; 16] = [7; 16];
const LIMIT: u64 = 1000;
/// Bytes that a process holds at most at once, in one piece.
const MOST: u64 = 96;
const THREADS: u64 = 8;
/// Time after which bytes of a killed process that are not free fail a test on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn terms(guarantee: u64) -> Terms {
    Terms {
        limit: LIMIT,
        guarantee,
        rank: Some(3),
        name: "worker é".repeat(8),
    }
}

fn join(folder: &Path, guarantee: u64) -> Member {
    let scope = Scope::File(folder.join("ledger"));
    Member::join(&scope, terms(guarantee)).expect("a member")
}

/// Starts a process that runs `worker`.
fn start(folder: &Path, does: &str) -> Child {
    start_by(Command::new(own_program()), folder, does)
}

fn own_program() -> std::path::PathBuf {
    std::env::current_exe().expect("this program")
}

/// Starts a process as [`start`], by a command that this program's arguments follow.
fn start_by(mut command: Command, folder: &Path, does: &str) -> Child {
    command
        .args(["--exact", "worker", "--ignored", "--nocapture"])
        .envs([
            ("LEDGER_DOES", does),
            ("LEDGER_AT", folder.to_str().expect("a path")),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// Waits until the process has written this line.
fn until(child: &mut Child, line: &str) {
    let output = child.stdout.as_mut().expect("its output");
    let (mut told, mut byte) = (String::new(), [0]);
    while !told.ends_with(line) {
        assert_eq!(output.read(&mut byte).expect("read"), 1, "{told}");
        told.push(char::from(byte[0]));
    }
}

#[test]
#[ignore = "the process of other tests"]
fn worker() {
    let folder = std::env::var("LEDGER_AT").expect("a folder");
    let does = std::env::var("LEDGER_DOES").expect("a word");
    let folder = Path::new(&folder);
    if let Some(held) = does.strip_prefix("hold ") {
        let member = join(folder, 0);
        let device = member.device(DEVICE).expect("a place");
        assert!(member.take(device, held.parse().expect("bytes")));
        println!("holds");
        std::thread::sleep(Duration::from_secs(60));
    }
    if let Some(seconds) = does.strip_prefix("churn ") {
        churn(folder, Duration::from_millis(seconds.parse().expect("ms")));
    }
}

/// Bytes that all processes use, as the driver would count them.
fn truth(folder: &Path) -> MmapRaw {
    let path = folder.join("truth");
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("the file");
    MmapRaw::map_raw(&file).expect("mapped")
}

fn churn(folder: &Path, time: Duration) {
    let member = join(folder, 0);
    let device = member.device(DEVICE).expect("a place");
    let map = truth(folder);
    // SAFETY: the map has 8 bytes, and lives until the end of this function.
    let truth = unsafe { &*map.as_ptr().cast::<AtomicU64>() };
    let begun = Instant::now();
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (member, count) = (&member, &count);
            scope.spawn(move || {
                let mut random = 12345 + thread * 77 + u64::from(std::process::id());
                while begun.elapsed() < time {
                    random = random
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let bytes = 1 + (random >> 33) % MOST;
                    count.fetch_add(1, Ordering::Relaxed);
                    if !member.take(device, bytes) {
                        continue;
                    }
                    let now = truth.fetch_add(bytes, Ordering::SeqCst) + bytes;
                    assert!(now <= LIMIT, "{now} bytes of {LIMIT}");
                    if random >> 60 == 0 {
                        std::thread::yield_now();
                    }
                    truth.fetch_sub(bytes, Ordering::SeqCst);
                    member
                        .held(device)
                        .expect("a place")
                        .fetch_sub(bytes, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(
        member.held(device).expect("a place").load(Ordering::SeqCst),
        0
    );
    println!("{} requests", count.into_inner());
}

#[test]
fn no_processes_exceed_the_limit_together() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("truth"), [0; 8]).expect("written");
    let (workers, does) = match std::env::var_os("GPUSHIM_TEST_LONG") {
        Some(_) => (8, "churn 180000"),
        None => (4, "churn 1500"),
    };
    let workers: Vec<_> = (0..workers).map(|_| start(folder.path(), does)).collect();
    let mut requests = 0;
    for worker in workers {
        let output = worker.wait_with_output().expect("waited");
        assert!(output.status.success());
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = told.lines().find(|line| line.ends_with(" requests"));
        let words = line.and_then(|line| line.split_whitespace().rev().nth(1));
        requests += words
            .and_then(|number| number.parse::<u64>().ok())
            .expect("a number");
    }
    println!("{requests} requests");
    let view = View::read(&folder.path().join("ledger")).expect("a ledger");
    assert_eq!(view.entries, [], "all was given back");
}

#[test]
fn what_fits_is_never_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let member = join(folder.path(), 0);
    let device = member.device(DEVICE).expect("a place");
    // Together they never need more than the limit.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    assert!(member.take(device, LIMIT / 8));
                    member
                        .held(device)
                        .expect("held")
                        .fetch_sub(LIMIT / 8, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(member.take(device, LIMIT));
    assert!(!member.take(device, 1));
    assert_eq!(member.free(device), 0);
}

#[test]
fn the_bytes_of_a_killed_process_are_free_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let member = join(folder.path(), 0);
    let device = member.device(DEVICE).expect("a place");
    for _ in 0..3 {
        let mut other = start(folder.path(), "hold 600");
        until(&mut other, "holds\n");
        assert!(!member.take(device, 401), "the other process has 600");
        assert!(member.take(device, 400));
        let peers = member.peers(device);
        assert_eq!(peers.len(), 1);
        let peer = &peers[0];
        assert_eq!((peer.pid, peer.held, peer.rank), (other.id(), 600, Some(3)));
        assert_eq!((peer.limit, peer.device), (LIMIT, DEVICE));
        assert!(
            terms(0).name.starts_with(&peer.name) && peer.name.len() > 60,
            "{}",
            peer.name
        );
        other.kill().expect("killed");
        let begun = Instant::now();
        // It is not waited for: a parent may never do that.
        while !member.take(device, 600) {
            assert!(begun.elapsed() < PATIENCE);
        }
        assert_eq!(member.held_by_all(device), 1000);
        assert_eq!(member.peers(device), []);
        member
            .held(device)
            .expect("held")
            .store(0, Ordering::SeqCst);
        other.wait().expect("waited");
    }
    let used = View::read(member.path()).expect("a ledger").entries;
    assert_eq!(used, []);
}

/// A process in another namespace of process ids, as in another container: this one knows of its
/// end by its lock, and it takes nothing from this one.
#[test]
fn processes_of_another_container_are_proven_by_their_locks() {
    let mut unshared = Command::new("unshare");
    unshared.args(["-Urfp", "--kill-child"]);
    if !unshared
        .arg("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("skipped: `unshare -Urfp` is not allowed here");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let member = join(folder.path(), 0);
    let device = member.device(DEVICE).expect("a place");
    assert!(member.take(device, 300));
    let start = |does: &str| {
        let mut command = Command::new("unshare");
        command.args(["-Urfp", "--kill-child"]).arg(own_program());
        start_by(command, folder.path(), does)
    };
    let mut other = start("hold 600");
    until(&mut other, "holds\n");
    assert!(!member.take(device, 101), "the other process has 600");
    let peers = member.peers(device);
    assert_eq!((peers.len(), peers[0].held), (1, 600));
    let mut more = start("hold 101");
    assert!(
        !more.wait().expect("waited").success(),
        "both others hold theirs"
    );
    other.kill().expect("killed");
    other.wait().expect("waited");
    let begun = Instant::now();
    while !member.take(device, 700) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", member.peers(device));
    }
    assert_eq!(member.peers(device), []);
}

#[test]
fn a_guarantee_is_left_to_its_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let member = join(folder.path(), 300);
    let device = member.device(DEVICE).expect("a place");
    assert!(member.take(device, 1), "from now on 300 are its own");
    let mut other = start(folder.path(), "hold 700");
    until(&mut other, "holds\n");
    assert_eq!(member.free(device), 299);
    assert!(!member.take(device, 300));
    assert!(member.take(device, 299));
    let mut more = start(folder.path(), "hold 1");
    assert!(!more.wait().expect("waited").success(), "nothing is left");
    other.kill().expect("killed");
    other.wait().expect("waited");
    assert!(member.take(device, 700), "more than the guarantee");
}

#[test]
fn a_guarantee_that_is_not_there_any_more_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut other = start(folder.path(), "hold 800");
    until(&mut other, "holds\n");
    let member = join(folder.path(), 300);
    let device = member.device(DEVICE).expect("a place");
    assert!(member.take(device, 200));
    assert!(!member.take(device, 1));
    other.kill().expect("killed");
    other.wait().expect("waited");
}

#[test]
fn damaged_files_and_other_versions_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger");
    let scope = Scope::File(path.clone());
    let refused = || {
        Member::join(&scope, terms(0))
            .expect_err("refused")
            .to_string()
    };
    std::fs::write(&path, "no ledger").expect("written");
    assert!(refused().contains("damaged"), "{}", refused());
    assert!(View::read(&path).is_err());
    std::fs::remove_file(&path).expect("removed");
    drop(Member::join(&scope, terms(0)).expect("a member"));
    let change = |at: usize, byte: u8| {
        let mut bytes = std::fs::read(&path).expect("read");
        bytes[at] = byte;
        std::fs::write(&path, bytes).expect("written");
    };
    change(8, 9);
    assert!(refused().contains("of version 9"), "{}", refused());
    change(0, 1);
    assert!(refused().contains("damaged"), "{}", refused());
    // Killed while it created the file, a process leaves only zeros.
    let zeros = vec![0; std::fs::metadata(&path).expect("a file").len() as usize];
    std::fs::write(&path, zeros).expect("written");
    drop(Member::join(&scope, terms(0)).expect("a member"));
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("made");
    assert!(refused().starts_with("open the ledger"), "{}", refused());
    let nowhere = Scope::File(folder.path().join("none/ledger"));
    assert!(Member::join(&nowhere, terms(0)).is_err());
}

#[test]
fn processes_of_an_earlier_boot_have_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let member = join(folder.path(), 0);
    let device = member.device(DEVICE).expect("a place");
    assert!(member.take(device, 900));
    let path = member.path().to_path_buf();
    // As if the machine had been switched off.
    std::mem::forget(member);
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[40] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let member = join(folder.path(), 0);
    let device = member.device(DEVICE).expect("a place");
    assert!(member.take(device, LIMIT));
}

#[test]
fn devices_have_places_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let member = join(folder.path(), 0);
    let zero = member.device([0; 16]).expect("a place");
    let place = |last: u8| {
        let mut uuid = DEVICE;
        uuid[15] = last;
        member.device(uuid)
    };
    let places: Vec<_> = (0..63).map(|last| place(last).expect("a place")).collect();
    assert_eq!(places, (zero + 1..64).collect::<Vec<_>>());
    assert_eq!(place(63), None, "the ledger is full");
    assert_eq!(place(5), Some(places[5]));
    assert!(member.take(places[0], LIMIT));
    assert!(member.take(places[1], LIMIT), "each device has the limit");
    let devices = View::read(member.path()).expect("a ledger").entries;
    let devices: Vec<_> = devices.iter().map(|entry| entry.device[15]).collect();
    assert_eq!(devices, [0, 1]);
}
