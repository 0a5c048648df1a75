//! Finds a text between two others, to split ranges of keys.

/// The least and the greatest character of midpoints, unless a bound has others. Most keys consist of
/// these characters.
const LOW: char = ' ';
const HIGH: char = '~';

/// Returns a text between `low` and `high` (`None`: no limit), near the middle; `None` if the two are
/// too close to split.
pub(crate) fn midpoint(low: &str, high: Option<&str>) -> Option<String> {
    if high.is_some_and(|high| high <= low) {
        return None;
    }
    let mut high = high.map(str::chars);
    let mut prefix = String::new();
    for c in low.chars() {
        let top = match &mut high {
            Some(rest) => rest.next()?,
            None => HIGH,
        };
        if let Some(middle) = between(c, top) {
            prefix.push(middle);
            return checked(prefix, low);
        }
        prefix.push(c);
        if c != top {
            high = None;
        }
    }
    let top = match &mut high {
        Some(rest) => rest.next()?,
        None => HIGH,
    };
    prefix.push(between(LOW, top)?);
    checked(prefix, low)
}

fn checked(text: String, low: &str) -> Option<String> {
    (text.as_str() > low).then_some(text)
}

/// Returns a valid key character between two others.
fn between(low: char, high: char) -> Option<char> {
    let (low, high) = (u32::from(low), u32::from(high));
    let middle = low + high.checked_sub(low)? / 2;
    let is_allowed = |c: &char| !c.is_control() && !matches!(c, '/' | '\\' | '#' | '?');
    (middle.max(low + 1)..high).find_map(|code| char::from_u32(code).filter(is_allowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_middle_lies_about_in_the_middle() {
        assert_eq!(midpoint("", None).as_deref(), Some("O"));
        assert_eq!(midpoint("a", Some("c")).as_deref(), Some("b"));
        assert_eq!(midpoint("a", Some("b")).as_deref(), Some("aO"));
        assert_eq!(midpoint("key1", Some("key9")).as_deref(), Some("key5"));
        assert_eq!(midpoint("a", Some("a")), None);
        assert_eq!(midpoint("b", Some("a")), None);
    }

    proptest! {
        #[test]
        fn a_midpoint_lies_between(low in "[ -~é😀]{0,5}", high in prop::option::of("[ -~é😀]{1,5}")) {
            if let Some(middle) = midpoint(&low, high.as_deref()) {
                prop_assert!(middle > low);
                prop_assert!(high.is_none_or(|high| middle < high));
            }
        }
    }
}
