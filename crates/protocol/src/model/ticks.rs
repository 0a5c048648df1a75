//! Points in time as Azure counts them: ticks of 100 ns, UTC (protocol §5.1, §5.3).

use chrono::{DateTime, NaiveDate, Utc};

/// A number of ticks of 100 ns since 0001-01-01T00:00:00Z, always in the range of Edm.DateTime: [`Ticks::MIN`] to
/// [`Ticks::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(i64);

/// Ticks in a second.
pub const TICKS_PER_SECOND: i64 = 10_000_000;
const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;
/// Days from 0001-01-01 to 1970-01-01.
const UNIX_EPOCH_DAYS: i64 = 719_162;
const UNIX_EPOCH_TICKS: i64 = UNIX_EPOCH_DAYS * TICKS_PER_DAY;

/// The reason why a text is not an Edm.DateTime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DateTimeError {
    /// The text is not ISO 8601 as Azure reads it.
    Malformed,
    /// A valid date outside the range, formatted as `MM/dd/yyyy HH:mm:ss`.
    OutOfRange(String),
}

impl Ticks {
    /// 1601-01-01T00:00:00Z, also the zero of Windows file times.
    pub const MIN: Ticks = Ticks(504_911_232_000_000_000);
    /// 9999-12-31T23:59:59.9999999Z.
    pub const MAX: Ticks = Ticks(3_155_378_975_999_999_999);

    /// Returns the point with this tick count, if it is in range.
    pub fn from_raw(raw: i64) -> Option<Self> {
        (Self::MIN.0..=Self::MAX.0).contains(&raw).then_some(Ticks(raw))
    }

    /// Returns the point with a stored tick count. Earlier versions of Rowhouse could store the count after
    /// [`Ticks::MAX`].
    pub fn stored(raw: i64) -> Option<Self> {
        Self::from_raw(raw.min(Self::MAX.0))
    }

    /// Returns the tick count as the database stores it.
    pub const fn raw(self) -> i64 {
        self.0
    }

    /// Returns the tick count as a Windows file time (ticks since 1601).
    pub(crate) const fn file_time(self) -> i64 {
        self.0 - Self::MIN.0
    }

    /// Returns the system time, which can go back when the clock is corrected.
    pub fn now() -> Self {
        Self::from_utc(Utc::now())
    }

