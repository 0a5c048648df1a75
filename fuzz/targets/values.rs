#![no_main]
//! Values and dates as text: a byte for the type, then the text. What was read
//! has one canonical text, which is read the same.

use chrono::DateTime;
use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::{assert_refused, assert_same};
use rowhouse_protocol::codec::json::read::typed_value;
use rowhouse_protocol::codec::policies::read_time;
use rowhouse_protocol::model::{EdmType, EdmValue, Ticks, lexical};

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    if let Some(raw) = rest.first_chunk::<8>() {
        double(f64::from_le_bytes(*raw));
        Ticks::from_raw(i64::from_le_bytes(*raw)).iter().for_each(|ticks| time(*ticks));
    }
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let edm_type = EdmType::ALL[usize::from(*first) % EdmType::ALL.len()];
    match typed_value("Name", edm_type, text.into()) {
        Err(error) => assert_refused(&error),
        Ok(value) => {
            let again = typed_value("Name", edm_type, canonical(&value).into());
            assert_same(&Ok::<_, ()>(&value), &again, "canonical text means something else");
        }
    }
    if let Ok(ticks) = Ticks::parse(text) {
        time(ticks);
    }
    if let Some(ticks) = read_time(text) {
        assert_eq!(Ticks::parse(text), Ok(ticks));
        time(ticks);
    }
});

fn canonical(value: &EdmValue) -> String {
    match value {
        EdmValue::String(text) => text.clone(),
        EdmValue::Binary(bytes) => lexical::format_binary(bytes),
        EdmValue::Boolean(value) => value.to_string(),
        EdmValue::DateTime(at) => at.to_canonical(),
        EdmValue::Double(value) => lexical::format_double(*value),
        EdmValue::Guid(value) => lexical::format_guid(value),
        EdmValue::Int32(value) => value.to_string(),
        EdmValue::Int64(value) => value.to_string(),
    }
}

fn time(ticks: Ticks) {
    for text in [ticks.to_canonical(), ticks.to_seven_digits()] {
        assert_eq!(Ticks::parse(&text), Ok(ticks), "{text}");
        assert_eq!(read_time(&text), Some(ticks), "{text}");
    }
    let date = ticks.to_http_date();
    let read = DateTime::parse_from_rfc2822(&date).map(|date| date.timestamp());
    assert_eq!(read, Ok(ticks.unix_seconds()), "{date}");
}

fn double(value: f64) {
    let read = lexical::parse_double(&lexical::format_double(value));
    assert_same(&Some(value), &read, "a double is altered");
}
