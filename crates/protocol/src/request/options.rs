//! Parses the query string (protocol §2.3, §6.1, §7.3).

use std::borrow::Cow;

use crate::codec::json::write::Select;
use crate::codec::uri::{escape_lightly, percent_decode};
use crate::error::{Code, Error, Result};
use crate::model::PageOrder;
use crate::model::names::{check_property_name, ordinal};
use crate::odata::{self, Expr, Grammar};

/// The decoded parameters of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

/// The parameters of an empty query string.
pub static NO_OPTIONS: Options<'static> = Options { pairs: Vec::new() };

/// The parsed options of a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QueryOptions {
    pub filter: Option<Expr>,
    pub top: Option<usize>,
    pub select: Option<Select>,
    pub order_by: Option<OrderBy>,
    /// The continuation as sent: a token, or a key. An empty value differs from a missing value.
    pub next_partition: Option<String>,
    pub next_row: Option<String>,
    pub next_table: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderBy {
    pub order: PageOrder,
    pub terms: OrderTerms,
}

/// The sort key of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderTerms {
    /// By PartitionKey, then RowKey.
    Keys,
    /// By RowKey without PartitionKey.
    RowKey,
    /// By a property, or by Timestamp.
    Property(String),
}

/// Maximum number of parameters.
const MAX_PARAMETERS: usize = 64;

/// The reason for refusing a filter that needs extended queries.
const FILTER_NEEDS_EXTENDED: &str =
    "only accounts with extended queries have such filters: rowhouse account queries ACCOUNT extended";
/// The reason for refusing an order.
const ORDER_NEEDS_EXTENDED: &str = "only queries of entities have an order, of accounts with extended queries: \
                                      rowhouse account queries ACCOUNT extended";

impl<'a> Options<'a> {
    /// Splits and decodes a query string, in which `+` is a space.
    ///
    /// # Errors
    /// [`Code::InvalidQueryParameterValue`] for invalid escapes, bytes that are not UTF-8 and an invalid
    /// `timeout`; [`Code::InvalidInput`] for a duplicate or unknown system option; [`Code::NotImplemented`]
    /// for OData options that Azure does not support (UNVERIFIED 10).
    pub fn parse(query: &'a str) -> Result<Self> {
        Self::parse_with(query, false)
    }

    /// Parses like [`Options::parse`], and accepts `$orderby` if `allows_order` is set.
    pub fn parse_with(query: &'a str, allows_order: bool) -> Result<Self> {
        let (options, deferred_error) = Self::read(query);
        deferred_error.map_or(Ok(()), Err)?;
        options.check(allows_order)?;
        Ok(options)
    }

    /// Returns the parameters that can be decoded, and the error of the others. Rowhouse reads a SAS and negotiates the
    /// format of the response without the others.
    pub fn read(query: &'a str) -> (Self, Option<Error>) {
        let mut options = Self::default();
        let mut deferred_error = None;
        for parameter in query.split('&').filter(|p| !p.is_empty()) {
            if options.pairs.len() == MAX_PARAMETERS {
                deferred_error.get_or_insert(Code::InvalidInput.into());
                break;
            }
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match decode(name).and_then(|name| Ok((name, decode(value)?))) {
                Ok(pair) => options.pairs.push(pair),
                Err(error) => drop(deferred_error.get_or_insert(error)),
            }
        }
        (options, deferred_error)
    }

    /// Refuses unknown and unsupported parameters. `$orderby` is supported if `allows_order` is set.
    pub fn check(&self, allows_order: bool) -> Result<()> {
        for (at, (name, value)) in self.pairs.iter().enumerate() {
            let Some(option) = name.strip_prefix('$') else { continue };
            match option {
                "filter" | "top" | "select" | "format" => {}
                "orderby" if parse_order_by(value).is_some() => {
                    if !allows_order || self.any_case("comp").is_some() {
                        return Err(Error::from(Code::NotImplemented).with_reason(ORDER_NEEDS_EXTENDED));
                    }
                }
                "orderby" | "skip" | "expand" | "inlinecount" | "count" | "skiptoken" => {
                    return Err(Code::NotImplemented.into());
                }
                _ => return Err(Code::InvalidInput.into()),
            }
            if self.pairs[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(Code::InvalidInput.into());
            }
        }
        match self.any_case("timeout") {
            Some(text) if text.parse::<u32>().is_err() => Err(Code::InvalidQueryParameterValue.into()),
            _ => Ok(()),
        }
    }