    /// Returns the tick that contains a clock reading, clamped to the range.
    pub fn from_utc(at: DateTime<Utc>) -> Self {
        let raw = UNIX_EPOCH_TICKS
            .saturating_add(at.timestamp().saturating_mul(TICKS_PER_SECOND))
            .saturating_add(i64::from(at.timestamp_subsec_nanos() / 100));
        Ticks(raw.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Returns the point as an HTTP date, in seconds.
    pub fn to_http_date(self) -> String {
        let utc = DateTime::<Utc>::from_timestamp(self.unix_seconds(), 0).unwrap_or_default();
        utc.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
    }

    /// Parses an HTTP date.
    pub fn parse_http_date(text: &str) -> Option<Self> {
        DateTime::parse_from_rfc2822(text).ok().map(|at| Self::from_utc(at.to_utc()))
    }

    /// Returns whole seconds since 1970, for comparison with HTTP dates.
    pub const fn unix_seconds(self) -> i64 {
        (self.0 - UNIX_EPOCH_TICKS).div_euclid(TICKS_PER_SECOND)
    }

    /// Returns the next tick, saturating at the end of the range.
    pub const fn next(self) -> Self {
        if self.0 >= Self::MAX.0 { Self::MAX } else { Ticks(self.0 + 1) }
    }

    /// Returns the time that is this number of ticks later, clamped to the range.
    pub fn later(self, ticks: i64) -> Self {
        Ticks(self.0.saturating_add(ticks).clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Parses `YYYY-MM-DD[Thh:mm[:ss[.f…]]][Z|±hh:mm]` (protocol §5.2). A missing zone means UTC. Fraction
    /// digits past the seventh are dropped (UNVERIFIED, accepted only here).
    pub fn parse(text: &str) -> Result<Self, DateTimeError> {
        parse(text).ok_or(DateTimeError::Malformed)?
    }

    /// Returns the canonical form, without trailing zeros in the fraction: `…:53Z`, `…:53.2Z`.
    pub fn to_canonical(self) -> String {
        let mut out = String::with_capacity(28);
        self.to_text().write(&mut out, ":");
        out
    }

    /// Returns the form with all seven digits of the fraction, which error bodies and policies use.
    pub fn to_seven_digits(self) -> String {
        let mut out = String::with_capacity(28);
        TimeText { text: self.to_full_text(), length: 27 }.write(&mut out, ":");
        out
    }

    /// Returns the canonical form as text that can be appended repeatedly.
    pub(crate) fn to_text(self) -> TimeText {
        let text = self.to_full_text();
        let zeros = text.iter().rev().take_while(|digit| **digit == b'0').count();
        // Without a fraction, the decimal point is omitted too.
        TimeText { text, length: if zeros >= 7 { 19 } else { 27 - zeros } }
    }

    /// Formats the point as `YYYY-MM-DDThh:mm:ss.fffffff`.
    fn to_full_text(self) -> [u8; 27] {
        // No cast loses bits, because the ticks are in range.
        let (year, month, day) = civil_date((self.0 / TICKS_PER_DAY) as u32);
        let in_day = self.0 % TICKS_PER_DAY;
        let (second, fraction) = ((in_day / TICKS_PER_SECOND) as u32, (in_day % TICKS_PER_SECOND) as u32);
        let mut text = *b"0000-00-00T00:00:00.0000000";
        text[..4].copy_from_slice(&decimal::<4>(year));
        text[5..7].copy_from_slice(&decimal::<2>(month));
        text[8..10].copy_from_slice(&decimal::<2>(day));
        text[11..13].copy_from_slice(&decimal::<2>(second / 3600));
        text[14..16].copy_from_slice(&decimal::<2>(second / 60 % 60));
        text[17..19].copy_from_slice(&decimal::<2>(second % 60));
        text[20..].copy_from_slice(&decimal::<7>(fraction));
        text
    }
}

/// A point in time as text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeText {
    text: [u8; 27],
    /// The used length of the text, in bytes.
    length: usize,
}

impl TimeText {
    /// Appends the text with `colon` in place of each colon. ETags contain `%3A` instead of a colon.
    pub(crate) fn write(&self, out: &mut String, colon: &str) {
        let text = std::str::from_utf8(&self.text).unwrap_or_default();
        for part in [&text[..13], colon, &text[14..16], colon, &text[17..self.length], "Z"] {
            out.push_str(part);
        }
    }
}

/// Returns the decimal digits of a number, with leading zeros.
fn decimal<const N: usize>(value: u32) -> [u8; N] {
    let mut text = [b'0'; N];
    let mut rest = value;
    for slot in text.iter_mut().rev() {
        *slot += (rest % 10) as u8;
        rest /= 10;
    }
    text
}

/// Converts the number of days since 0001-01-01 to year, month and day in the proleptic Gregorian calendar. The
/// calculation starts each year in March, so that a leap day is its last day.
fn civil_date(days: u32) -> (u32, u32, u32) {
    let shifted = days + 306;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u32::from(month <= 2);
    (year, month, day)
}

fn parse(text: &str) -> Option<Result<Ticks, DateTimeError>> {
    let mut rest = text.as_bytes();
    let year = take_number(&mut rest, 4)?;
    take_byte(&mut rest, b'-')?;
    let month = take_number(&mut rest, 2)?;
    take_byte(&mut rest, b'-')?;
    let day = take_number(&mut rest, 2)?;
    let (mut hour, mut minute, mut second, mut fraction) = (0, 0, 0, 0);
    if take_byte(&mut rest, b'T').is_some() {
        hour = take_number(&mut rest, 2)?;
        take_byte(&mut rest, b':')?;
        minute = take_number(&mut rest, 2)?;
        if take_byte(&mut rest, b':').is_some() {
            second = take_number(&mut rest, 2)?;
            if take_byte(&mut rest, b'.').is_some() {
                fraction = take_fraction(&mut rest)?;
            }
        }
    }
    let offset_minutes = take_zone(&mut rest)?;
    if !rest.is_empty() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month as u32, day as u32)?;
    let days = date.signed_duration_since(NaiveDate::from_ymd_opt(1, 1, 1)?).num_days();
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset_minutes * 60;
    let raw = seconds * TICKS_PER_SECOND + fraction;
    Some(Ticks::from_raw(raw).ok_or_else(|| {
        DateTimeError::OutOfRange(format!("{month:02}/{day:02}/{year:04} {hour:02}:{minute:02}:{second:02}"))
    }))
}

fn take_byte(rest: &mut &[u8], byte: u8) -> Option<()> {
    let (first, tail) = rest.split_first()?;
    (*first == byte).then(|| *rest = tail)
}

fn take_number(rest: &mut &[u8], width: usize) -> Option<i64> {
    let (head, tail) = rest.split_at_checked(width)?;
    let value = head
        .iter()
        .try_fold(0_i64, |value, b| b.is_ascii_digit().then(|| value * 10 + i64::from(b - b'0')))?;
    *rest = tail;
    Some(value)
}

fn take_fraction(rest: &mut &[u8]) -> Option<i64> {
    let count = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    if count == 0 {
        return None;
    }
    let (head, tail) = rest.split_at(count);
    *rest = tail;
    let kept = head.iter().chain(std::iter::repeat(&b'0')).take(7);
    Some(kept.fold(0, |value, b| value * 10 + i64::from(b - b'0')))
}

fn take_zone(rest: &mut &[u8]) -> Option<i64> {
    let Some((&sign, tail)) = rest.split_first() else { return Some(0) };
    *rest = tail;
    let sign = match sign {
        b'Z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = take_number(rest, 2)?;
    take_byte(rest, b':')?;
    let minutes = take_number(rest, 2)?;
    (hours <= 14 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> String {
        Ticks::parse(text).unwrap().to_canonical()
    }

    #[test]
    fn prints_the_recorded_forms() {
        for (input, output) in [
            ("2014-05-07T08:20:53Z", "2014-05-07T08:20:53Z"),
            ("2012-11-10T03:04:05.200Z", "2012-11-10T03:04:05.2Z"),
            ("2013-08-02T17:37:43.0090043Z", "2013-08-02T17:37:43.0090043Z"),
            ("2020-01-01T01:02:00.0000000Z", "2020-01-01T01:02:00Z"),
            ("2022-04-01T09:30:45.000000Z", "2022-04-01T09:30:45Z"),
            ("2000-02-29", "2000-02-29T00:00:00Z"),
            ("2021-03-01T00:30+01:00", "2021-02-28T23:30:00Z"),
            ("2021-01-01T00:00:00.123456789Z", "2021-01-01T00:00:00.1234567Z"),
            ("1601-01-01T00:00:00Z", "1601-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z"),
        ] {
            assert_eq!(canonical(input), output, "{input}");
        }
        let sunday = Ticks::parse("1994-11-06T08:49:37.9Z").unwrap();
        assert_eq!(sunday.to_http_date(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(
            Ticks::parse("2017-08-30T13:20:10.5Z").unwrap().to_seven_digits(),
            "2017-08-30T13:20:10.5000000Z"
        );
    }

    #[test]
    fn names_dates_that_are_real_but_out_of_range() {
        assert_eq!(
            Ticks::parse("0001-01-01T00:00:00Z"),
            Err(DateTimeError::OutOfRange("01/01/0001 00:00:00".into()))
        );
        assert!(matches!(Ticks::parse("1600-12-31T23:59:59.9999999Z"), Err(DateTimeError::OutOfRange(_))));
    }

    #[test]
    fn refuses_what_is_no_date() {
        for text in [
            "",
            "x",
            "2020",
            "2020-1-1",
            "2020-13-01",
            "2021-02-29",
            "2020-01-01T",
            "2020-01-01T1:00Z",
            "2020-01-01T24:00Z",
            "2020-01-01T00:60Z",
            "2020-01-01T00:00:60Z",
            "2020-01-01T00:00:00.Z",
            "2020-01-01T00:00:00Zx",
            "2020-01-01 00:00:00Z",
            "2020-01-01T00:00:00+1",
            "٢٠٢٠-01-01",
        ] {
            assert_eq!(Ticks::parse(text), Err(DateTimeError::Malformed), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(raw in Ticks::MIN.0..=Ticks::MAX.0) {
            let ticks = Ticks::from_raw(raw).unwrap();
            prop_assert_eq!(Ticks::parse(&ticks.to_canonical()), Ok(ticks));
            prop_assert_eq!(Ticks::parse(&ticks.to_seven_digits()), Ok(ticks));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}") {
            let _ = Ticks::parse(&text);
        }
    }
}
