use proptest::prelude::*;

use super::*;

fn keys(pickle: &Pickle, dict: Value) -> Vec<String> {
    let entries = pickle.entries(dict);
    entries.filter_map(|(key, _)| pickle.text(key)).collect()
}

/// A pickle by Python of `{'a': [1, -2, 300, 70000, 2**40, 2**70], 'b': (None, True, 1.5, b'x'),
/// 'c': {}}`.
const SAMPLE: &[u8] = b"\x80\x04\x95D\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@e\x8c\x01b\x94(N\x88G?\xf8\x00\x00\x00\x00\x00\x00C\x01x\x94t\x94\x8c\x01c\x94}\x94u.";

#[test]
fn data_is_read() {
    let pickle = Pickle::read(SAMPLE).unwrap();
    assert_eq!(pickle.problem, None);
    assert_eq!(keys(&pickle, pickle.root), ["a", "b", "c"]);
    let list = pickle.get(pickle.root, "a").unwrap();
    let numbers = [1, -2, 300, 70_000, 1 << 40].map(Value::Int);
    assert_eq!(pickle.items(list), [&numbers[..], &[Value::Large]].concat());
    let tuple = pickle.get(pickle.root, "b").unwrap();
    let parts = [
        Value::None,
        Value::Bool(true),
        Value::Float(1.5),
        Value::Bytes,
    ];
    assert_eq!(pickle.items(tuple), parts);
    assert_eq!(pickle.get(pickle.root, "d"), None);
}

#[test]
fn what_is_cut_off_keeps_what_came_before() {
    let cut = Pickle::read(&SAMPLE[..SAMPLE.len() - 8]).unwrap();
    let length = SAMPLE.len() - 8;
    let problem = format!("it is cut off after {length} bytes");
    assert_eq!(cut.problem, Some(problem));
    assert_eq!(keys(&cut, cut.root), ["a", "b"]);
    // Within the list of the first key.
    let cut = Pickle::read(&SAMPLE[..35]).unwrap();
    let list = cut.get(cut.root, "a").unwrap();
    assert_eq!(cut.items(list), [1, -2, 300].map(Value::Int));
    // A list that was to be the one element of another list.
    let nested = b"\x80\x02}(X\x01\x00\x00\x00t]](K\x01K\x02";
    let cut = Pickle::read(nested).unwrap();
    let outer = cut.get(cut.root, "t").unwrap();
    assert_eq!(cut.items(cut.items(outer)[0]), [1, 2].map(Value::Int));
}

#[test]
fn code_is_refused() {
    for (content, name) in [
        (&b"\x80\x04cos\nsystem\n."[..], "GLOBAL"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "STACK_GLOBAL"),
        (b"\x80\x02)R.", "REDUCE"),
        (b"\x80\x02}(b", "BUILD"),
        (b"\x80\x02)\x81.", "NEWOBJ"),
        (b"\x80\x02P1\n.", "PERSID"),
    ] {
        let refused = Pickle::read(content).unwrap_err().to_string();
        assert!(refused.contains(&format!("({name})")), "{refused}");
    }
}

#[test]
fn hostile_pickles_cost_what_their_length_allows() {
    // Each list holds the one before it twice: 2^60 elements, if all were followed.
    let mut bomb = b"\x80\x02]q\x00".to_vec();
    for level in 0..60_u8 {
        bomb.extend([b']', b'q', level + 1, b'h', level, b'a', b'h', level, b'a']);
    }
    bomb.push(b'.');
    assert_eq!(Pickle::read(&bomb).unwrap().problem, None);
    // A list that holds itself.
    let loops = Pickle::read(b"\x80\x02]q\x00h\x00a.").unwrap();
    assert_eq!(loops.items(loops.root), [loops.root]);
    // Marks without end, and an index far beyond the memo.
    let mut marks = b"\x80\x02".to_vec();
    marks.resize(1 << 20, b'(');
    assert!(Pickle::read(&marks).unwrap().problem.is_some());
    let far = Pickle::read(b"\x80\x02Nr\xff\xff\xff\xff.").unwrap();
    assert!(far.problem.unwrap().contains("damaged at byte 3"));
    // Lengths that overflow.
    let long = Pickle::read(b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xffx").unwrap();
    assert!(long.problem.is_some());
}

proptest! {
    #[test]
    fn anything_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let whole = [&[0x80, 4], &bytes[..]].concat();
        let _ = Pickle::read(&bytes);
        let _ = Pickle::read(&whole);
    }

    #[test]
    fn damage_is_survived(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = SAMPLE.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(SAMPLE.len() + 1));
        if let Ok(pickle) = Pickle::read(&bytes) {
            let _ = keys(&pickle, pickle.root);
        }
    }
}
