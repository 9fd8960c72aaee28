use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;
use crate::error::Result;
use crate::open::open;
use gpushim_trace::Kind;

fn opened(content: &[u8]) -> Result<Box<dyn Recording>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    // The file stays open after its name is removed.
    open(file.path())
}

fn packed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

const REQUESTS: &str = "op,ptr,size,stream,thread,time_ns
alloc,0x302000000,4194304,0,0,100
alloc,0x7fc80e800000,1024,-,3,250
free,0x0,0,-,0,260
free,0x302000000,0,0,0,300
";

type Said = (u64, Kind, Class, u64, u64, u64, u32);

fn said(recording: &dyn Recording) -> Vec<Said> {
    let of = |record: Record| {
        let e = record.event;
        (
            record.ns, e.kind, e.class, e.address, e.size, e.extra[0], e.thread,
        )
    };
    recording.events().map(of).collect()
}

#[test]
fn requests_plain_and_packed() {
    let expected = [
        (
            0,
            Kind::Alloc,
            Class::PoolAsync,
            0x3_0200_0000,
            4 << 20,
            0,
            0,
        ),
        (
            150,
            Kind::Alloc,
            Class::Device,
            0x7fc8_0e80_0000,
            1024,
            0,
            3,
        ),
        (
            200,
            Kind::Free,
            Class::PoolAsync,
            0x3_0200_0000,
            4 << 20,
            0,
            0,
        ),
    ];
    for content in [REQUESTS.as_bytes().to_vec(), packed(REQUESTS.as_bytes())] {
        let recording = opened(&content).unwrap();
        assert_eq!(recording.format(), "list of requests");
        assert_eq!(recording.problems(), [] as [&str; 0]);
        assert_eq!(recording.coverage(), Coverage::complete(3));
        assert_eq!(said(&*recording), expected);
        // Each pass begins anew.
        assert_eq!(said(&*recording), expected);
        let timeline = recording.timeline();
        let spans = timeline.devices[0].get(gpushim_trace::Series::Requested);
        assert_eq!(spans.last().unwrap().max, (4 << 20) + 1024);
    }
}

#[test]
fn rmm_logs_old_and_new_over_midnight() {
    let old = "Time,Action,Pointer,Size,Stream\n23:59:59:999999,allocate,0x10,512,0x0\n\
               00:00:00:000001,free,0x10,512,0x0\n";
    let recording = opened(old.as_bytes()).unwrap();
    assert_eq!(recording.format(), "RMM log");
    let expected = [
        (0, Kind::Alloc, Class::PoolAsync, 0x10, 512, 0, 0),
        (2000, Kind::Free, Class::PoolAsync, 0x10, 512, 0, 0),
    ];
    assert_eq!(said(&*recording), expected);
    let new = "Thread,Time,Action,Pointer,Size,Stream\n\
               140202,10:00:00.000001,allocate,0x7f10,512,0x5\n\
               140202,10:00:00.000003,allocate failure,(nil),99999999999,0x5\n";
    let recording = opened(new.as_bytes()).unwrap();
    assert_eq!(recording.problems(), [] as [&str; 0]);
    let expected = [
        (0, Kind::Alloc, Class::PoolAsync, 0x7f10, 512, 5, 140_202),
        (
            2000,
            Kind::OutOfMemory,
            Class::PoolAsync,
            0,
            99_999_999_999,
            0,
            140_202,
        ),
    ];
    assert_eq!(said(&*recording), expected);
}

#[test]
fn bad_lines_are_named_and_cost_nothing_else() {
    let mut content = REQUESTS.to_string();
    content += "grow,0x1,1,0,0,301\nalloc,here,1,0,0,302\nalloc,0x1,-5,0,0,303\n\n";
    content += "alloc,0x1,5,0,0,soon\nalloc\nalloc,0x2,5,0,0,299\nalloc,0x2,5,0,0,400\nfree,0x9,0,0,0,401\n";
    content += &"x".repeat(10_000);
    content += "\nalloc,0x3,5,zero,0,401\nalloc,0x3,5,0,0,402";
    let recording = opened(content.as_bytes()).unwrap();
    assert_eq!(
        recording.problems(),
        [
            "line 6 has the unknown action \"grow\"",
            "line 7 has no address: \"here\"",
            "line 8 has no size: \"-5\"",
            "line 10 has no time: \"soon\"",
            "line 11 has no address: \"\"",
            "line 15 is too long for a line of such a log",
            "line 16 has no stream: \"zero\"",
            "1 frees have no allocation before them",
            "1 allocations are of an address that was not freed",
            "1 lines have an earlier time than the line before; they take its time",
        ]
    );
    assert_eq!(recording.events().count(), 7);
    assert!(recording.coverage().damaged);
    let only_bad = "op,ptr,size,stream,thread,time_ns\n".to_string() + &"?\n".repeat(100);
    let refused = opened(only_bad.as_bytes()).err().unwrap().to_string();
    assert!(
        refused.ends_with("none of its events can be read: line 2 has the unknown action \"?\""),
        "{refused}"
    );
    let late = "op,ptr,size,stream,thread,time_ns\nfree,0x9,0,0,0,1\nalloc,0x3,5,0,0,2\n";
    let late = opened(late.as_bytes()).unwrap();
    assert_eq!(late.problems().len(), 1);
    assert!(!late.coverage().damaged, "a log may begin in the middle");
    let many = only_bad + "alloc,0x3,5,0,0,2\n";
    let problems = opened(many.as_bytes()).unwrap().problems();
    assert_eq!(problems.len(), 21);
    assert_eq!(problems[20], "80 more lines make no sense");
}

