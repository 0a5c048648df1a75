//! Rowhouse's own database, read and written without a server: entities keep their Timestamp and ETag.

mod account;
mod writes;

use crate::contract::{Counts, Page, RowReader, TransferSource, TransferTarget, WritePage};
use crate::error::TransferResult;
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, ServiceProperties};
use crate::protocol::error::Code;
use crate::protocol::model::{Key, Stored, TableName, Ticks};
use crate::protocol::plan::TableScan;
use crate::protocol::plan::span::Span;
use crate::rows::range::{Lower, RowRange};
use crate::rows::{Row, Version};
use crate::store::{CountPosition, CountedPart, LoadMark};
pub(crate) use account::LocalDatabase;
use account::{COUNT_TIME, ROWS, TIME, failed, is, name};
use rowhouse_operator::totals::{self, CountPace};

/// The sum of all parts. Where one says that the table has got other buckets, counting begins anew.
fn sum(
    part: &mut dyn FnMut(&CountPosition) -> TransferResult<Option<CountedPart>>,
    counted: &mut dyn FnMut(u64) -> TransferResult<()>,
) -> TransferResult<u64> {
    let (mut sum, mut from) = (0, Some(CountPosition::start()));
    while let Some(position) = from {
        match part(&position)? {
            Some(CountedPart { entities, next }) => {
                counted(entities)?;
                (sum, from) = (sum + entities, next);
            }
            None => (sum, from) = (0, Some(CountPosition::start())),
        }
    }
    Ok(sum)
}

/// The pages of a range.
struct DatabasePages<'a> {
    database: &'a LocalDatabase,
    table: TableName,
    left: Option<RowRange>,
    keys_only: bool,
}

impl RowReader for DatabasePages<'_> {
    fn next(&mut self) -> TransferResult<Option<Page>> {
        let Some(range) = &mut self.left else { return Ok(None) };
        let LocalDatabase { store, account, .. } = self.database;
        let scan = self.database.filtered_scan(range, ROWS, &self.table, self.keys_only)?;
        let read =
            self.database.run(|| store.page(self.table.in_account(account), &scan, Vec::<Stored>::new()));
        let (entities, end) = read.map_err(|failure| failed(self.table.as_given(), failure))?;
        match end.next {
            Some(next) => range.lower = Lower::From(next),
            None => self.left = None,
        }
        let rows = entities.into_iter().map(Row::from).collect();
        Ok(Some(Page { rows, rejected: Vec::new() }))
    }
}

impl TransferSource for LocalDatabase {
    fn tables(&self) -> TransferResult<Vec<String>> {
        let mut names = Vec::new();
        let mut spans = vec![Span::everything()];
        loop {
            let scan = TableScan { spans, residual: None, rows: ROWS, time: TIME };
            let read = self.run(|| self.store.list_tables(&self.account, &scan));
            let page = read.map_err(|failure| failed("the list of tables", failure))?;
            names.extend(page.tables.into_iter().map(|table| table.name));
            let Some(next) = page.next else { return Ok(names) };
            spans = vec![Span { lower: Key::new(next.name.to_ascii_lowercase(), ""), upper: None }];
        }
    }

    fn count(
        &self,
        table: &str,
        counted: &mut dyn FnMut(u64) -> TransferResult<()>,
    ) -> TransferResult<Option<u64>> {
        let (table, mut pace) = (name(table)?, CountPace::default());
        let LocalDatabase { store, account, filter, .. } = self;
        let mut part = |position: &CountPosition| {
            let part = match filter {
                Some(filter) => {
                    let (table, key) = (table.in_account(account), &position.key);
                    self.run(|| totals::count_matching(store, table, key, filter, COUNT_TIME)).map(Some)
                }
                None => self.run_paced(&mut pace, &table, position),
            };
            part.map_err(|failure| failed(table.as_given(), failure))
        };
        sum(&mut part, counted).map(Some)
    }

