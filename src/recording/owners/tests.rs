use super::*;
use gpushim_trace::{Class, Trace, Writer, WriterOptions};

const MIB: u64 = 1 << 20;

/// A trace that is written step by step.
struct Made {
    writer: Writer,
    _folder: tempfile::TempDir,
}

impl Made {
    fn new() -> Made {
        let folder = tempfile::tempdir().expect("a folder");
        let options = WriterOptions {
            bytes: 1 << 16,
            ..WriterOptions::default()
        };
        let writer = Writer::create(&folder.path().join("run.trace"), &options).expect("a trace");
        writer.fact(RECORDED, "recorded");
        Made {
            writer,
            _folder: folder,
        }
    }

    fn event(kind: Kind, class: Class, address: u64, size: u64) -> Event {
        Event {
            device: 0,
            address,
            size,
            ..Event::new(kind, class)
        }
    }

    fn alloc(&self, class: Class, address: u64, size: u64) {
        let kind = match class {
            Class::Tensor => Kind::TensorAlloc,
            _ => Kind::Alloc,
        };
        self.writer
            .record_alloc(&Made::event(kind, class, address, size));
    }

    fn free(&self, class: Class, address: u64, size: u64) {
        let kind = match class {
            Class::Tensor => Kind::TensorFree,
            _ => Kind::Free,
        };
        self.writer
            .record_free(&Made::event(kind, class, address, size));
    }

    fn owner(&self, class: Class, address: u64, kept: Kept, path: &str, root: &str) {
        let words = OwnerWords {
            path: self.writer.intern(path),
            root: self.writer.intern(root),
            kept,
        };
        self.writer.record(&Event {
            extra: words.pack(),
            ..Made::event(Kind::Owner, class, address, 0)
        });
    }

    fn walked(&self, occasion: Occasion) {
        self.writer.record(&Event {
            extra: [1000, 0],
            ..Made::event(Kind::OwnersWalk, Class::Device, occasion as u64, 7)
        });
    }

    fn owners(&self) -> Owners {
        Owners::of(&Trace::open(self.writer.path()).expect("a trace"))
    }
}

/// The paths of the owners that blocks at an address had, in the order of their allocations.
fn paths(owners: &Owners, address: u64) -> Vec<&str> {
    let of_address = owners
        .of_block
        .iter()
        .filter(|((_, at, _), _)| *at == address);
    let mut found: Vec<_> = of_address
        .map(|((.., ticket), number)| (*ticket, &*owners.table[number.owner as usize].path))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, path)| path).collect()
}

#[test]
fn an_owner_is_of_the_block_that_was_live_then() {
    let made = Made::new();
    made.alloc(Class::Tensor, 0x1000, MIB);
    made.owner(
        Class::Tensor,
        0x1000,
        Kept::Named,
        "first",
        "main train.py:3",
    );
    made.walked(Occasion::High);
    made.free(Class::Tensor, 0x1000, MIB);
    made.alloc(Class::Tensor, 0x1000, MIB);
    made.owner(
        Class::Tensor,
        0x1000,
        Kept::Named,
        "second",
        "main train.py:9",
    );
    made.walked(Occasion::High);
    made.free(Class::Tensor, 0x1000, MIB);
    // Of nothing that is live.
    made.owner(
        Class::Tensor,
        0x1000,
        Kept::Named,
        "third",
        "main train.py:9",
    );
    made.walked(Occasion::High);
    let owners = made.owners();
    assert_eq!(paths(&owners, 0x1000), ["first", "second"]);
    assert_eq!((owners.walks, owners.walks_ns), (3, 3000));
}

#[test]
fn later_walks_correct_and_the_last_one_only_adds() {
    let made = Made::new();
    made.alloc(Class::Tensor, 0x1000, MIB);
    made.alloc(Class::Tensor, 0x2000, MIB);
    made.owner(
        Class::Tensor,
        0x1000,
        Kept::Named,
        "batch",
        "main train.py:3",
    );
    made.walked(Occasion::High);
    made.owner(
        Class::Tensor,
        0x1000,
        Kept::Named,
        "kept[*]",
        "main train.py:4",
    );
    made.walked(Occasion::Asked);
    made.owner(Class::Tensor, 0x1000, Kept::Unreachable, "", "");
    made.owner(Class::Tensor, 0x2000, Kept::Native, "", "");
    made.walked(Occasion::End);
    let owners = made.owners();
    assert_eq!(paths(&owners, 0x1000), ["kept[*]"]);
    assert_eq!(paths(&owners, 0x2000), [""]);
}

#[test]
fn what_is_kept_counts_and_not_what_is_in_use() {
    let made = Made::new();
    let stack = made.writer.stack(0, &[0x1000, 0x2000]);
    let tensor = |kind, address| Event {
        stack,
        ..Made::event(kind, Class::Tensor, address, MIB)
    };
    // Each pass makes four of one stack, keeps one, and drops the others when the next begins.
    for pass in 0..8_u64 {
        let at = |number: u64| (1 + 4 * pass + number) * MIB;
        for number in 0..4 {
            let event = tensor(Kind::TensorAlloc, at(number));
            made.writer.record_alloc(&event);
        }
        if pass < 3 {
            made.owner(
                Class::Tensor,
                at(0),
                Kept::Named,
                "kept[*]",
                "main train.py:3",
            );
        }
        for number in 1..4 {
            made.owner(
                Class::Tensor,
                at(number),
                Kept::Named,
                "batch",
                "step train.py:9",
            );
        }
        made.walked(Occasion::High);
        for number in 1..4 {
            made.free(Class::Tensor, at(number), MIB);
        }
    }
    let owners = made.owners();
    let trace = Trace::open(made.writer.path()).expect("a trace");
    let of_stack = owners.of_stack(&trace, stack);
    let told: Vec<_> = of_stack
        .iter()
        .map(|one| (one.owner.path.as_str(), one.blocks, one.bytes))
        .collect();
    assert_eq!(told, [("kept[*]", 3, 3 * MIB)]);
}

#[test]
fn a_function_is_one_root_whatever_line_it_is_in() {
    let made = Made::new();
    for (address, root) in [(0x1000, "serve app.py:3"), (0x2000, "serve app.py:57")] {
        made.alloc(Class::Device, address, MIB);
        made.owner(Class::Device, address, Kept::Named, "cache[*]", root);
    }
    made.walked(Occasion::High);
    let owners = made.owners();
    assert_eq!(owners.table.len(), 1);
    assert_eq!(owners.table[0].in_words(), "`cache[*]` of `serve app.py`");
}

#[test]
fn an_announcement_may_name_an_address_within_a_block() {
    let made = Made::new();
    made.alloc(Class::Device, 0x10_0000, MIB);
    made.owner(Class::Device, 0x10_8000, Kept::Announced, "KV cache", "");
    made.owner(Class::Device, 0x50_0000, Kept::Announced, "nothing", "");
    let owners = made.owners();
    assert_eq!(paths(&owners, 0x10_0000), ["KV cache"]);
    assert_eq!(owners.table[0].in_words(), "KV cache");
}

#[test]
fn without_the_fact_nothing_is_read() {
    let (_folder, trace) = crate::ledger::sample::Training::default().record();
    assert!(Owners::of(&trace).is_empty());
}
