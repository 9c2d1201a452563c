use super::*;

fn identity() -> Identity {
    Identity::from_bytes(std::array::from_fn(|byte| byte as u8))
}

fn manifest() -> Manifest {
    let identity = identity().to_string();
    let (samples, index_bytes, pack_bytes) = (9, CHUNK_BYTES + 4096, CHUNK_BYTES + 8192);
    Manifest {
        format: FORMAT.into(),
        version: VERSION,
        identity,
        samples,
        index_bytes,
        pack_bytes,
        shares: 0,
        session: 0,
    }
}

#[test]
fn keys_are_those_of_all_samples_and_chunks() {
    let keys: Vec<Key> = manifest().keys().collect();
    let version = Version::of(&identity());
    assert_eq!(version.to_string(), "0001020304050607");
    assert_eq!(keys.len(), 9 + 2);
    assert_eq!(keys[8], Key::Content(version, Content::Sample(8)));
    assert_eq!(keys[10], Key::Content(version, Content::Index(1)));
    let pushing = manifest().pushing(2, 5);
    // Marks go first.
    assert_eq!(pushing.keys().nth(1), Some(Key::Content(version, Content::Share(1))));
    assert!(pushing.keys().skip(2).eq(keys) && pushing.marks().count() == 2);
    assert!(pushing.is_of(&manifest()) && pushing != manifest());
}

#[test]
fn a_mark_is_that_of_its_share_among_as_many_in_one_session() {
    let mark = |number, of| Value::share(&identity(), Share { number, of }, 5);
    assert_eq!((mark(1, 4).key, mark(1, 4).bytes), (mark(1, 4).key, mark(1, 4).bytes));
    let other = Value::share(&identity(), Share { number: 1, of: 4 }, 6);
    assert!(other.key == mark(1, 4).key && other.parts().0 != mark(1, 4).parts().0);
    assert_eq!(mark(1, 4).key, mark(1, 8).key);
    assert_ne!(mark(1, 4).bytes, mark(1, 8).bytes);
    assert_ne!(mark(1, 4).key, mark(2, 4).key);
}

#[test]
fn manifests_come_back_and_others_are_refused_by_name() {
    let written = manifest();
    let bytes_of = |manifest: &Manifest| Value::manifest(Key::Manifest, manifest).bytes;
    assert_eq!(Manifest::parse("k", &bytes_of(&written)), Ok(written.clone()));
    assert_eq!((written.chunks(), written.chunk(1)), (2, CHUNK_BYTES..CHUNK_BYTES + 4096));
    let later = Manifest { version: 2, ..written.clone() };
    assert!(Manifest::parse("k", &bytes_of(&later)).unwrap_err().contains("layout version 2"));
    let malformed = Manifest { identity: "é".repeat(32), ..written.clone() };
    let foreign = Manifest { format: "another".into(), ..written };
    for bytes in [&bytes_of(&malformed)[..], &bytes_of(&foreign), b"7", b"{}", b""] {
        assert!(Manifest::parse("k", bytes).unwrap_err().contains("the value of k was not written"));
    }
}

#[test]
fn the_length_is_read_from_a_head_that_is_whole() {
    let value = Value::chunk(&identity(), 3, b"index");
    let head = value.parts().0;
    assert_eq!(content_bytes(head), Some(5));
    for at in 0..head.len() {
        let mut changed = head.to_vec();
        changed[at] ^= 1;
        assert_eq!(content_bytes(&changed), None, "byte {at}");
        assert_eq!(content_bytes(&head[..at]), None, "{at} bytes");
    }
}

#[test]
fn each_changed_byte_of_a_chunk_is_found() {
    let value = Value::chunk(&identity(), 3, b"index").bytes;
    assert_eq!(chunk_of(&identity(), 3, &value), Some(&b"index"[..]));
    assert_eq!(chunk_of(&identity(), 4, &value), None);
    for at in 0..value.len() {
        let mut changed = value.clone();
        changed[at] ^= 1;
        assert_eq!(chunk_of(&identity(), 3, &changed), None, "byte {at}");
        assert_eq!(chunk_of(&identity(), 3, &value[..at]), None, "{at} bytes");
    }
}
