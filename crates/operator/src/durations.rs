//! The text form of times and durations for operators.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::OperatorError;
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;

/// A time in UTC, with seven decimal places of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Ticks);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_canonical())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// Units, the largest first, with their ticks.
const UNITS: [(char, i64); 5] = [
    ('w', 604_800 * TICKS_PER_SECOND),
    ('d', 86_400 * TICKS_PER_SECOND),
    ('h', 3600 * TICKS_PER_SECOND),
    ('m', 60 * TICKS_PER_SECOND),
    ('s', TICKS_PER_SECOND),
];
/// The longest duration: 1000 years of 365 days.
const MAX_TICKS: i64 = 365_000 * 86_400 * TICKS_PER_SECOND;

/// Parses a whole number of seconds, minutes, hours, days or weeks, such as `90s` or `30d`, into ticks.
pub fn parse(text: &str) -> Result<i64, OperatorError> {
    let read = || {
        let unit = text.chars().last()?;
        let (_, ticks) = UNITS.into_iter().find(|(known, _)| *known == unit)?;
        let digits = &text[..text.len() - 1];
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let number: i64 = is_number.then(|| digits.parse().ok()).flatten()?;
        number.checked_mul(ticks).filter(|ticks| *ticks <= MAX_TICKS)
    };
    read().ok_or_else(|| {
        OperatorError::Argument(format!(
            "{text}: not a whole number of seconds, minutes, hours, days or weeks up to 365000d, such as 90s, 12h or 30d"
        ))
    })
}

/// Prints a whole number of seconds, given in ticks, in the largest unit that expresses it exactly.
pub fn display(ticks: i64) -> String {
    let exact = UNITS.into_iter().find(|(_, unit)| ticks != 0 && ticks % unit == 0);
    let (unit, ticks_per_unit) = exact.unwrap_or(('s', TICKS_PER_SECOND));
    format!("{}{unit}", ticks / ticks_per_unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_displayed() {
        for (text, seconds, again) in [
            ("0s", 0, "0s"),
            ("90s", 90, "90s"),
            ("120s", 120, "2m"),
            ("24h", 86_400, "1d"),
            ("30d", 30 * 86_400, "30d"),
            ("4w", 28 * 86_400, "4w"),
            ("365000d", 365_000 * 86_400, "365000d"),
        ] {
            let ticks = parse(text).unwrap();
            assert_eq!((ticks, display(ticks).as_str()), (seconds * TICKS_PER_SECOND, again), "{text}");
        }
        for wrong in
            ["", "s", "5", "-5s", "+5s", "1.5h", "5 s", "5S", "5y", "365001d", "9223372036854775807d", "5é"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