    /// Returns every parameter in the order sent.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_ref())
    }

    /// Returns the value of a parameter, ignoring the case of its name.
    pub fn any_case(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_ref())
    }

    /// Returns the `$select` option, which point reads support too.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for more names than an entity can have, or for names that are too long.
    pub(crate) fn select(&self) -> Result<Option<Select>> {
        self.get("$select").map(parse_select).transpose()
    }

    /// Returns the `$filter` option, which point reads support too.
    pub(crate) fn filter(&self, grammar: Grammar) -> Result<Option<Expr>> {
        let given = self.get("$filter").filter(|text| !text.trim().is_empty());
        given
            .map(|text| odata::parse(text, grammar).map_err(|error| explain(error, text, grammar)))
            .transpose()
    }

    /// Returns the options of a query.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for `$top` outside 0 to 1000, then those of [`Options::filter`] and
    /// [`Options::select`].
    pub fn query(&self, grammar: Grammar) -> Result<QueryOptions> {
        // Some clients always send `$top`, and leave it empty for no limit.
        let top = self.get("$top").filter(|text| !text.trim().is_empty()).map(parse_top).transpose()?;
        let token = |name: &str| self.get(name).map(str::to_owned);
        Ok(QueryOptions {
            top,
            filter: self.filter(grammar)?,
            select: self.select()?,
            order_by: self.get("$orderby").and_then(parse_order_by),
            next_partition: token("NextPartitionKey"),
            next_row: token("NextRowKey"),
            next_table: token("NextTableName"),
        })
    }
}

/// Adds a reason to the error of a filter that is valid in an extended query.
fn explain(error: Error, text: &str, grammar: Grammar) -> Error {
    let extended = Grammar { extended: true, ..grammar };
    match !grammar.extended && odata::parse(text, extended).is_ok() {
        true => error.with_reason(FILTER_NEEDS_EXTENDED),
        false => error,
    }
}

fn decode(text: &str) -> Result<Cow<'_, str>> {
    let decoded = if text.contains('+') {
        percent_decode(&text.replace('+', " ")).map(|text| Cow::Owned(text.into_owned()))
    } else {
        percent_decode(text)
    };
    decoded.ok_or_else(|| Code::InvalidQueryParameterValue.into())
}

fn parse_top(text: &str) -> Result<usize> {
    text.trim().parse().ok().filter(|top| *top <= 1000).ok_or_else(|| Code::InvalidInput.into())
}

/// Parses an order: by both keys in the same direction, by RowKey alone, or by one property.
fn parse_order_by(text: &str) -> Option<OrderBy> {
    let mut terms = text.split(',').map(parse_order_term);
    let (first, second) = (terms.next()??, terms.next());
    let (order, terms) = match (first, second, terms.next()) {
        (("RowKey", order), None, None) => (order, OrderTerms::RowKey),
        (("PartitionKey", order), Some(Some(("RowKey", same))), None) if same == order => {
            (order, OrderTerms::Keys)
        }
        ((name, order), None, None) if name != "PartitionKey" && check_property_name(name).is_ok() => {
            (order, OrderTerms::Property(name.to_owned()))
        }
        _ => return None,
    };
    Some(OrderBy { order, terms })
}

fn parse_order_term(text: &str) -> Option<(&str, PageOrder)> {
    let mut words = text.split_ascii_whitespace();
    let name = words.next()?;
    let order = match (words.next(), words.next()) {
        (None | Some("asc"), None) => PageOrder::Ascending,
        (Some("desc"), None) => PageOrder::Descending,
        _ => return None,
    };
    Some((name, order))
}

