//! Reads in either order of keys. A bound is the position of a read: an ascending read continues at this key,
//! a descending read continues below it.

use super::span::{Span, above, starting_at, within};
use crate::model::{Key, PageOrder};

impl PageOrder {
    /// Converts the parts of a page from ascending order to this order, or from this order to ascending order.
    pub fn arrange<T>(self, mut parts: Vec<T>) -> Vec<T> {
        if self == Self::Descending {
            parts.reverse();
        }
        parts
    }

    /// Returns the opposite order.
    pub const fn reversed(self) -> Self {
        match self {
            Self::Ascending => Self::Descending,
            Self::Descending => Self::Ascending,
        }
    }

    /// Returns the bound of a read that has not yet returned `key`.
    pub fn at(self, key: Key) -> Key {
        match self {
            Self::Ascending => key,
            Self::Descending => above(&key),
        }
    }

    /// Returns the bound of a read that has returned `key`.
    pub fn after(self, key: Key) -> Key {
        match self {
            Self::Ascending => above(&key),
            Self::Descending => key,
        }
    }

    /// Returns the bound at which a span begins, or `None` if the span begins at the end of the table.
    pub const fn start(self, span: &Span) -> Option<&Key> {
        match self {
            Self::Ascending => Some(&span.lower),
            Self::Descending => span.upper.as_ref(),
        }
    }

    /// Returns the rest of a span from a bound within it.
    pub fn rest(self, span: Span, bound: Key) -> Span {
        match self {
            Self::Ascending => Span { lower: bound, ..span },
            Self::Descending => Span { upper: Some(bound), ..span },
        }
    }

    /// Returns the rest of spans from a bound, which may contain U+0000.
    pub fn rest_of(self, spans: Vec<Span>, bound: &Key) -> Vec<Span> {
        match self {
            Self::Ascending => starting_at(spans, bound),
            Self::Descending => within(spans, &Key::new("", ""), Some(bound)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(lower: (&str, &str), upper: Option<(&str, &str)>) -> Span {
        Span { lower: Key::new(lower.0, lower.1), upper: upper.map(|(p, r)| Key::new(p, r)) }
    }

    #[test]
    fn a_read_goes_on_with_the_keys_that_it_has_not_returned() {
        let holds = |spans: &[Span], key: &Key| {
            spans.iter().any(|span| span.lower <= *key && span.upper.as_ref().is_none_or(|upper| key < upper))
        };
        let keys: Vec<Key> =
            ["", "a", "b"].iter().flat_map(|p| ["", "r", "rr", "s"].map(|r| Key::new(*p, r))).collect();
        let spans = vec![span(("", "r"), Some(("a", "s"))), span(("b", ""), None)];
        for order in [PageOrder::Ascending, PageOrder::Descending] {
            let mut left = keys.clone();
            if order == PageOrder::Descending {
                left.reverse();
            }
            left.retain(|key| holds(&spans, key));
            while let Some(key) = left.first().cloned() {
                let from = order.rest_of(order.arrange(spans.clone()), &order.at(key.clone()));
                assert!(keys.iter().all(|key| holds(&from, key) == left.contains(key)), "{order:?} {key:?}");
                left.remove(0);
                let rest = order.rest_of(order.arrange(spans.clone()), &order.after(key.clone()));
                assert!(keys.iter().all(|key| holds(&rest, key) == left.contains(key)), "{order:?} {key:?}");
            }
        }
    }

    #[test]
    fn a_span_begins_at_the_end_that_is_read_first() {
        let one = span(("a", ""), Some(("c", "")));
        assert_eq!(PageOrder::Ascending.start(&one), Some(&Key::new("a", "")));
        assert_eq!(PageOrder::Descending.start(&one), Some(&Key::new("c", "")));
        assert_eq!(PageOrder::Descending.start(&Span::everything()), None);
        let bound = Key::new("b", "x");
        assert_eq!(PageOrder::Ascending.rest(one.clone(), bound.clone()), span(("b", "x"), Some(("c", ""))));
        assert_eq!(PageOrder::Descending.rest(one, bound), span(("a", ""), Some(("b", "x"))));
    }
}
