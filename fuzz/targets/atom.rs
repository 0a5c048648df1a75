#![no_main]
//! Entities and names of tables in Atom.

use libfuzzer_sys::fuzz_target;
use rowhouse::codec::atom::read;
use rowhouse_fuzz::{assert_refused, entity};

fuzz_target!(|data: &[u8]| {
    match read::entity(data) {
        Ok(body) => entity::check(&body),
        Err(error) => assert_refused(&error),
    }
    if let Err(error) = read::table_name(data) {
        assert_refused(&error);
    }
});
