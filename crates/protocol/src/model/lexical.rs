//! One lexical form per type, shared by JSON, Atom and filter literals (protocol §5.2 to §5.4).

use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

use super::edm::EdmValue;

/// Returns the canonical text of a value.
pub(crate) fn format(value: &EdmValue) -> String {
    match value {
        EdmValue::String(text) => text.clone(),
        EdmValue::Binary(bytes) => format_binary(bytes),
        EdmValue::Boolean(value) => value.to_string(),
        EdmValue::DateTime(time) => time.to_canonical(),
        EdmValue::Double(value) => format_double(*value),
        EdmValue::Guid(value) => format_guid(value),
        EdmValue::Int32(value) => value.to_string(),
        EdmValue::Int64(value) => value.to_string(),
    }
}

/// Returns the canonical text of a double: `3.0`, `1.5E-07`, `NaN`, `Infinity`.
///
/// As recorded from Azure, the text has fifteen significant digits if they parse back to the same number, otherwise
/// seventeen. It has an exponent from 1E+15 on (1E+17 with seventeen digits) and below 1E-04.
pub fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0.0" } else { "0.0" }.into();
    }
    format_few_decimals(value).unwrap_or_else(|| format_any_decimals(value))
}

/// Returns the text of a number with up to three decimal places; most numbers have no more. If a whole number below
/// 1E+15 divided by a power of ten equals the value, the digits of that number are the text, because no other number of
/// fifteen digits parses back to the value.
fn format_few_decimals(value: f64) -> Option<String> {
    const POWERS: [u16; 4] = [1, 10, 100, 1000];
    let magnitude = value.abs();
    let scaled = |power: u16| (power, magnitude * f64::from(power));
    let is_exact = |&(power, digits): &(u16, f64)| {
        digits < 1e15 && digits.fract() == 0.0 && digits / f64::from(power) == magnitude
    };
    let (power, digits) = POWERS.into_iter().map(scaled).find(is_exact)?;
    let (digits, power) = (digits as u64, u64::from(power));
    let decimals = power.ilog10().max(1) as usize;
    let mut out = String::with_capacity(28);
    let sign = if value < 0.0 { "-" } else { "" };
    let _ = write!(out, "{sign}{}.{:0decimals$}", digits / power, digits % power);
    while out.ends_with('0') && !out.ends_with(".0") {
        out.pop();
    }
    Some(out)
}

fn format_any_decimals(value: f64) -> String {
    let mut scientific = String::with_capacity(24);
    // A shortest text of at most fifteen digits equals the text with fifteen digits without trailing zeros. It costs
    // less to compute.
    let _ = write!(scientific, "{value:e}");
    if value.is_normal() && count_digits(&scientific) <= 15 {
        return to_azure_layout(&scientific, 15);
    }
    scientific.clear();
    let _ = write!(scientific, "{value:.14e}");
    if scientific.parse() == Ok(value) {
        return to_azure_layout(&scientific, 15);
    }
    scientific.clear();
    let _ = write!(scientific, "{value:.16e}");
    to_azure_layout(&scientific, 17)
}

fn count_digits(scientific: &str) -> usize {
    scientific.bytes().take_while(|b| *b != b'e').filter(u8::is_ascii_digit).count()
}

/// Converts Rust's `d.ddde±x` to Azure's layout.
fn to_azure_layout(scientific: &str, precision: i32) -> String {
    let (sign, unsigned) = match scientific.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", scientific),
    };
    let (mantissa, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (lead, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [lead, fraction].concat();
    let digits = digits.trim_end_matches('0');
    let mut out = String::with_capacity(28);
    out.push_str(sign);
    let scale = exponent + 1;
    if scale > precision || scale < -3 {
        out.push_str(&digits[..1]);
        if digits.len() > 1 {
            out.push('.');
            out.push_str(&digits[1..]);
        }
        let _ = write!(out, "E{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    } else if scale <= 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', scale.unsigned_abs() as usize));
        out.push_str(digits);
    } else {
        let whole = scale as usize;
        if digits.len() <= whole {
            out.push_str(digits);
            out.extend(std::iter::repeat_n('0', whole - digits.len()));
            out.push_str(".0");
        } else {
            out.push_str(&digits[..whole]);
            out.push('.');
            out.push_str(&digits[whole..]);
        }
    }
    out
}

/// Parses a double in any JSON or .NET spelling. Numbers out of range are refused instead of becoming an
/// infinity.
pub fn parse_double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" | "INF" => Some(f64::INFINITY),
        "-Infinity" | "-INF" => Some(f64::NEG_INFINITY),
        _ => {
            let is_numeric =
                text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
            text.parse().ok().filter(|value: &f64| is_numeric && value.is_finite())
        }
    }
}

/// Parses `true` or `false`, in upper or lower case.
pub(crate) fn parse_boolean(text: &str) -> Option<bool> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    if is("true") { Some(true) } else { is("false").then_some(false) }
}

/// Parses a decimal integer without a leading plus or white space.
pub(crate) fn parse_integer<T: std::str::FromStr>(text: &str) -> Option<T> {
    (!text.starts_with('+')).then(|| text.parse().ok()).flatten()
}

/// Parses a GUID in the .NET forms D, N, B and P, ignoring case. Azure may not accept the last three
/// (unverified).
pub fn parse_guid(text: &str) -> Option<Uuid> {
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    let inner = inner.or_else(|| text.strip_prefix('{').and_then(|t| t.strip_suffix('}')));
    let inner = inner.unwrap_or(text);
    let has_valid_length = inner.len() == 36 || (inner.len() == 32 && inner.len() == text.len());
    has_valid_length.then(|| Uuid::try_parse(inner).ok()).flatten()
}