#[test]
fn damaged_gzip_gives_what_comes_before() {
    let long: String = (0..20_000)
        .map(|n| format!("alloc,{n},{},0,0,{n}\n", n * 7919 % 10_007))
        .collect();
    let bytes = packed(("op,ptr,size,stream,thread,time_ns\n".to_string() + &long).as_bytes());
    let recording = opened(&bytes[..bytes.len() / 2]).unwrap();
    assert!(recording.events().count() > 5_000);
    let problems = recording.problems();
    assert!(
        problems[0].starts_with("it cannot be read beyond line "),
        "{problems:?}"
    );
    let other = opened(&packed(b"hello")).err().unwrap().to_string();
    assert!(
        other.contains("it unpacks to something that is not a trace, a PyTorch memory snapshot"),
        "{other}"
    );
    assert!(opened(b"").is_err());
    assert!(opened(b"op,ptr\n").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn anything_is_survived(
        head in prop::sample::select(vec![
            "op,ptr,size,stream,thread,time_ns\n", "Thread,Time,Action,Pointer,Size,Stream\n", "",
        ]),
        lines in prop::collection::vec(prop_oneof![
            "[a-z ]{0,9},(0x)?[0-9a-f]{1,17},[0-9]{1,21},[-0-9x]{0,3},[0-9]{0,5},[0-9:.]{0,21}",
            "[0-9]{1,4},[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6},(allocate|free),0x[0-9]{1,2},[0-9]{1,20},0",
            ".{0,60}",
        ], 0..30),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        is_packed in any::<bool>(),
    ) {
        let mut content = head.to_string().into_bytes();
        content.extend(lines.join("\n").into_bytes());
        content.extend(noise);
        let content = if is_packed { packed(&content) } else { content };
        if let Ok(recording) = opened(&content) {
            let events = recording.events().count() as u64;
            prop_assert_eq!(recording.coverage().recorded, events);
            prop_assert!(recording.events().map(|record| record.ns).is_sorted());
            recording.timeline();
        }
    }
}

#[test]
fn an_allocation_without_a_pointer_is_a_request_that_failed() {
    let log = "op,ptr,size,stream,thread,time_ns
alloc,0x1000,64,-,0,0
alloc,0x0,4096,-,0,10
alloc,(nil),512,0,0,20
";
    let recording = opened(log.as_bytes()).unwrap();
    let kinds: Vec<_> = said(&*recording)
        .iter()
        .map(|(_, kind, _, address, size, ..)| (*kind, *address, *size))
        .collect();
    let failed = |size| (Kind::OutOfMemory, 0, size);
    assert_eq!(
        kinds,
        [(Kind::Alloc, 0x1000, 64), failed(4096), failed(512)]
    );
    assert!(
        recording.problems().is_empty(),
        "{:?}",
        recording.problems()
    );
}

/// Returns a log of many lines, some of them malformed.
fn long_log() -> String {
    let mut log = "op,ptr,size,stream,thread,time_ns\n".to_string();
    for n in 0..60_000_u64 {
        log += &format!(
            "alloc,{:#x},{},{},1,{}\n",
            (n + 1) << 9,
            512 + n % 7,
            n % 3,
            10 * n
        );
        if n % 10_000 == 9_999 {
            log += &format!("nonsense {n}\n{}\n", "x".repeat(300_000));
        }
        if n >= 100 {
            log += &format!("free,{:#x},0,-,2,{}\n", (n - 99) << 9, 10 * n + 5);
        }
    }
    log
}

#[test]
fn overlong_lines_of_a_long_log_cost_no_other_line() {
    let content = long_log();
    for content in [content.as_bytes().to_vec(), packed(content.as_bytes())] {
        let recording = opened(&content).unwrap();
        assert_eq!(recording.events().count(), 60_000 + 59_900);
        let mut expected = Vec::new();
        for n in 0..60_000_u64 {
            let thread = |free| if free { 2 } else { 1 };
            let (size, address) = (512 + n % 7, (n + 1) << 9);
            expected.push((
                10 * n,
                Kind::Alloc,
                Class::PoolAsync,
                address,
                size,
                n % 3,
                thread(false),
            ));
            if let Some(old) = n.checked_sub(100) {
                let (size, address) = (512 + old % 7, (old + 1) << 9);
                expected.push((
                    10 * n + 5,
                    Kind::Free,
                    Class::PoolAsync,
                    address,
                    size,
                    0,
                    thread(true),
                ));
            }
        }
        assert!(said(&*recording) == expected);
        let problems = recording.problems();
        assert_eq!(problems.len(), 12, "{problems:?}");
        let line = 1 + 10_000 + 9_900;
        assert_eq!(
            problems[0],
            format!("line {line} has the unknown action \"nonsense 9999\"")
        );
        assert_eq!(
            problems[1],
            format!("line {} is too long for a line of such a log", line + 1)
        );
        assert_eq!(
            problems[2],
            format!(
                "line {} has the unknown action \"nonsense 19999\"",
                line + 20_002
            )
        );
    }
}

#[test]
fn kept_events_are_those_of_the_file() {
    let content = "op,ptr,size,stream,thread,time_ns
alloc,0x1000,4096,-,7,10
alloc, 0x2000 ,512,0x5,8,11
nonsense
free,0x1000,4096,-,7,12
alloc,(nil),4096,-,7,13
free,0x3000,1,-,7,9
alloc,0x1000,1,-,7,20";
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    let log = LineLog::new(
        file.path(),
        std::fs::File::open(file.path()).unwrap(),
        false,
        &crate::requests::REQUESTS,
    );
    assert!(log.kept.is_some());
    let kept: Vec<_> = log.events().collect();
    let anew: Vec<_> = log.reader().collect();
    assert_eq!(format!("{kept:?}"), format!("{anew:?}"));
    assert_eq!((kept.len(), log.events), (6, 6));
}
