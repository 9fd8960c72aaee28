//! Cost of charging a request to a ledger, and of giving it back: `cargo bench -p gpushim-ledger`.
//!
//! Each run charges a thousand requests, so that the figure divided by 1000 is without the bench's
//! own cost.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use divan::Bencher;
use gpushim_ledger::{Member, Scope, Terms};

const DEVICE: [u8; 16] = [7; 16];
const BYTES: u64 = 2 << 20;

fn main() {
    // A process of its own for each other member: see `with_peers`.
    match std::env::var_os("LEDGER") {
        Some(path) => {
            let member = join(&PathBuf::from(path));
            let device = member.device(DEVICE).expect("a place");
            assert!(member.take(device, BYTES));
            println!("there");
            std::thread::sleep(Duration::from_secs(600));
        }
        None => divan::main(),
    }
}

fn join(path: &Path) -> Member {
    let terms = Terms {
        limit: 64 << 30,
        ..Terms::default()
    };
    Member::join(&Scope::File(path.to_path_buf()), terms).expect("a member")
}

fn start(path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .env("LEDGER", path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut line = String::new();
    let output = child.stdout.take().expect("its output");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("read");
    child
}

#[divan::bench(args = [0, 7, 63])]
fn take_and_give_1000(bencher: Bencher, peers: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger");
    let mut others: Vec<_> = (0..peers).map(|_| start(&path)).collect();
    let member = join(&path);
    let device = member.device(DEVICE).expect("a place");
    let held = member.held(device).expect("a place");
    bencher.bench_local(|| {
        for _ in 0..1000 {
            assert!(member.take(device, BYTES));
            held.fetch_sub(BYTES, Ordering::SeqCst);
        }
    });
    for other in &mut others {
        other.kill().expect("killed");
        other.wait().expect("waited");
    }
}
