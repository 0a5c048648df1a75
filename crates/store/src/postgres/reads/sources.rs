//! Converts spans to sources: statements that return rows of a page.

use std::borrow::Cow;

use crate::postgres::fault::StatementError;
use crate::postgres::reads::filter::{self, Binds};
use crate::postgres::state::table_ids::TablePart;
use crate::postgres::statements;
use crate::protocol::model::{Key, PageOrder};
use crate::protocol::plan::{Predicate, Projection, Span};

/// Keys for one statement: a range or a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// A range of keys.
    Range(&'a Span),
    /// Single keys in the order of the page, at least one.
    Points(&'a [Span]),
}

impl Step<'_> {
    /// The bound where the step begins; `None` at the end of the table.
    pub(crate) fn start(&self, order: PageOrder) -> Option<&Key> {
        match self {
            Step::Range(span) => order.start(span),
            Step::Points(spans) => spans.first().and_then(|span| order.start(span)),
        }
    }
}

/// Converts spans to steps, and groups adjacent single keys.
pub(crate) fn steps(spans: &[Span]) -> Vec<Step<'_>> {
    spans
        .chunk_by(|a, b| a.as_point().is_some() && b.as_point().is_some())
        .map(|chunk| match chunk {
            [span] if span.as_point().is_none() => Step::Range(span),
            points => Step::Points(points),
        })
        .collect()
}

/// Maximum bytes of a text with a filter that stays prepared: two or three comparisons. A prepared text takes about
/// 80 times as much memory in PostgreSQL, on each connection.
const MAX_KEPT_TEXT: usize = 2560;

pub(crate) struct Source {
    /// The text for ascending order.
    pub text: Cow<'static, str>,
    pub binds: Binds,
    /// Whether the connection keeps the statement prepared. Texts that clients can vary must be short for that.
    pub is_kept: bool,
}

impl Source {
    /// A source with one of the few texts that do not depend on a filter.
    fn fixed(text: Cow<'static, str>, binds: Binds) -> Self {
        Self { text, binds, is_kept: true }
    }

    /// A source with a filter in its text.
    pub(crate) fn composed(text: String, binds: Binds) -> Self {
        Self { is_kept: text.len() <= MAX_KEPT_TEXT, text: text.into(), binds }
    }
}

/// Reads at most `limit` rows of `span`.
pub(crate) fn range(
    part: TablePart,
    span: &Span,
    limit: usize,
    projection: Projection,
) -> Result<Source, StatementError> {
    let (binds, buckets) = range_binds(part, span, limit)?;
    Ok(Source::fixed(statements::range(projection, span.upper.is_some(), buckets), binds))
}

/// Reads `rows` rows of `span`. Returns at most `limit` matching rows, and the key of the row after the window.
pub(crate) fn window(
    part: TablePart,
    span: &Span,
    (rows, limit): (usize, usize),
    predicate: &Predicate,
    projection: Projection,
) -> Result<Source, StatementError> {
    let (mut binds, buckets) = range_binds(part, span, rows)?;
    let (empty, limit) = (binds.empty_object()?, binds.add(limit as i64)?);
    let condition = filter::fragment(predicate, &mut binds)?;
    let bounded = span.upper.is_some();
    let text = statements::window(projection, bounded, buckets, &condition, (&empty, &limit));
    Ok(Source::composed(text, binds))
}

/// Reads rows of `span`. Returns matching rows and a sample of the others, at most `limit` in total.
pub(crate) fn walk(
    part: TablePart,
    span: &Span,
    limit: usize,
    predicate: &Predicate,
    projection: Projection,
) -> Result<Source, StatementError> {
    let (mut binds, buckets) = range_binds(part, span, limit)?;
    let condition = filter::fragment(predicate, &mut binds)?;
    Ok(Source::composed(statements::walk(projection, span.upper.is_some(), buckets, &condition), binds))
}

