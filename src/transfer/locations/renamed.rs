//! A place whose tables have other names than those they are compared with.

use crate::protocol::codec::policies::Policy;
use crate::protocol::codec::properties::ServiceProperties;
use crate::protocol::model::Key;
use crate::transfer::contract::{Rejected, RowReader, TransferResult, TransferSource};
use crate::transfer::rows::range::RowRange;
use crate::transfer::rows::row::Row;

/// A place with the names of another one for its tables.
pub(crate) struct Renamed<'a> {
    place: &'a dyn TransferSource,
    /// The other name and the own one of each table that has two.
    names: &'a [(String, String)],
}

impl<'a> Renamed<'a> {
    /// Returns a place whose tables are called by the first names instead of the second ones.
    pub(crate) fn new(place: &'a dyn TransferSource, names: &'a [(String, String)]) -> Self {
        Self { place, names }
    }

    fn own<'t>(&'t self, table: &'t str) -> &'t str {
        let renamed = self.names.iter().find(|(other, _)| other.eq_ignore_ascii_case(table));
        renamed.map_or(table, |(_, own)| own)
    }
}

impl TransferSource for Renamed<'_> {
    fn tables(&self) -> TransferResult<Vec<String>> {
        let other = |own: String| {
            let renamed = self.names.iter().find(|(_, name)| name.eq_ignore_ascii_case(&own));
            // A table that has the other name of one is none of those that are compared.
            let is_hidden = || self.names.iter().any(|(other, _)| other.eq_ignore_ascii_case(&own));
            match renamed {
                Some((other, _)) => Some(other.clone()),
                None => (!is_hidden()).then_some(own),
            }
        };
        Ok(self.place.tables()?.into_iter().filter_map(other).collect())
    }

    fn is_ordered(&self) -> bool {
        self.place.is_ordered()
    }

    fn open<'a>(
        &'a self,
        table: &str,
        range: &RowRange,
        keys_only: bool,
    ) -> TransferResult<Box<dyn RowReader + 'a>> {
        self.place.open(self.own(table), range, keys_only)
    }

    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>> {
        self.place.probe(self.own(table), range)
    }

    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>> {
        self.place.get(self.own(table), key)
    }

    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>> {
        self.place.policies(self.own(table))
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        self.place.properties()
    }

    fn each_rejected(
        &self,
        take: &mut dyn FnMut(&str, Rejected) -> TransferResult<()>,
    ) -> TransferResult<()> {
        self.place.each_rejected(take)
    }
}
