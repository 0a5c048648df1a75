#![no_main]
//! Entities and names of tables in JSON.

use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::entity;
use rowhouse_protocol::codec::json::read;

fuzz_target!(|data: &[u8]| entity::check_reading(read::entity(data), read::table_name(data)));
