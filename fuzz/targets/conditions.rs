#![no_main]
//! If-Match headers: what was read prints as a tag that is read the same, and
//! only one version satisfies it.

use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::{assert_refused, now};
use rowhouse_protocol::model::version::etag;
use rowhouse_protocol::model::{IfMatch, Ticks};

fuzz_target!(|data: &[u8]| {
    if let Some((raw, rest)) = data.split_first_chunk::<8>()
        && let Some(ticks) = Ticks::from_raw(i64::from_le_bytes(*raw))
    {
        check(ticks);
        header(rest);
    }
    header(data);
});

fn header(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match IfMatch::parse(Some(text)) {
        Err(error) => assert_refused(&error),
        Ok(IfMatch::Absent) => panic!("{text:?} is no condition"),
        Ok(IfMatch::Any) => assert_eq!(text.trim(), "*"),
        Ok(IfMatch::Version(None)) => assert!(!IfMatch::Version(None).admits(now())),
        Ok(IfMatch::Version(Some(ticks))) => check(ticks),
    }
}

fn check(ticks: Ticks) {
    let read = IfMatch::parse(Some(&etag(ticks)));
    assert_eq!(read, Ok(IfMatch::Version(Some(ticks))));
    assert!(
        read.is_ok_and(|condition| condition.admits(ticks) && (ticks == now() || !condition.admits(now())))
    );
}
