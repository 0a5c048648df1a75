//! Finds keys that split the unread rest of a range. They differ in the characters after the rest's common prefix.

use std::collections::BTreeSet;

use crate::contract::TransferSource;
use crate::error::TransferResult;
use crate::protocol::model::Key;
use crate::rows::range::{Lower, RowRange};
use crate::work::in_parallel;

const MIN_CHAR: char = ' ';
/// The search in a partition ends at this RowKey, because servers disagree on the order of characters above U+D7FF.
const MAX_ROW_KEY: &str = "\u{d7ff}";
/// Characters of a split point after the common prefix.
const DIGITS: i32 = 6;

/// The unread rest of a range.
pub(crate) struct Remainder<'a> {
    pub source: &'a dyn TransferSource,
    pub table: &'a str,
    /// The last key that had been read when the search began.
    pub claimed: Key,
    pub upper: Option<Key>,
    /// The number of idle workers, which is also the number of concurrent requests and of wanted split
    /// points.
    pub width: usize,
    /// Returns the last key that has been read by now; `None` if the range is finished.
    pub reached: &'a (dyn Fn() -> Option<Key> + Sync),
}

/// A text greater than a given text: a prefix of the given text, and one more character.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    kept: usize,
    then: char,
}

/// The approximate end of the keys in a range: between `last` and `next`.
struct KeysEnd {
    /// The greatest candidate with keys at or after it.
    last: String,
    /// The next candidate, with no keys at or after it. `None` if `last` is the greatest of all candidates.
    next: Option<String>,
    /// A key at or after `last`.
    key: String,
}

impl Remainder<'_> {
    /// Returns keys that split the rest into parts with about the same number of partitions, or of rows if
    /// only one partition is left. Returns none if there is nothing to split.
    pub(crate) fn points(&self) -> TransferResult<Vec<Key>> {
        let partition = &self.claimed.partition;
        let upper = self.upper.as_ref();
        let end = upper.map(|upper| upper.partition.as_str());
        if end != Some(partition) {
            let after = |text: &str| RowRange {
                lower: Lower::From(Key::new(text, "")),
                upper: end.map(|end| Key::new(end, "")),
            };
            let found = self.find_end(partition, end, &|text| {
                Ok(self.source.probe(self.table, &after(text))?.map(|key| key.partition))
            })?;
            let reached = || (self.reached)().map(|key| key.partition);
            if let Some(found) = found {
                let points = self.spread(found, reached());
                return Ok(points.into_iter().map(|point| Key::new(point, "")).collect());
            }
            if let Some(upper) = upper.filter(|upper| !upper.row.is_empty()) {
                return Ok(vec![Key::new(upper.partition.as_str(), "")]);
            }
        }
        let end = upper.filter(|upper| upper.partition == *partition);
        let end = end.map_or(MAX_ROW_KEY, |upper| upper.row.as_str());
        let after = |text: &str| RowRange {
            lower: Lower::From(Key::new(partition.as_str(), text)),
            upper: Some(Key::new(partition.as_str(), end)),
        };
        let found = self.find_end(&self.claimed.row, Some(end), &|text| {
            Ok(self.source.probe(self.table, &after(text))?.map(|key| key.row))
        })?;
        let Some(found) = found else { return Ok(Vec::new()) };
        let reached = (self.reached)().filter(|key| key.partition == *partition).map(|key| key.row);
        let points = self.spread(found, reached);
        Ok(points.into_iter().map(|point| Key::new(partition.as_str(), point)).collect())
    }

    /// Finds the end of the keys after a text, precisely enough to place `width` split points before it.
    fn find_end(
        &self,
        text: &str,
        end: Option<&str>,
        probe: &(dyn Fn(&str) -> TransferResult<Option<String>> + Sync),
    ) -> TransferResult<Option<KeysEnd>> {
        let Some(found) = self.search(text, end, probe)? else { return Ok(None) };
        let Tails { low, high, base, .. } = Tails::between(text, &found.last);
        if (high - low) * base > self.width as f64 {
            return Ok(Some(found));
        }
        let finer = self.search(&found.last, found.next.as_deref().or(end), probe)?;
        Ok(Some(finer.unwrap_or(found)))
    }

    /// Finds the greatest candidate for which `probe` returns a text.
    fn search(
        &self,
        text: &str,
        end: Option<&str>,
        probe: &(dyn Fn(&str) -> TransferResult<Option<String>> + Sync),
    ) -> TransferResult<Option<KeysEnd>> {
        let candidates = candidates(text, end);
        let text_of = |candidate: &Candidate| format!("{}{}", &text[..candidate.kept], candidate.then);
        let (mut found, mut from, mut to) = (None, 0, candidates.len());
        // A finished range cannot be split.
        while from < to && (self.reached)().is_some() {
            let asked = spaced(from, to, self.width);
            let texts: Vec<String> = asked.iter().map(|at| text_of(&candidates[*at])).collect();
            let answers = in_parallel(self.width, texts, |text| probe(&text))?;
            for (at, answer) in asked.into_iter().zip(answers) {
                let Some(key) = answer else {
                    to = to.min(at);
                    continue;
                };
                let known = candidates.partition_point(|candidate| text_of(candidate) <= key).max(at + 1);
                if known > from {
                    from = known;
                    let (last, next) = (text_of(&candidates[known - 1]), candidates.get(known).map(text_of));
                    found = Some(KeysEnd { last, next, key });
                }
            }
        }
        Ok(found)
    }

    /// Returns up to `width` evenly spaced texts between `reached` and `last`, or only `key` if there are none.
    fn spread(&self, KeysEnd { last, key, .. }: KeysEnd, reached: Option<String>) -> Vec<String> {
        let Some(reached) = reached.filter(|reached| *reached < last) else { return vec![key] };
        let tails = Tails::between(&reached, &last);
        let step = (tails.high - tails.low) / (self.width + 1) as f64;
        let points = (1..=self.width).map(|number| tails.text(tails.low + step * number as f64));
        let mut points: Vec<String> = points.filter(|point| *point > reached).collect();
        points.dedup();
        if points.is_empty() { vec![key] } else { points }
    }
}

