//! Requests of a recording that has numbered its blocks: no ledger has to find them again.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::{Op, Request, Requests, STREAMS};
use crate::ledger::Focus;
use gpushim_recording::Recording;
use gpushim_trace::Layer;

impl Requests {
    /// Reads the requests; they equal the ones that a ledger finds. Returns `None` if a ledger must
    /// find them.
    pub(super) fn numbered(
        recording: &dyn Recording,
        focus: Focus,
    ) -> Option<BTreeMap<u8, Requests>> {
        let numbered = recording.numbered()?;
        if focus.layer == Layer::Tensor || focus.device.is_some_and(|device| device != 0) {
            return None;
        }
        let mut requests = Requests::default();
        let mut tickets: Option<Vec<u64>> = None;
        requests.kept.reserve_exact(numbered.size_hint().0);
        for (ticket, one) in (0..).zip(numbered) {
            if one.bytes == 0 {
                if !one.is_free {
                    requests.odd.empty += 1;
                    requests.odd.first.get_or_insert(ticket);
                }
                // Further on, requests are fewer than events.
                tickets.get_or_insert_with(|| (1..=requests.len() as u64).collect());
                continue;
            }
            if let Some(tickets) = &mut tickets {
                tickets.push(ticket + 1);
            }
            requests.push(Request {
                op: if one.is_free { Op::Free } else { Op::Allocate },
                block: one.block,
                bytes: one.bytes,
                stream: one.stream,
                thread: one.thread,
                ns: one.ns,
            });
        }
        requests.tickets = tickets.unwrap_or_default();
        let streams = requests.by.iter().filter_map(|(stream, _)| *stream);
        if streams.collect::<FxHashSet<u64>>().len() > STREAMS {
            return None;
        }
        let found = (!requests.is_empty()).then_some((0, requests));
        Some(found.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::loops::Start;
    use gpushim_recording::open;

    /// Returns the requests that a ledger finds, without tickets.
    fn by_ledger(recording: &dyn Recording, focus: Focus) -> BTreeMap<u8, Requests> {
        Requests::with_unseen(recording, focus, &[]).0
    }

    fn log(lines: &str) -> Box<dyn Recording> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "op,ptr,size,stream,thread,time_ns\n{lines}").unwrap();
        open(file.path()).expect("a list of requests")
    }

    #[test]
    fn they_are_what_a_ledger_finds() {
        let recording = log(
            "alloc,0x1000,512,0,1,5\nalloc,0x2000,4096,-,1,6\nalloc,0x3000,64,0x7,2,7\n\
             free,0x1000,0,0x7,2,9\nalloc,0x1000,1024,0x7,2,9\nfree,0x2000,4096,-,3,12\nfree,0x3000,64,0,3,13\n",
        );
        let focus = Focus::of(&*recording, None);
        let numbered = Requests::numbered(&*recording, focus).expect("all are numbered");
        let found = by_ledger(&*recording, focus);
        let all = |of: &BTreeMap<u8, Requests>| -> Vec<(u8, Vec<Request>)> {
            of.iter()
                .map(|(device, requests)| (*device, requests.iter().collect()))
                .collect()
        };
        assert_eq!(all(&numbered), all(&found));
        let starts: Vec<Start> = [0, 3, 7].map(|ticket| Start { ns: 0, ticket }).into();
        let (mut numbered, mut found) = (numbered[&0].clone(), found[&0].clone());
        numbered.divide(&starts);
        found.divide(&starts);
        assert_eq!(
            (numbered.steps(), found.steps()),
            (&[0, 3, 7][..], &[0, 3, 7][..])
        );
        assert_eq!((numbered.len(), numbered.blocks()), (7, 4));
        assert_eq!(
            (numbered.peak(), numbered.has_history(), numbered.odd()),
            (found.peak(), found.has_history(), found.odd())
        );
        assert_eq!(numbered.peak(), 4096 + 64 + 1024);
    }

    #[test]
    fn blocks_of_no_bytes_are_left_out() {
        let starts: Vec<Start> = (0..6).map(|ticket| Start { ns: 0, ticket }).collect();
        let empty = "alloc,0x9000,0,0,1,1\n";
        let one = "alloc,0x1000,512,0,1,5\n";
        let rest = "free,0x9000,0,0,1,6\nfree,0x1000,0,0,1,7\nalloc,0x1000,64,0,1,8\n";
        for (lines, steps) in [
            (format!("{empty}{one}{rest}"), [0, 0, 1, 1, 2, 3]),
            (format!("{one}{empty}{rest}"), [0, 1, 1, 1, 2, 3]),
        ] {
            let recording = log(&lines);
            let focus = Focus::of(&*recording, None);
            let mut numbered = Requests::numbered(&*recording, focus).expect("all are numbered");
            let mut found = by_ledger(&*recording, focus);
            let (numbered, found) = (numbered.get_mut(&0).unwrap(), found.get_mut(&0).unwrap());
            numbered.divide(&starts);
            found.divide(&starts);
            assert_eq!(
                (numbered.steps(), found.steps()),
                (&steps[..], &steps[..]),
                "{lines}"
            );
            assert!(numbered.iter().eq(found.iter()));
            assert_eq!((numbered.odd(), numbered.odd().empty), (found.odd(), 1));
        }
    }

    #[test]
    fn a_ledger_finds_those_of_a_log_that_is_not_plain() {
        let alloc = "alloc,0x1000,512,0,1,5\n";
        for odd in [
            "alloc,0x1000,512,0,1,6\n",
            "free,0x2000,512,0,1,6\n",
            "alloc,(nil),512,0,1,6\n",
            "failure,0,512,0,1,6\n",
        ] {
            let recording = log(&format!("{alloc}{odd}"));
            let focus = Focus::of(&*recording, None);
            assert!(Requests::numbered(&*recording, focus).is_none(), "{odd}");
            assert!(!Requests::of(&*recording, focus).is_empty(), "{odd}");
        }
        // More streams than have numbers of their own.
        let many: String = (0..=STREAMS)
            .map(|n| format!("alloc,{:#x},512,{n},1,{n}\n", (n + 1) << 12))
            .collect();
        let recording = log(&many);
        let focus = Focus::of(&*recording, None);
        assert!(Requests::numbered(&*recording, focus).is_none());
        assert_eq!(Requests::of(&*recording, focus)[&0].odd().more_streams, 1);
        let other = Focus {
            device: Some(3),
            ..focus
        };
        assert!(Requests::of(&*recording, other).is_empty());
    }
}
