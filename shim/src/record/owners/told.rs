//! Converts the text of a walk to events of the trace.

use gpushim_trace::{Event, Kept, Kind, OwnerWords, Writer, walk};

use super::blocks::Blocks;
use crate::base::thread;

/// The first line of a walk's text.
#[derive(Default)]
pub struct Head {
    /// The number of objects that the walk saw.
    pub objects: u64,
    /// Flags of the walk, see [`walk`].
    pub flags: u64,
}

impl Head {
    /// Reads the line; numbers that cannot be read are 0.
    pub fn of(line: &str) -> Head {
        let mut numbers = line
            .split('\t')
            .map(|number| number.parse::<u64>().unwrap_or(0));
        let objects = numbers.next().unwrap_or(0);
        let [_, stopped, collects, is_new] = [(); 4].map(|()| numbers.next().unwrap_or(0));
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        Head {
            objects,
            flags: flag(stopped == 1, walk::STOPPED)
                | flag(collects == 0, walk::NO_COLLECTOR)
                | flag(is_new == 1, walk::NEW_GRAPHS),
        }
    }
}

/// Records the owner that a line of the text names. `None`: the line cannot be read, or no block
/// has the address.
pub fn record_owner(writer: &Writer, blocks: &Blocks, line: &str) -> Option<()> {
    let mut parts = line.splitn(4, '\t');
    let address = u64::from_str_radix(parts.next()?, 16).ok()?;
    let kept = match parts.next()? {
        "n" => Kept::Named,
        "p" => Kept::Parameter,
        "b" => Kept::Buffer,
        "g" => Kept::Gradient,
        "s" => Kept::OptimizerState,
        "a" => Kept::Graph,
        "u" => Kept::Unreachable,
        _ => Kept::Native,
    };
    let block = blocks.with(address)?;
    let text = |text: &str| match text {
        "" => 0,
        text => writer.intern(text),
    };
    let (path, root) = (text(parts.next()?), text(parts.next()?));
    record(writer, block, OwnerWords { path, root, kept });
    Some(())
}

/// Records the owner of a block.
pub fn record(writer: &Writer, block: &Event, words: OwnerWords) {
    writer.record(&Event {
        device: block.device,
        thread: thread::tid(),
        address: block.address,
        size: block.size,
        extra: words.pack(),
        ..Event::new(Kind::Owner, block.class)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read() {
        let head = Head::of("4711\t1000\t1\t0\t0");
        assert_eq!(head.objects, 4711);
        assert_eq!(head.flags, walk::STOPPED | walk::NO_COLLECTOR);
        assert_eq!(Head::of("3\t9\t0\t1\t1").flags, walk::NEW_GRAPHS);
    }
}