/// Two texts as fractions. The characters after their common prefix are digits of `alphabet`, in base `base`.
struct Tails<'a> {
    common: &'a str,
    alphabet: Vec<char>,
    base: f64,
    low: f64,
    high: f64,
}

impl<'a> Tails<'a> {
    /// `high` is a prefix of unknown keys, so half a unit of its last digit is added, as the middle of these keys.
    fn between(low: &'a str, high: &str) -> Self {
        let alike = low.char_indices().zip(high.chars()).find(|((_, a), b)| a != b);
        let common = &low[..alike.map_or(low.len().min(high.len()), |((at, _), _)| at)];
        let (low, high) = (&low[common.len()..], &high[common.len()..]);
        let alphabet = alphabet(&format!("{low}{high}"));
        let base = alphabet.len() as f64;
        let rank = |c: char| alphabet.partition_point(|other| *other < c) as f64;
        let sum =
            |text: &str| text.chars().zip(1..=DIGITS).map(|(c, at)| rank(c) / base.powi(at)).sum::<f64>();
        let length = i32::try_from(high.chars().count()).unwrap_or(DIGITS).min(DIGITS);
        let (low, high) = (sum(low), sum(high) + 0.5 / base.powi(length));
        Self { common, alphabet, base, low, high }
    }

    fn text(&self, mut value: f64) -> String {
        let mut text = self.common.to_owned();
        for _ in 0..DIGITS {
            value = (value * self.base).clamp(0.0, self.base - 1e-9);
            text.extend(self.alphabet.get(value as usize));
            value = value.fract();
        }
        text
    }
}

/// Returns greater texts before `end` in ascending order: a prefix of `text`, the longest first, and one character.
fn candidates(text: &str, end: Option<&str>) -> Vec<Candidate> {
    let alphabet = alphabet(text);
    let mut all = vec![Candidate { kept: text.len(), then: MIN_CHAR }];
    let last = std::iter::once((text.len(), MIN_CHAR));
    for (kept, replaced) in last.chain(text.char_indices().rev()) {
        let greater = alphabet.iter().filter(|then| **then > replaced);
        all.extend(greater.map(|then| Candidate { kept, then: *then }));
    }
    let is_before = |candidate: &Candidate| {
        end.is_none_or(|end| text[..candidate.kept].chars().chain([candidate.then]).lt(end.chars()))
    };
    all.truncate(all.partition_point(is_before));
    all
}

