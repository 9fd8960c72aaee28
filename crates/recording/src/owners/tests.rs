use super::*;
use gpushim_trace::{
    Class, Event, Kind, OwnerWords, Site, StackNode, Trace, Writer, WriterOptions,
};

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
        writer.fact("owners", "recorded");
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
        self.walked_with(occasion, 0);
    }

    fn walked_with(&self, occasion: Occasion, flags: u64) {
        self.writer.record(&Event {
            extra: [1, flags],
            ..Made::event(Kind::OwnersWalk, Class::Device, occasion as u64, 7)
        });
    }

    fn owners(&self) -> Owners {
        Owners::of(&Trace::open(self.writer.path()).expect("a trace"))
    }
}

/// Returns the paths of the owners that blocks at an address had, in the order of their
/// allocations.
fn paths(owners: &Owners, address: u64) -> Vec<&str> {
    let of_address = owners
        .of_block
        .iter()
        .filter(|((_, at, _), _)| *at == address);
    let path = |told: &Told| Some(&*owners.table[told.owner? as usize].path);
    let mut found: Vec<_> = of_address
        .filter_map(|((.., ticket), told)| Some((*ticket, path(told)?)))
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
    // An owner of an address where nothing is live.
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
    assert_eq!((owners.walks, owners.walks_ns), (3, 3));
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
    // Each pass makes four blocks of one stack, keeps one, and frees the others when the next
    // begins.
    for pass in 0..8_u64 {
        let at = |number: u64| (1 + 4 * pass + number) * MIB;
        for number in 0..4 {
            let event = tensor(Kind::TensorAlloc, at(number));
            made.writer.record_alloc(&event);
        }
        for earlier in 0..=pass {
            made.owner(
                Class::Tensor,
                (1 + 4 * earlier) * MIB,
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
    assert_eq!(told, [("kept[*]", 5, 5 * MIB)]);
}

#[test]
fn a_graph_does_not_keep_what_is_older_than_its_nodes() {
    let made = Made::new();
    let told = |address| made.owner(Class::Tensor, address, Kept::Graph, "loss", "train a.py:1");
    let kept = |address| {
        let owners = made.owners();
        let of_address = owners
            .of_block
            .iter()
            .find(|((_, at, _), _)| *at == address);
        let number = of_address.and_then(|(_, told)| told.owner);
        number.map(|number| owners.table[number as usize].kept)
    };
    made.alloc(Class::Tensor, 0x1000, MIB);
    told(0x1000);
    made.walked_with(Occasion::High, walk::NEW_GRAPHS);
    assert_eq!(kept(0x1000), Some(Kept::Graph));
    // The graph of the next step: the first block has been there since the walk before.
    made.alloc(Class::Tensor, 0x2000, MIB);
    told(0x1000);
    told(0x2000);
    made.walked_with(Occasion::High, walk::NEW_GRAPHS);
    assert_eq!(kept(0x1000), None);
    assert_eq!(kept(0x2000), Some(Kept::Graph));
    // A graph that grows may have both.
    told(0x2000);
    made.walked_with(Occasion::High, 0);
    assert_eq!(kept(0x2000), Some(Kept::Graph));
}

#[test]
fn operators_of_one_line_have_their_owners_together() {
    let made = Made::new();
    let text = |text| made.writer.intern(text);
    let site = Site {
        name: text("step"),
        file: text("train.py"),
        line: 7,
    };
    let site = made
        .writer
        .site(&[7; 4], || Some(site))
        .expect("room for it");
    let line = made.writer.stack_child(0, StackNode::Site(site));
    let stacks = [0x1000, 0x2000, 0x3000].map(|address| made.writer.stack(line, &[address]));
    for (stack, address) in stacks.into_iter().zip([MIB, 2 * MIB, 3 * MIB]) {
        let event = Made::event(Kind::TensorAlloc, Class::Tensor, address, MIB);
        made.writer.record_alloc(&Event { stack, ..event });
    }
    for address in [MIB, 2 * MIB] {
        made.owner(
            Class::Tensor,
            address,
            Kept::Named,
            "kept[*]",
            "main a.py:3",
        );
    }
    made.walked(Occasion::High);
    assert_eq!(
        of_site(&made, stacks[2]),
        [(Kept::Named, "kept[*]".into(), 2)]
    );
}

/// Allocates four blocks of one call site.
fn four(made: &Made) -> u32 {
    let stack = made.writer.stack(0, &[0x1000]);
    for number in 1..=4 {
        let event = Made::event(Kind::TensorAlloc, Class::Tensor, number * MIB, MIB);
        made.writer.record_alloc(&Event { stack, ..event });
    }
    stack
}

/// Returns the owners of a call site's blocks: the way in which they are kept, the path, and their
/// number.
fn of_site(made: &Made, stack: u32) -> Vec<(Kept, String, u64)> {
    let trace = Trace::open(made.writer.path()).expect("a trace");
    let owned = made.owners().of_stack(&trace, stack);
    let told = owned.into_iter();
    told.map(|one| (one.owner.kept, one.owner.path, one.blocks))
        .collect()
}

fn at_end(made: &Made, blocks: std::ops::RangeInclusive<u64>) {
    for number in blocks {
        made.owner(Class::Tensor, number * MIB, Kept::Unreachable, "", "");
    }
    made.walked(Occasion::End);
}

#[test]
fn what_only_the_end_finds_counts_where_no_walk_was_made_before() {
    let made = Made::new();
    let stack = four(&made);
    at_end(&made, 1..=4);
    assert_eq!(
        of_site(&made, stack),
        [(Kept::Unreachable, String::new(), 4)]
    );
}

#[test]
fn what_the_end_finds_does_not_count_where_walks_found_names() {
    let made = Made::new();
    let stack = four(&made);
    for number in 1..=4 {
        made.owner(
            Class::Tensor,
            number * MIB,
            Kept::Named,
            "failures[*]",
            "main a.py:3",
        );
    }
    made.walked(Occasion::High);
    at_end(&made, 1..=4);
    assert_eq!(
        of_site(&made, stack),
        [(Kept::Named, "failures[*]".into(), 4)]
    );
}

#[test]
fn a_name_of_few_does_not_tell_what_keeps_the_others() {
    let made = Made::new();
    let stack = four(&made);
    // A variable of a running function; the others have no name.
    made.owner(Class::Tensor, 4 * MIB, Kept::Named, "left", "work a.py:3");
    made.walked(Occasion::High);
    assert_eq!(of_site(&made, stack), []);
    at_end(&made, 1..=3);
    assert_eq!(
        of_site(&made, stack),
        [(Kept::Unreachable, String::new(), 3)]
    );
}

#[test]
fn what_was_announced_or_found_thoroughly_stays() {
    let made = Made::new();
    let stack = four(&made);
    made.owner(Class::Tensor, MIB, Kept::Announced, "KV cache", "");
    for number in 2..=4 {
        made.owner(Class::Tensor, number * MIB, Kept::Native, "", "");
    }
    made.walked_with(Occasion::Asked, walk::THOROUGH);
    // It sees less, and finds none of them.
    made.walked(Occasion::High);
    at_end(&made, 1..=4);
    let expected = [
        (Kept::Native, String::new(), 3),
        (Kept::Announced, "KV cache".into(), 1),
    ];
    assert_eq!(of_site(&made, stack), expected);
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
