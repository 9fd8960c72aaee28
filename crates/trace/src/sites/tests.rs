use super::*;

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn part(sites: usize) -> Vec<AtomicU64> {
    zeros((layout::FIRST as usize + sites) * layout::WORDS)
}

fn over(words: &[AtomicU64], keys: usize) -> Sites<'_, AtomicU64> {
    let index = Index::for_entries(64).expect("memory");
    Sites::new(words, index, Keys::for_entries(keys).expect("memory"))
}

fn made(name: u32, line: u32) -> Site {
    Site {
        name,
        file: 9,
        line,
    }
}

#[test]
fn a_site_is_made_once_for_its_key_and_kept_once_for_what_it_says() {
    let words = part(8);
    let sites = over(&words, 8);
    let first = sites
        .find(&[1, 2, 3, 4], || Some(made(8, 41)))
        .expect("room");
    assert_eq!(sites.find(&[1, 2, 3, 4], || unreachable!()), Some(first));
    // Other code at the same place in the source, as a function that was made again.
    assert_eq!(sites.find(&[1, 2, 3, 5], || Some(made(8, 41))), Some(first));
    let other = sites
        .find(&[1, 3, 3, 4], || Some(made(8, 42)))
        .expect("room");
    assert_ne!(first, other);
    assert_eq!(site(&words, layout::WORDS, first), Some(made(8, 41)));
    assert_eq!(site(&words, layout::WORDS, other), Some(made(8, 42)));
    assert_eq!(sites.find(&[7; 4], || None), None);
    assert_eq!(words[layout::HANDED_OUT].load(Ordering::Relaxed), 2);
}

#[test]
fn what_does_not_fit_is_counted_and_keys_beyond_are_asked_for_again() {
    let words = part(2);
    let sites = over(&words, 1);
    let ids: Vec<_> = (0..4)
        .map(|n| sites.find(&[n; 4], || Some(made(8, n as u32))))
        .collect();
    assert_eq!(ids, [Some(4), Some(5), None, None]);
    assert_eq!(words[layout::CUT].load(Ordering::Relaxed), 2);
    assert_eq!(sites.find(&[0; 4], || unreachable!()), Some(4));
    assert_eq!(
        sites.find(&[1; 4], || Some(made(8, 1))),
        Some(5),
        "there was no room for its key"
    );
}

#[test]
fn a_record_that_is_not_complete_is_not_there() {
    let words = part(2);
    over(&words, 1).find(&[1; 4], || Some(made(8, 1)));
    for id in [0, 1, 3, 5, 6, u32::MAX] {
        assert_eq!(site(&words, layout::WORDS, id), None, "{id}");
    }
    // As a kill before the last store leaves it.
    words[2 * layout::FIRST as usize].store(0, Ordering::Relaxed);
    assert_eq!(site(&words, layout::WORDS, 4), None);
}

#[test]
#[cfg_attr(miri, ignore = "threads in a long loop")]
fn threads_agree() {
    let words = part(200);
    let sites = over(&words, 200);
    let find = |n: u64| {
        sites
            .find(&[n, 0, 0, 1], || Some(made(8, n as u32)))
            .expect("room")
    };
    std::thread::scope(|scope| {
        for from in 0..4 {
            let (find, words) = (&find, &words);
            scope.spawn(move || {
                for n in 0..40_000 {
                    let n = (n * 7 + from) % 50;
                    let found = site(words, layout::WORDS, find(n));
                    assert_eq!(found, Some(made(8, n as u32)));
                }
            });
        }
    });
    for n in 0..50 {
        assert_eq!(
            site(&words, layout::WORDS, find(n)),
            Some(made(8, n as u32))
        );
    }
}
