//! Processes that are killed, and files that have no room.

use super::*;

#[test]
fn a_length_that_no_file_has_is_an_error() {
    let file = tempfile::tempfile().unwrap();
    let error = create::set_length(&file, 1 << 62).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(libc::EFBIG)), "{error}");
    create::write_zeros(&file, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
}

#[test]
fn a_killed_process_leaves_whole_records_and_exact_counts() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let path = dir.path().join(format!("{round}.trace"));
        let bytes = [4096, 64 << 10, 256 << 10, 16 << 20][round as usize % 4];
        let counts = counts(&path);
        let mut command = child("write", &path);
        let mut process = command
            .env("GPUSHIM_TEST_BYTES", bytes.to_string())
            .spawn()
            .unwrap();
        wait_for_trace(&path, &mut process);
        std::thread::sleep(Duration::from_micros(431 * round));
        process.kill().unwrap();
        process.wait().unwrap();
        let counted: u64 = counts
            .iter()
            .map(|count| count.load(Ordering::Acquire))
            .sum();
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.problems(), [] as [&str; 0]);
        let mut last = [None; 4];
        let mut readable = 0;
        for record in trace.events() {
            assert_whole(&record);
            readable += 1;
            let last = &mut last[record.event.thread as usize];
            assert!(
                *last < Some(record.event.address),
                "a thread's events are in its order"
            );
            *last = Some(record.event.address);
        }
        assert_eq!(readable, trace.readable());
        // Each thread had at most one event recorded, or torn, that it did not get to count.
        let uncounted = trace.recorded().checked_sub(counted);
        assert!(uncounted.is_some_and(|events| events <= 4), "{uncounted:?}");
        assert_eq!(
            trace.recorded(),
            trace.readable() + trace.lost() + trace.torn()
        );
        assert!(trace.torn() <= 4, "one for each thread at most");
        assert_eq!(trace.dropped(), 0);
        if !trace.has_wrapped() {
            assert_eq!(trace.lost(), 0);
        }
        assert_eq!(trace.fact("pid"), Some(process.id().to_string()));
    }
}

#[test]
fn a_file_size_limit_is_an_error_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = child("fail", &dir.path().join("a.trace"));
    let limit = || {
        let limit = libc::rlimit {
            rlim_cur: 1 << 20,
            rlim_max: 1 << 20,
        };
        // SAFETY: the pointer is to a local rlimit.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
        Ok(())
    };
    // SAFETY: setrlimit is async-signal-safe.
    let status = unsafe { command.pre_exec(limit) }.status().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