/// Returns the common parameters of range statements, and the number of buckets.
fn range_binds(part: TablePart, span: &Span, limit: usize) -> Result<(Binds, usize), StatementError> {
    let mut binds = Binds::default();
    binds.add(part.table_id.table_no)?;
    binds.add(limit as i64)?;
    for key in std::iter::once(&span.lower).chain(&span.upper) {
        binds.add(key.partition.as_str())?;
        binds.add(key.row.as_str())?;
    }
    let buckets = buckets(part, span);
    for bucket in &buckets {
        binds.add(*bucket)?;
    }
    Ok((binds, buckets.len()))
}

fn buckets(part: TablePart, span: &Span) -> Vec<i64> {
    match (part.bucket, span.partition()) {
        (None, Some(partition)) => vec![part.table_id.bucket(partition)],
        _ => all_buckets(part),
    }
}

pub(crate) fn all_buckets(part: TablePart) -> Vec<i64> {
    part.bucket.map_or_else(|| part.table_id.buckets().collect(), |bucket| vec![bucket])
}

/// Reads at most `limit` of the rows with these keys.
pub(crate) fn points(
    part: TablePart,
    spans: &[Span],
    limit: usize,
    projection: Projection,
) -> Result<Source, StatementError> {
    let mut binds = Binds::default();
    binds.add(part.table_id.table_no)?;
    binds.add(limit as i64)?;
    let pks: Vec<&str> = spans.iter().map(|span| span.lower.partition.as_str()).collect();
    let rks: Vec<&str> = spans.iter().map(|span| span.lower.row.as_str()).collect();
    let one = pks.first().filter(|first| pks.iter().all(|pk| pk == *first));
    let text = if let Some(partition) = one {
        binds.add(part.table_id.bucket(partition))?;
        binds.add(*partition)?;
        statements::points_of_partition(projection)
    } else if let Some(bucket) = part.bucket {
        binds.add(bucket)?;
        binds.add(pks)?;
        statements::points_of_bucket(projection)
    } else {
        let buckets: Vec<i64> = pks.iter().map(|pk| part.table_id.bucket(pk)).collect();
        binds.add(buckets)?;
        binds.add(pks)?;
        statements::points(projection)
    };
    binds.add(rks)?;
    Ok(Source::fixed(text.into(), binds))
}

/// Reads at most `limit` of the rows with these keys that match a predicate.
pub(crate) fn filtered_points(
    part: TablePart,
    spans: &[Span],
    limit: usize,
    predicate: &Predicate,
    projection: Projection,
) -> Result<Source, StatementError> {
    let Source { text, mut binds, .. } = points(part, spans, spans.len(), Projection::Full)?;
    let condition = filter::fragment(predicate, &mut binds)?;
    let (empty, limit) = (binds.empty_object()?, binds.add(limit as i64)?);
    Ok(Source::composed(statements::filtered(&text, &condition, projection, &empty, &limit), binds))
}

/// Returns the condition that a row lies in one of these spans.
pub(crate) fn in_spans(spans: &[Span], binds: &mut Binds) -> Result<String, StatementError> {
    let mut texts = Vec::with_capacity(spans.len());
    for span in spans {
        let lower = [binds.add(span.lower.partition.as_str())?, binds.add(span.lower.row.as_str())?];
        let mut text = format!("(pk, rk) >= ({}, {})", lower[0], lower[1]);
        if let Some(upper) = &span.upper {
            let upper = [binds.add(upper.partition.as_str())?, binds.add(upper.row.as_str())?];
            text += &format!(" AND (pk, rk) < ({}, {})", upper[0], upper[1]);
        }
        texts.push(format!("({text})"));
    }
    Ok(format!("({})", texts.join(" OR ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(pk: &str, rk: &str) -> Span {
        Span { lower: Key::new(pk, rk), upper: Some(Key::new(pk, format!("{rk}\u{1}"))) }
    }

    #[test]
    fn neighbouring_points_share_a_statement() {
        let spans = [
            point("a", "1"),
            point("a", "2"),
            Span { lower: Key::new("b", ""), upper: None },
            point("c", "1"),
        ];
        assert_eq!(
            steps(&spans),
            [Step::Points(&spans[..2]), Step::Range(&spans[2]), Step::Points(&spans[3..])]
        );
        assert_eq!(steps(&[]), []);
    }
}
