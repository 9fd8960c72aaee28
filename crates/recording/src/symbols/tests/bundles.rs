//! Bundles: packed, read elsewhere, damaged.

use super::*;
use gpushim_trace::attached::{Attached, attach};

#[test]
fn a_bundle_says_the_same_where_the_files_are_not() {
    let library = Library::c(&["-g", ID]);
    let addresses = [library.call("outer"), library.call("hidden"), 0x1234];
    let mut symbolizer = library.symbolizer(Options::default());
    let expected = addresses.map(|address| symbolizer.resolve(address));
    assert_eq!(expected[0].len(), 2);
    let bundle = symbolizer.pack(addresses);
    assert_eq!((bundle.modules(), bundle.addresses()), (1, 2));
    let trace = library.dir.path().join("a.trace");
    assert!(matches!(Bundle::open(&trace), (None, problems) if problems.is_empty()));
    std::fs::write(beside(&trace), bundle.to_text()).unwrap();
    assert_eq!(Bundle::open(&trace).0.as_ref(), Some(&bundle));
    std::fs::write(beside(&trace), "of an earlier form").unwrap();
    std::fs::write(&trace, "any").unwrap();
    attach(&trace, Attached::Symbols, bundle.to_text().as_bytes()).unwrap();
    let open = || {
        let (read, problems) = Bundle::open(&trace);
        assert_eq!(problems, [] as [&str; 0]);
        assert_eq!(read.as_ref(), Some(&bundle));
        Options {
            bundle: read,
            ..Options::default()
        }
    };
    let other = Library::c(&["-g", OTHER_ID]);
    std::fs::rename(other.path(), library.path()).unwrap();
    let mut elsewhere = library.symbolizer(open());
    assert_eq!(
        addresses.map(|address| elsewhere.resolve(address)),
        expected
    );
    std::fs::remove_file(library.path()).unwrap();
    let mut elsewhere = library.symbolizer(open());
    assert_eq!(
        addresses.map(|address| elsewhere.resolve(address)),
        expected
    );
    // Symbols from a bundle can be packed again.
    assert_eq!(elsewhere.pack(addresses), bundle);
    // A module of the same name but another build is not this one.
    let mut module = library.module.clone();
    module.build_id[0] ^= 1;
    let mut stranger = Symbolizer::new(vec![module], Default::default(), open());
    assert_eq!(stranger.resolve(addresses[0])[0].kind, Kind::Unknown);
}

/// Returns a bundle with all kinds of content.
fn sample() -> Bundle {
    let symbol = |function: &str, file: Option<&str>, line, inlined| Symbol {
        function: function.to_string(),
        file: file.map(String::from),
        line,
        module: None,
        inlined,
        kind: Kind::Native,
        known: Default::default(),
    };
    let module = |path: &str, build_id: &[u8]| Module {
        path: path.to_string(),
        build_id: build_id.to_vec(),
        ..Module::default()
    };
    let mut bundle = Bundle::default();
    let first = module("/lib/a\tb\n\\.so", &[0, 1, 0xab]);
    bundle.insert(
        &first,
        0x10,
        &[symbol("f\tg", Some("/src/a b.c"), Some(7), false)],
    );
    let inlined = [
        symbol("inner", Some("x.h"), Some(1), true),
        symbol("middle", None, None, true),
        symbol("outer(int)", Some("x.c"), None, false),
    ];
    bundle.insert(&first, 0x20, &inlined);
    bundle.insert(&first, u64::MAX, &[symbol("last", None, None, false)]);
    bundle.insert(
        &module("/bin/prog\r", &[]),
        0,
        &[symbol("main", None, Some(1), false)],
    );
    bundle
}

#[test]
fn a_bundle_is_text() {
    let bundle = sample();
    let text = bundle.to_text();
    let known = "gpushim symbols 1\n\
        module\t0001ab\t/lib/a\\tb\\n\\\\.so\n\
        10\t\tf\\tg\t/src/a b.c\t7\n\
        20\tinlined\tinner\tx.h\t1\n\
        20\tinlined\tmiddle\t\t\n\
        20\t\touter(int)\tx.c\t\n";
    assert!(text.starts_with(known), "{text}");
    assert_eq!(Bundle::parse(text.as_bytes()), (bundle.clone(), Vec::new()));
}

#[test]
fn what_is_no_bundle_is_said() {
    for content in ["", "gpushim symbols 2\n", "x"] {
        let (bundle, problems) = Bundle::parse(content.as_bytes());
        assert_eq!(bundle, Bundle::default());
        assert!(problems[0].contains("does not begin with"), "{problems:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("a.trace");
    std::fs::create_dir(beside(&trace)).unwrap();
    let (bundle, problems) = Bundle::open(&trace);
    assert!(
        bundle.is_none() && problems[0].contains("cannot be read"),
        "{problems:?}"
    );
}

/// Returns all of a bundle as lines.
fn entries(bundle: &Bundle) -> Vec<String> {
    let mut module = "";
    let text = bundle.to_text();
    let mut all = Vec::new();
    for line in text.lines() {
        if line.starts_with("module") {
            module = line;
        } else if !line.starts_with("end") {
            all.push(format!("{module} {line}"));
        }
    }
    all
}

#[test]
fn a_bundle_cut_anywhere_says_so_and_nothing_wrong() {
    let (text, all) = (sample().to_text(), entries(&sample()));
    for length in 0..text.len() {
        let (bundle, problems) = Bundle::parse(&text.as_bytes()[..length]);
        assert!(!problems.is_empty(), "{length}");
        let left = entries(&bundle);
        assert!(
            left.iter().all(|entry| all.contains(entry)),
            "{length}: {left:?}"
        );
        let whole = text[..length].lines().count();
        assert!(left.len() + 6 >= whole, "{length}: {left:?}");
    }
}

proptest! {
    #[test]
    fn a_damaged_bundle_is_noticed_and_read_as_far_as_it_goes(
        damage in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..5),
    ) {
        let whole = sample().to_text().into_bytes();
        let mut content = whole.clone();
        for (at, flip) in damage {
            content[at.index(whole.len())] ^= flip;
        }
        let (bundle, problems) = Bundle::parse(&content);
        prop_assert_eq!(problems.is_empty(), content == whole);
        prop_assert!(bundle.addresses() <= 4 + 4);
    }
}
