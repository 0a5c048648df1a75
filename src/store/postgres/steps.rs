//! From spans to sources: statements that yield rows of a page in key order.

use std::borrow::Cow;

use sqlx::postgres::PgArguments;
use sqlx::{Arguments, Encode, Postgres, Type};

use super::catalog::Facts;
use super::fault::Trouble;
use super::{filter, statements};
use crate::model::Key;
use crate::plan::{Predicate, Projection, Span};
use crate::store::Fault;

/// What one statement reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// A range of keys.
    Range(&'a Span),
    /// Single keys, ascending; never none.
    Points(&'a [Span]),
}

impl Step<'_> {
    /// The first key that the step can yield.
    pub fn first(&self) -> Option<&Key> {
        match self {
            Step::Range(span) => Some(&span.lower),
            Step::Points(spans) => spans.first().map(|span| &span.lower),
        }
    }
}

/// Groups neighbouring single keys.
pub fn steps(spans: &[Span]) -> Vec<Step<'_>> {
    spans
        .chunk_by(|a, b| a.as_point().is_some() && b.as_point().is_some())
        .map(|chunk| match chunk {
            [span] if span.as_point().is_none() => Step::Range(span),
            points => Step::Points(points),
        })
        .collect()
}

/// Values of a statement, numbered as they come.
#[derive(Default)]
pub struct Binds(PgArguments);

impl Binds {
    /// Adds a value and returns its placeholder.
    pub fn add<'t, T>(&mut self, value: T) -> Result<String, Trouble>
    where
        T: Encode<'t, Postgres> + Type<Postgres>,
    {
        self.0.add(value).map_err(|_| Fault::Other)?;
        Ok(format!("${}", self.0.len()))
    }

    /// The values.
    pub fn into_inner(self) -> PgArguments {
        self.0
    }
}

/// A statement that yields rows in key order.
pub struct Source {
    pub text: Cow<'static, str>,
    pub binds: Binds,
}

/// At most `limit` rows from `lower` on, inside `span`.
pub fn range(
    facts: Facts,
    span: &Span,
    lower: &Key,
    limit: usize,
    projection: Projection,
) -> Result<Source, Trouble> {
    let (binds, buckets) = range_binds(facts, span, lower, limit)?;
    Ok(Source { text: statements::range(projection, span.upper.is_some(), buckets), binds })
}

/// Those of the rows from `lower` on, inside `span`, that a predicate keeps, and
/// by chance `share` of the others: `limit` at most of both together.
pub fn walk(
    facts: Facts,
    span: &Span,
    lower: &Key,
    (limit, share): (usize, f64),
    predicate: &Predicate,
    projection: Projection,
) -> Result<Source, Trouble> {
    let (mut binds, buckets) = range_binds(facts, span, lower, limit)?;
    let share = binds.add(share)?;
    let condition = filter::fragment(predicate, &mut binds)?;
    let text = statements::walk(projection, span.upper.is_some(), buckets, &condition, &share);
    Ok(Source { text: text.into(), binds })
}

/// The values that statements about a range have in common, and their buckets.
fn range_binds(facts: Facts, span: &Span, lower: &Key, limit: usize) -> Result<(Binds, usize), Trouble> {
    let mut binds = Binds::default();
    binds.add(facts.table_no)?;
    binds.add(limit as i64)?;
    for key in std::iter::once(lower).chain(&span.upper) {
        binds.add(key.partition.as_str())?;
        binds.add(key.row.as_str())?;
    }
    let buckets = buckets(facts, span);
    for bucket in &buckets {
        binds.add(*bucket)?;
    }
    Ok((binds, buckets.len()))
}

fn buckets(facts: Facts, span: &Span) -> Vec<i64> {
    match span.partition() {
        Some(partition) => vec![facts.bucket(partition)],
        None => facts.buckets().collect(),
    }
}

/// At most `limit` of the rows with these keys.
pub fn points(facts: Facts, spans: &[Span], limit: usize, projection: Projection) -> Result<Source, Trouble> {
    let mut binds = Binds::default();
    binds.add(facts.table_no)?;
    binds.add(limit as i64)?;
    let pks: Vec<&str> = spans.iter().map(|span| span.lower.partition.as_str()).collect();
    let rks: Vec<&str> = spans.iter().map(|span| span.lower.row.as_str()).collect();
    let one = pks.first().filter(|first| pks.iter().all(|pk| pk == *first));
    let text = if let Some(partition) = one {
        binds.add(facts.bucket(partition))?;
        binds.add(*partition)?;
        statements::points_of_partition(projection)
    } else {
        let buckets: Vec<i64> = pks.iter().map(|pk| facts.bucket(pk)).collect();
        binds.add(buckets)?;
        binds.add(pks)?;
        statements::points(projection)
    };
    binds.add(rks)?;
    Ok(Source { text: text.into(), binds })
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
