//! Prints a page of entities while they are read (protocol §3.7).

use super::atom::write::{Atom, Style};
use super::json::write::{self as json, Metadata, MetadataContext, PageContext, Select};
use crate::error::Result;
use crate::model::Ticks;
use crate::model::entity::BorrowedEntity;

/// The format of a feed.
#[derive(Clone, Copy)]
pub enum FeedForm<'a> {
    Json(MetadataContext<'a>),
    Atom(Atom<'a>),
}

/// The owned equivalent of [`FeedForm`], for a feed that outlives the borrowed request.
struct OwnedForm {
    metadata: Metadata,
    base: String,
    account: String,
    table: String,
    select: Option<Select>,
    atom: Option<(Style, Ticks)>,
}

impl OwnedForm {
    fn of(form: FeedForm<'_>) -> Self {
        let (context, atom) = match form {
            FeedForm::Json(context) => (context, None),
            FeedForm::Atom(atom) => (atom.context, Some((atom.style, atom.now))),
        };
        Self {
            metadata: context.metadata,
            base: context.base.to_owned(),
            account: context.account.to_owned(),
            table: context.table.to_owned(),
            select: context.select.cloned(),
            atom,
        }
    }

    fn form(&self) -> FeedForm<'_> {
        let Self { metadata, base, account, table, select, atom } = self;
        let context = MetadataContext { metadata: *metadata, base, account, table, select: select.as_ref() };
        match *atom {
            None => FeedForm::Json(context),
            Some((style, now)) => FeedForm::Atom(Atom { context, style, now }),
        }
    }
}

/// Number of entities whose average size is the estimate for the rest of the page.
const SAMPLE_ENTITIES: usize = 16;
/// Maximum number of bytes to allocate in advance.
const MAX_RESERVED_BYTES: usize = 8 * 1024 * 1024;

/// A page that is being printed.
pub struct Feed {
    owned: OwnedForm,
    common: PageContext,
    expected_entities: usize,
    entities: usize,
    out: String,
}

impl Feed {
    /// Returns a page without entities.
    pub fn open(form: FeedForm<'_>, expected_entities: usize) -> Self {
        let owned = OwnedForm::of(form);
        let (FeedForm::Json(context) | FeedForm::Atom(Atom { context, .. })) = form;
        let common = PageContext::of(&context);
        let mut feed = Self { owned, common, expected_entities, entities: 0, out: String::new() };
        feed.restart();
        feed
    }

    /// Drops all entities.
    pub fn restart(&mut self) {
        self.entities = 0;
        self.out.clear();
        match self.owned.form() {
            FeedForm::Json(context) => json::open_feed(&mut self.out, &context),
            FeedForm::Atom(atom) => atom.open_feed(&mut self.out),
        }
    }

    /// Prints one more entity. After an error, the page is unusable.
    pub fn push(&mut self, entity: BorrowedEntity<'_>) -> Result<()> {
        let is_first = self.entities == 0;
        match self.owned.form() {
            FeedForm::Json(context) => {
                json::push_feed_entity(&mut self.out, &context, &mut self.common, entity, is_first)?
            }
            FeedForm::Atom(atom) => atom.push_feed_entity(&mut self.out, entity)?,
        }
        self.entities += 1;
        if self.entities == SAMPLE_ENTITIES {
            // The space of one more entity is for the end of the page, so that the text need not grow again.
            let others = self.expected_entities.saturating_sub(SAMPLE_ENTITIES - 1);
            self.out
                .reserve((self.out.len() / SAMPLE_ENTITIES).saturating_mul(others).min(MAX_RESERVED_BYTES));
        }
        Ok(())
    }

    /// Ends the page and returns its text.
    pub fn close(mut self) -> String {
        self.out.push_str(if self.owned.atom.is_none() { "]}" } else { "</feed>" });
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::entity::StoredProperties;
    use crate::model::{Key, Stored};

    #[test]
    fn a_page_that_was_begun_anew_prints_as_any_other() {
        let context = MetadataContext {
            metadata: Metadata::Full,
            base: "http://h/a",
            account: "a",
            table: "T",
            select: None,
        };
        let atom = Atom { context, style: Style::Modern, now: Ticks::MIN };
        let stored = Stored {
            key: Key::new("p", "r"),
            properties: StoredProperties::from_stored_text(r#"{"A":1}"#.to_owned()),
            modified: Ticks::MIN,
        };
        let entity = BorrowedEntity::from(&stored);
        for form in [FeedForm::Json(context), FeedForm::Atom(atom)] {
            let print = |before: usize, entities: usize| {
                let mut feed = Feed::open(form, 1000);
                (0..before).for_each(|_| feed.push(entity).unwrap());
                feed.restart();
                (0..entities).for_each(|_| feed.push(entity).unwrap());
                feed.close()
            };
            for entities in [0, 1, 2, SAMPLE_ENTITIES + 1] {
                assert_eq!(print(0, entities).matches("http://h/a/T(").count() > 0, entities > 0);
                assert_eq!(print(1, entities), print(0, entities));
                assert_eq!(print(2 * SAMPLE_ENTITIES, entities), print(0, entities));
            }
        }
    }
}
