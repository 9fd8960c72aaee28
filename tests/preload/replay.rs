//! `gpushim replay` against the shim itself.
//!
//! The same requests under the same policy hold the same memory at every moment.

use gpushim_alloc as alloc;
use gpushim_command::ledger::Focus;
use gpushim_command::recording::{self, Recording};
use gpushim_command::replay::{Policy, ReplayDevice};
use gpushim_command::requests::{Op, Requests};
use gpushim_trace::{Kind, Layer};

use crate::support::{Outcome, Run, program};

/// The trace that a run left.
pub fn open(outcome: &Outcome) -> Box<dyn Recording> {
    let name = outcome
        .files()
        .into_iter()
        .find(|name| name.ends_with(".trace"));
    let path = outcome.folder().join(name.expect("a trace"));
    recording::open(&path).expect("a sound trace")
}

/// Bytes held by the pool after each allocation, by the trace's events of reserved and released
/// memory.
pub fn recorded(outcome: &Outcome) -> Vec<u64> {
    let trace = open(outcome);
    let (mut held, mut curve) = (0, Vec::new());
    for record in trace.events() {
        match record.event.kind {
            Kind::Reserve => held += record.event.size,
            Kind::Release => held -= record.event.size,
            Kind::Alloc => curve.push(held),
            _ => {}
        }
    }
    curve
}

/// Memory held after each allocation of a replay.
fn replayed(outcome: &Outcome, policy: alloc::Policy, device: &ReplayDevice) -> Vec<u64> {
    let trace = open(outcome);
    let focus = Focus {
        layer: Layer::Device,
        device: None,
    };
    let mut devices = Requests::of(&*trace, focus);
    let requests = devices.remove(&0).expect("requests of the one device");
    assert_eq!(requests.odd(), &Default::default());
    let policy = Policy::Gpushim(policy);
    let mut allocator = policy.build(device, &requests);
    let mut curve = Vec::new();
    for request in requests.iter() {
        match request.op {
            Op::Allocate => {
                allocator.allocate(&request).expect("memory");
                curve.push(allocator.reserved());
            }
            Op::Free => allocator.free(&request),
            Op::Trim => allocator.trim(&request),
            Op::Done => panic!("not of this program: {request:?}"),
        }
    }
    curve
}

fn same(family: &str, name: &str, policy: alloc::Policy) {
    same_with(&[family, "40"], name, policy);
}

fn same_with(arguments: &[&str], name: &str, policy: alloc::Policy) {
    same_on(&ReplayDevice::default(), arguments, (name, None), policy);
}

fn same_on(
    device: &ReplayDevice,
    arguments: &[&str],
    (name, page): (&str, Option<&str>),
    policy: alloc::Policy,
) {
    let outcome = Run::new(program("requests"))
        .args(arguments)
        .env("GPUSHIM_PAGE", page.unwrap_or_default())
        .env("GPUSHIM_POLICY", name)
        .shim();
    assert_eq!(outcome.stdout, "done\n");
    let (was, is) = (recorded(&outcome), replayed(&outcome, policy, device));
    assert_eq!(was.len(), 40 * 48, "allocations");
    let highest = was.iter().max();
    assert!(highest.is_some_and(|bytes| *bytes > 1 << 20), "{highest:?}");
    let differs = was.iter().zip(&is).position(|(was, is)| was != is);
    assert_eq!(
        differs.map(|at| (at, was[at], is[at])),
        None,
        "{arguments:?} {name} {page:?}"
    );
    assert_eq!(was.len(), is.len());
}

/// Memory that the pool frees on request of the program is in the trace, too.
#[test]
fn what_the_program_gives_back_is_given_back() {
    for (name, policy) in [
        ("vmm", alloc::Policy::Vmm),
        ("blocks", alloc::Policy::Blocks),
    ] {
        same_with(&["streams", "40", "trimmed"], name, policy);
    }
}

#[test]
fn blocks_hold_the_same() {
    same("plain", "blocks", alloc::Policy::Blocks);
    same("streams", "blocks", alloc::Policy::Blocks);
}

#[test]
fn larger_pages_hold_the_same() {
    for family in ["plain", "streams"] {
        for (name, page) in [("4M", 4 << 20), ("16M", 16 << 20), ("64M", 64 << 20)] {
            let device = ReplayDevice {
                page,
                ..ReplayDevice::default()
            };
            let arguments = [family, "40"];
            same_on(&device, &arguments, ("vmm", Some(name)), alloc::Policy::Vmm);
        }
    }
}

#[test]
fn pages_hold_the_same() {
    same("plain", "vmm", alloc::Policy::Vmm);
    same("streams", "vmm", alloc::Policy::Vmm);
}