fn parse_select(text: &str) -> Result<Select> {
    const MAX_NAMES: usize = 255;
    /// Limited because each entity of a page repeats the names that it lacks.
    const MAX_SELECT_BYTES: usize = 16 * 1024;
    if text.len() > MAX_SELECT_BYTES {
        return Err(Code::InvalidInput.into());
    }
    let mut names: Vec<String> =
        text.split(',').map(|name| name.trim().to_owned()).filter(|n| !n.is_empty()).collect();
    if names.len() > MAX_NAMES {
        return Err(Code::InvalidInput.into());
    }
    if names.iter().any(|name| name == "*") {
        names.clear();
    }
    names.sort_unstable_by(|a, b| ordinal(a, b));
    names.dedup();
    // Trailing white space is not part of an address.
    Ok(Select { names, url_text: escape_lightly(text.trim_end()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<QueryOptions, Code> {
        Options::parse(text)
            .and_then(|o| o.query(Grammar { max_comparisons: 100, extended: false }))
            .map_err(|e| e.code)
    }

    #[test]
    fn parameters_decode_once_and_plus_is_a_space() {
        let options = Options::parse("a=1+2&%24filter=x%2520&b&NextRowKey=").unwrap();
        assert_eq!(options.get("a"), Some("1 2"));
        assert_eq!(options.get("$filter"), Some("x%20"));
        assert_eq!(options.get("b"), Some(""));
        assert_eq!(query("NextRowKey=").unwrap().next_row.as_deref(), Some(""));
        assert_eq!(query("").unwrap().next_row, None);
        assert!(query("$filter=PartitionKey+eq+'x'").unwrap().filter.is_some());
        assert_eq!(query("$filter=&$select=").unwrap().filter, None);
    }

    #[test]
    fn top_is_bounded() {
        for (text, result) in [
            ("$top=0", Ok(Some(0))),
            ("$top=1000", Ok(Some(1000))),
            ("", Ok(None)),
            ("$top=1001", Err(Code::InvalidInput)),
            ("$top=-1", Err(Code::InvalidInput)),
            ("$top=x", Err(Code::InvalidInput)),
            ("$top=", Ok(None)),
            ("$top=x&$filter=(", Err(Code::InvalidInput)),
            ("$top=&$filter=(", Err(Code::FilterSyntax)),
        ] {
            assert_eq!(query(text).map(|q| q.top), result, "{text}");
        }
    }

    #[test]
    fn select_lists_names() {
        let select = |text: &str| query(text).unwrap().select.unwrap();
        assert_eq!(select("$select=b, a,B,b,_c").names, ["B", "_c", "a", "b"]);
        assert_eq!(select("$select=b,+a,,b%22").url_text, "b,%20a,,b%22");
        assert!(select("$select=*").names.is_empty());
        let long = "a".repeat(8 * 1024);
        assert!(query(&format!("$select={long},{}", &long[1..])).is_ok());
        assert_eq!(query(&format!("$select={long},{long}")), Err(Code::InvalidInput));
        assert_eq!((select("$select=%20").names.len(), select("$select=%20").url_text.as_str()), (0, ""));
    }

    #[test]
    fn an_order_is_understood_where_it_may_be() {
        let order = |text: &str| {
            let query = format!("$orderby={}", text.replace(' ', "+"));
            assert_eq!(Options::parse(&query).unwrap_err().code, Code::NotImplemented, "{text}");
            Options::parse_with(&query, true)
                .and_then(|o| o.query(Grammar { max_comparisons: 100, extended: true }))
                .map(|q| q.order_by)
                .map_err(|e| e.code)
        };
        let by = |order, terms| Ok(Some(OrderBy { order, terms }));
        let property = |name: &str| OrderTerms::Property(name.to_owned());
        let (ascending, descending) = (PageOrder::Ascending, PageOrder::Descending);
        assert_eq!(order("PartitionKey desc,RowKey desc"), by(descending, OrderTerms::Keys));
        assert_eq!(order(" PartitionKey  desc , RowKey desc "), by(descending, OrderTerms::Keys));
        assert_eq!(order("PartitionKey asc,RowKey"), by(ascending, OrderTerms::Keys));
        assert_eq!(order("PartitionKey,RowKey"), by(ascending, OrderTerms::Keys));
        assert_eq!(order("RowKey desc"), by(descending, OrderTerms::RowKey));
        assert_eq!(order("RowKey"), by(ascending, OrderTerms::RowKey));
        assert_eq!(order("RowKey asc"), by(ascending, OrderTerms::RowKey));
        assert_eq!(order("Age"), by(ascending, property("Age")));
        assert_eq!(order("Timestamp desc"), by(descending, property("Timestamp")));
        assert_eq!(order("rowkey desc"), by(descending, property("rowkey")), "another property");
        for other in [
            "",
            ",",
            "Age desc,RowKey desc",
            "Age,Name",
            "no-name",
            "a/b",
            "PartitionKey",
            "PartitionKey desc",
            "PartitionKey desc,RowKey",
            "PartitionKey,RowKey desc",
            "RowKey,PartitionKey",
            "PartitionKey,RowKey,",
            "PartitionKey,RowKey,Age",
            "RowKey desc desc",
            "RowKey DESC",
            "RowKey down",
            "desc desc desc",
        ] {
            assert_eq!(order(other), Err(Code::NotImplemented), "{other}");
        }
        let parsed = |text| Options::parse_with(text, true).map_err(|e| e.code);
        assert_eq!(parsed("$orderby=RowKey&$orderby=RowKey"), Err(Code::InvalidInput));
        assert_eq!(parsed("$orderby=RowKey&$skip=1"), Err(Code::NotImplemented));
        assert_eq!(parsed("$orderby=RowKey&timeout=x"), Err(Code::InvalidQueryParameterValue));
    }

    #[test]
    fn a_query_that_extended_queries_have_is_refused_with_a_reason() {
        let refused = |text: &str, extended| {
            let grammar = Grammar { max_comparisons: 100, extended };
            Options::parse(text).and_then(|options| options.query(grammar)).map_err(|error| error.reason)
        };
        let reason = Some(Box::from(FILTER_NEEDS_EXTENDED));
        for text in ["$filter=startswith(A,'x')", "$filter=A+in+(1,2)", "$filter=A+eq+null"] {
            assert_eq!(refused(text, false), Err(reason.clone()), "{text}");
            assert!(refused(text, true).is_ok(), "{text}");
        }
        assert_eq!(refused("$orderby=RowKey", false), Err(Some(ORDER_NEEDS_EXTENDED.into())));
        for text in ["$filter=year(A)+eq+1", "$filter=A+eq", "$filter=startswith(A,'x')+and", "$skip=1"] {
            assert_eq!(refused(text, false), Err(None), "{text}");
        }
    }

    #[test]
    fn options_that_the_service_lacks_are_told_from_nonsense() {
        for (text, code) in [
            ("$orderby=a", Code::NotImplemented),
            ("$skip=1", Code::NotImplemented),
            ("$inlinecount=allpages", Code::NotImplemented),
            ("$nonsense=1", Code::InvalidInput),
            ("$top=1&$top=2", Code::InvalidInput),
            ("timeout=abc", Code::InvalidQueryParameterValue),
            ("TIMEOUT=-1", Code::InvalidQueryParameterValue),
            ("a=%zz", Code::InvalidQueryParameterValue),
            ("a=%ff", Code::InvalidQueryParameterValue),
            (&"a=1&".repeat(65), Code::InvalidInput),
        ] {
            assert_eq!(query(text), Err(code), "{text}");
        }
        assert!(query("whatever=1&timeout=30&sig=x").is_ok());
    }
}