/// Returns the likely characters of keys like this one, in ascending order.
fn alphabet(text: &str) -> Vec<char> {
    let mut all: BTreeSet<char> = ('0'..='9').collect();
    for c in text.chars() {
        match c {
            'a'..='f' => all.extend('a'..='f'),
            'A'..='F' => all.extend('A'..='F'),
            'g'..='z' => all.extend('a'..='z'),
            'G'..='Z' => all.extend('A'..='Z'),
            // In other scripts, the next character may be near or distant: distances are powers of two.
            c if !c.is_ascii() => {
                let further = (0..16).filter_map(|bits| char::from_u32(u32::from(c) + (1 << bits)));
                all.extend(further.filter(|c| *c < '\u{e000}' && !c.is_control()));
            }
            _ => {}
        }
    }
    if text.is_empty() {
        all.extend(('A'..='Z').chain('a'..='z'));
    }
    all.into_iter().collect()
}

/// Returns up to `count` evenly spaced numbers in a range. If the range begins with 0, the first of them is 0.
fn spaced(from: usize, to: usize, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (1..=count).map(|number| from + (to - from) * number / (count + 1)).collect();
    if from == 0
        && let Some(first) = all.first_mut()
    {
        *first = 0;
    }
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::rows::Row;
    use crate::work::sorted_source::{KeyOrder, SortedSource};
    use proptest::prelude::*;

    const ROWS: u64 = 6000;

    fn place(key: impl Fn(u64) -> (String, String)) -> SortedSource {
        let row = |number| {
            let (partition, row) = key(number);
            let entity = serde_json::json!({ "PartitionKey": partition, "RowKey": row });
            Row::from_json(&entity.to_string()).unwrap()
        };
        SortedSource::new(KeyOrder::CodePoints, (0..ROWS).map(row).collect(), 500)
    }

    /// Returns the split points after a worker has read `read` rows.
    fn points(place: &SortedSource, read: usize, width: usize) -> Vec<Key> {
        let claimed = place.rows[read - 1].key.clone();
        let reached = || Some(claimed.clone());
        let rest = Remainder {
            source: place,
            table: "People",
            claimed: claimed.clone(),
            upper: None,
            width,
            reached: &reached,
        };
        rest.points().unwrap()
    }

    fn guid(number: u64) -> String {
        uuid::Uuid::from_u64_pair(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number).to_string()
    }

    #[test]
    fn keys_of_each_kind_are_split_into_like_parts_with_few_requests() {
        type KeyOf = fn(u64) -> (String, String);
        let kinds: [(&str, KeyOf); 6] = [
            ("a common beginning", |n| (format!("customer-{:08}", n / 10), format!("{n}"))),
            ("one partition", |n| ("p".into(), format!("r{n:08}"))),
            ("GUIDs", |n| (guid(n), String::new())),
            ("GUIDs in one partition", |n| (String::new(), guid(n))),
            ("upper case", |n| (guid(n).to_uppercase(), String::new())),
            ("falling ticks", |n| {
                ("p".into(), format!("{:019}", 2_517_555_123_456_789_012 - n * 10_000_000))
            }),
        ];
        for (kind, key) in kinds {
            for width in [1, 3] {
                let place = place(key);
                let points = points(&place, 1000, width);
                assert_eq!(points.len(), width, "{kind}: {points:?}");
                let before = |point: &Key| place.rows.partition_point(|row| row.key < *point);
                let bounds =
                    [vec![1000], points.iter().map(before).collect(), vec![place.rows.len()]].concat();
                let parts: Vec<usize> = bounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
                let fair = 5000 / parts.len();
                assert!(parts.iter().all(|part| *part > fair / 4 && *part < fair * 2), "{kind}: {parts:?}");
                let probes = place.probes.load(Ordering::Relaxed);
                assert!(probes <= 20, "{kind}, {width}: {probes}");
            }
        }
    }

    #[test]
    fn a_search_ends_with_its_range() {
        let place = place(|n| ("p".into(), format!("r{n:08}")));
        let claimed = place.rows[0].key.clone();
        let rest =
            Remainder { source: &place, table: "People", claimed, upper: None, width: 1, reached: &|| None };
        assert_eq!(rest.points().unwrap(), []);
        assert_eq!(place.probes.load(Ordering::Relaxed), 0);
    }

    proptest! {
        #[test]
        fn candidates_ascend_between_the_text_and_the_end(
            text in "[ -~é中😀]{0,5}", end in prop::option::of("[ -~é中😀]{1,5}"),
        ) {
            let text_of = |candidate: &Candidate| format!("{}{}", &text[..candidate.kept], candidate.then);
            let all: Vec<String> = candidates(&text, end.as_deref()).iter().map(text_of).collect();
            prop_assert!(all.is_sorted_by(|a, b| a < b), "{:?}", all);
            prop_assert!(all.iter().all(|found| *found > text && end.as_ref().is_none_or(|end| found < end)));
        }
    }
}