    fn open<'a>(
        &'a self,
        table: &str,
        range: &RowRange,
        keys_only: bool,
    ) -> TransferResult<Box<dyn RowReader + 'a>> {
        Ok(Box::new(DatabasePages {
            database: self,
            table: name(table)?,
            left: Some(range.clone()),
            keys_only,
        }))
    }

    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>> {
        let (table, scan) = (name(table)?, self.scan(range, 1, true));
        let read = self.run(|| self.store.page(table.in_account(&self.account), &scan, Vec::<Stored>::new()));
        let (entities, _) = read.map_err(|failure| failed(table.as_given(), failure))?;
        Ok(entities.into_iter().next().map(|entity| entity.key))
    }

    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>> {
        let table = name(table)?;
        match self.run(|| self.store.get(table.in_account(&self.account), key)) {
            Err(failure) if is(&failure, Code::TableNotFound) => Ok(None),
            read => Ok(read.map_err(|failure| failed(table.as_given(), failure))?.map(Row::from)),
        }
    }

    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>> {
        let table = name(table)?;
        let read = self.run(|| self.store.policies(table.in_account(&self.account)));
        let text = read.map_err(|failure| failed(table.as_given(), failure))?;
        let policies = text.as_deref().map_or(Ok(Vec::new()), policies::from_stored);
        policies.map(Some).map_err(|error| failed(table.as_given(), error.into()))
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        let read = self.run(|| self.store.properties(&self.account));
        let text = read.map_err(|failure| failed("the service properties", failure))?;
        let properties = text.as_deref().map_or(Ok(ServiceProperties::default()), properties::from_stored);
        properties.map(Some).map_err(|error| failed("the service properties", error.into()))
    }
}

impl TransferTarget for LocalDatabase {
    fn has_entities(&self, table: &str) -> TransferResult<Option<bool>> {
        match self.probe(table, &RowRange::everything()) {
            Ok(found) => Ok(Some(found.is_some())),
            Err(_) if !self.tables()?.iter().any(|name| name.eq_ignore_ascii_case(table)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn delete_table(&self, table: &str) -> TransferResult<()> {
        let (table, now) = (name(table)?, Ticks::now());
        match self.run(|| self.store.delete_table(table.in_account(&self.account), now)) {
            Err(failure) if is(&failure, Code::TableNotFound) || is(&failure, Code::ResourceNotFound) => {
                Ok(())
            }
            deleted => deleted.map_err(|failure| failed(table.as_given(), failure)),
        }
    }

    fn create(&self, table: &str) -> TransferResult<()> {
        let (table, now) = (name(table)?, Ticks::now());
        match self.run(|| self.store.create_table(table.in_account(&self.account), now)) {
            Err(failure) if is(&failure, Code::TableAlreadyExists) => Ok(()),
            created => created.map_err(|failure| failed(table.as_given(), failure)),
        }
    }

    fn write(&self, mut page: WritePage<'_>) -> TransferResult<Counts> {
        writes::write(self, &mut page)
    }

    fn marks(&self, copy: &str) -> TransferResult<Option<Vec<LoadMark>>> {
        let read = self.run(|| self.store.marks(copy));
        read.map(Some).map_err(|failure| failed("the marks of the copy", failure))
    }

    fn delete(&self, table: &str, entities: &[(Key, Version)]) -> TransferResult<u64> {
        writes::delete(self, table, entities)
    }

    fn finish(&self, copy: &str, _origin: &str, _written: u64) -> TransferResult<()> {
        let forgotten = self.run(|| self.store.forget_marks(copy));
        forgotten.map_err(|failure| failed("the marks of the copy", failure))
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        let table = name(table)?;
        let text = policies::to_stored(policies).map_err(|error| failed(table.as_given(), error.into()))?;
        let set = self.run(|| self.store.set_policies(table.in_account(&self.account), &text));
        set.map_err(|failure| failed(table.as_given(), failure))
    }

    fn set_properties(&self, wanted: &ServiceProperties) -> TransferResult<()> {
        let text =
            properties::to_stored(wanted).map_err(|error| failed("the service properties", error.into()))?;
        let set = self.run(|| self.store.set_properties(&self.account, &text));
        set.map_err(|failure| failed("the service properties", failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_begins_anew_when_the_table_has_got_other_buckets() {
        let at = |layout, share| CountPosition { layout: Some(layout), share, ..CountPosition::start() };
        let part = |entities, next| Some(CountedPart { entities, next });
        let (start, first, second) = (CountPosition::start(), at(1, 3), at(2, 1));
        let mut parts = vec![
            (start.clone(), part(5, Some(first.clone()))),
            (first, None),
            (start, part(4, Some(second.clone()))),
            (second, part(3, None)),
        ]
        .into_iter();
        let mut next = |position: &CountPosition| {
            let (expected, part) = parts.next().expect("the count has ended");
            assert_eq!(*position, expected);
            Ok(part)
        };
        assert_eq!(sum(&mut next, &mut |_| Ok(())).unwrap(), 7);
        assert!(parts.next().is_none());
    }
}
