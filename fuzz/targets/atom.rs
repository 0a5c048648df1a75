#![no_main]
//! Entities and names of tables in Atom.

use libfuzzer_sys::fuzz_target;
use rowhouse::protocol::codec::atom::read;
use rowhouse_fuzz::entity;

fuzz_target!(|data: &[u8]| entity::check_reading(read::entity(data), read::table_name(data)));
