//! A page of entities, printed one by one as they are read (protocol §3.7).

use super::atom::write::Atom;
use super::json::write::{self as json, Context};
use crate::error::Result;
use crate::model::Stored;

/// How a feed is written down.
#[derive(Clone, Copy)]
pub enum Form<'a> {
    Json(Context<'a>),
    Atom(Atom<'a>),
}

/// The size of so many entities tells what the others will take.
const SAMPLE: usize = 16;
/// Bytes that are set aside before they are needed, at most.
const MOST_ROOM: usize = 8 * 1024 * 1024;

/// A page that is being printed.
pub struct Feed<'a> {
    form: Form<'a>,
    hoped: usize,
    entities: usize,
    out: String,
}

impl<'a> Feed<'a> {
    /// A page without entities yet; there may be `hoped` of them.
    pub fn open(form: Form<'a>, hoped: usize) -> Self {
        let mut feed = Self { form, hoped, entities: 0, out: String::new() };
        feed.restart();
        feed
    }

    /// Drops all entities.
    pub fn restart(&mut self) {
        self.entities = 0;
        self.out.clear();
        match &self.form {
            Form::Json(context) => json::open_feed(&mut self.out, context),
            Form::Atom(atom) => atom.open_feed(&mut self.out),
        }
    }

    /// Prints one more entity.
    ///
    /// # Errors
    /// Only for a row that is not in stored form. Then the page is of no more use.
    pub fn push(&mut self, entity: &Stored) -> Result<()> {
        match &self.form {
            Form::Json(context) => {
                json::push_feed_entity(&mut self.out, context, entity, self.entities == 0)?
            }
            Form::Atom(atom) => atom.push_feed_entity(&mut self.out, entity)?,
        }
        self.entities += 1;
        if self.entities == SAMPLE {
            let others = self.hoped.saturating_sub(SAMPLE);
            self.out.reserve((self.out.len() / SAMPLE).saturating_mul(others).min(MOST_ROOM));
        }
        Ok(())
    }

    /// The page.
    pub fn close(mut self) -> String {
        self.out.push_str(match self.form {
            Form::Json(_) => "]}",
            Form::Atom(_) => "</feed>",
        });
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::atom::write::Style;
    use crate::codec::json::write::Metadata;
    use crate::model::entity::StoredProperties;
    use crate::model::{Key, Ticks};

    #[test]
    fn a_page_that_was_begun_anew_prints_as_any_other() {
        let context =
            Context { metadata: Metadata::Full, base: "http://h/a", account: "a", table: "T", select: None };
        let atom = Atom { context, style: Style::Modern, now: Ticks::MIN };
        let properties = StoredProperties::from_stored_text(r#"{"A":1}"#.into());
        let entity = Stored { key: Key::new("p", "r"), modified: Ticks::MIN, properties };
        for form in [Form::Json(context), Form::Atom(atom)] {
            let print = |before: usize, entities: usize| {
                let mut feed = Feed::open(form, 1000);
                (0..before).for_each(|_| feed.push(&entity).unwrap());
                feed.restart();
                (0..entities).for_each(|_| feed.push(&entity).unwrap());
                feed.close()
            };
            for entities in [0, 1, 2, SAMPLE + 1] {
                assert_eq!(print(0, entities).matches("http://h/a/T(").count() > 0, entities > 0);
                assert_eq!(print(1, entities), print(0, entities));
                assert_eq!(print(2 * SAMPLE, entities), print(0, entities));
            }
        }
    }
}