/// Returns the canonical text of a GUID: lower case with hyphens.
pub fn format_guid(value: &Uuid) -> String {
    value.hyphenated().to_string()
}

pub fn format_binary(value: &[u8]) -> String {
    STANDARD.encode(value)
}

/// Parses standard base64 with padding, ignoring white space.
pub fn parse_binary(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok().or_else(|| {
        let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
        text.contains(is_space).then(|| STANDARD.decode(text.replace(is_space, "")).ok())?
    })
}

/// Parses pairs of hexadecimal digits, as in `X'0aFF'`.
pub(crate) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let nibble = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubles_print_as_recorded() {
        for (value, text) in [
            (5.0, "5.0"),
            (3.1, "3.1"),
            (4.81516, "4.81516"),
            (-0.0, "-0.0"),
            (0.0, "0.0"),
            (9_223_372_036_854_775_808_000.0, "9.2233720368547758E+21"),
            (1.23456789012346e24, "1.23456789012346E+24"),
            (1e15, "1E+15"),
            (1e14, "100000000000000.0"),
            (123_456_789_012_345.0, "123456789012345.0"),
            (0.0001, "0.0001"),
            (0.00001, "1E-05"),
            (1.5e-7, "1.5E-07"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::MAX, "1.7976931348623157E+308"),
            (5e-324, "4.94065645841247E-324"),
            (-2.5, "-2.5"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(format_double(value), text);
        }
    }

    proptest! {
        #[test]
        fn few_decimals_are_printed_as_any_are(
            digits in -20_000_000_000_000_000_i64..20_000_000_000_000_000,
            fewer in 0_u32..17,
            power in 0_i32..6,
            any in any::<f64>(),
        ) {
            for value in [digits as f64 / 10_f64.powi(power), (digits / 10_i64.pow(fewer)) as f64 / 10_f64.powi(power), any] {
                if value != 0.0 && value.is_finite() && let Some(text) = format_few_decimals(value) {
                    prop_assert_eq!(text, format_any_decimals(value));
                }
            }
        }
    }

    #[test]
    fn most_decimals_are_few() {
        for text in
            ["123.5", "-0.001", "0.1", "450359962737.496", "99999999999999.9", "999999999999999.0", "2.0"]
        {
            assert_eq!(format_few_decimals(text.parse().unwrap()).as_deref(), Some(text));
        }
        for text in ["1e15", "0.0001", "0.3333", "1.0000000000000002"] {
            assert_eq!(format_few_decimals(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn doubles_out_of_range_or_out_of_grammar_are_refused() {
        for text in ["1e400", "-1e400", "", "x", "inf", "infinity", "nan", "1 ", "0x10", "1_0"] {
            assert_eq!(parse_double(text), None, "{text}");
        }
        assert_eq!(parse_double("1.23456789012346e+24"), Some(1.23456789012346e24));
        assert!(parse_double("NaN").is_some_and(f64::is_nan));
    }

    #[test]
    fn guids_read_in_four_forms() {
        let canonical = "c9da6455-213d-42c9-9a79-3e9149a57833";
        for text in [
            "c9da6455-213d-42c9-9a79-3e9149a57833",
            "C9DA6455-213D-42C9-9A79-3E9149A57833",
            "c9da6455213d42c99a793e9149a57833",
            "{c9da6455-213d-42c9-9a79-3e9149a57833}",
            "(c9da6455-213d-42c9-9a79-3e9149a57833)",
        ] {
            assert_eq!(parse_guid(text).map(|g| format_guid(&g)).as_deref(), Some(canonical), "{text}");
        }
        for text in
            ["", "zz", "urn:uuid:c9da6455-213d-42c9-9a79-3e9149a57833", "{c9da6455213d42c99a793e9149a57833}"]
        {
            assert_eq!(parse_guid(text), None, "{text}");
        }
    }

    #[test]
    fn hexadecimal_needs_whole_bytes() {
        assert_eq!(parse_hex("62696E617279"), Some(b"binary".to_vec()));
        assert_eq!(parse_hex(""), Some(vec![]));
        assert_eq!(parse_hex("abc"), None);
        assert_eq!(parse_hex("zz"), None);
        assert_eq!(parse_hex("é"), None);
    }

    proptest! {
        #[test]
        fn doubles_have_fifteen_digits_where_those_read_back(bits: u64, n in -1_000_000_i32..1_000_000, e in -320_i32..310) {
            let decimal: f64 = format!("{n}e{e}").parse().unwrap();
            for value in [f64::from_bits(bits), decimal, f64::from(n) / 8.0] {
                if !value.is_finite() || value == 0.0 {
                    continue;
                }
                let fifteen = format!("{value:.14e}");
                let (text, precision) =
                    if fifteen.parse() == Ok(value) { (fifteen, 15) } else { (format!("{value:.16e}"), 17) };
                prop_assert_eq!(format_double(value), to_azure_layout(&text, precision));
            }
        }

        #[test]
        fn every_double_reads_back(bits: u64) {
            let value = f64::from_bits(bits);
            let back = parse_double(&format_double(value)).unwrap();
            prop_assert!(back.to_bits() == bits || (back.is_nan() && value.is_nan()));
        }
    }
}
