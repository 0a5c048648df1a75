//! Prints entities and tables as Atom.

use std::fmt::Write as _;

use crate::codec::json::write::{MetadataContext, Select};
use crate::codec::xml::{self, escaped};
use crate::codec::{stored, uri};
use crate::error::Result;
use crate::model::entity::BorrowedEntity;
use crate::model::version::etag;
use crate::model::{EdmType, EdmValue, Ticks, lexical};

/// The layout of entries: `Classic` before 2013-08-15, and `Modern` from then on (from documentation only, UNVERIFIED
/// 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Classic,
    Modern,
}

/// The kind of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomDocument {
    Entry,
    Feed,
}

impl Style {
    /// Returns the Content-Type of documents.
    pub const fn content_type(self, kind: AtomDocument) -> &'static str {
        match (self, kind) {
            (Style::Classic, _) => "application/atom+xml;charset=utf-8",
            (Style::Modern, AtomDocument::Entry) => "application/atom+xml;type=entry;charset=utf-8",
            (Style::Modern, AtomDocument::Feed) => "application/atom+xml;type=feed;charset=utf-8",
        }
    }

    const fn prolog(self) -> &'static str {
        match self {
            Style::Classic => "<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?>",
            Style::Modern => "<?xml version=\"1.0\" encoding=\"utf-8\"?>",
        }
    }

    /// Returns the DataServiceVersion for a part of a batch, and for documents outside a batch that have one.
    pub const fn data_service_version(self) -> &'static str {
        match self {
            Style::Classic => "1.0;",
            Style::Modern => "3.0;",
        }
    }
}

/// A printer of Atom documents, with its inputs in addition to the data.
#[derive(Clone, Copy)]
pub struct Atom<'a> {
    pub context: MetadataContext<'a>,
    pub style: Style,
    pub now: Ticks,
}

const NAMESPACES: &str = "xmlns:d=\"http://schemas.microsoft.com/ado/2007/08/dataservices\" \
                          xmlns:m=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\"";
const ATOM: &str = "xmlns=\"http://www.w3.org/2005/Atom\"";
/// Declared since 2013-08-15, but never used.
const GEOGRAPHY: &str =
    "xmlns:georss=\"http://www.georss.org/georss\" xmlns:gml=\"http://www.opengis.net/gml\"";
const SCHEME: &str = "http://schemas.microsoft.com/ado/2007/08/dataservices/scheme";

impl Atom<'_> {
    /// Prints an entity as a document.
    pub fn entity_document<'e>(&self, entity: impl Into<BorrowedEntity<'e>>) -> Result<String> {
        let mut out = String::from(self.style.prolog());
        self.push_entity(&mut out, entity.into(), true)?;
        Ok(out)
    }

    pub(crate) fn push_feed_entity(&self, out: &mut String, entity: BorrowedEntity<'_>) -> Result<()> {
        self.push_entity(out, entity, false)
    }

    /// Prints a table as a document. The context's table is `Tables`.
    pub fn table_document(&self, name: &str) -> String {
        let mut out = String::from(self.style.prolog());
        self.push_table(&mut out, name, true);
        out
    }

    /// Prints a page of tables. The context's table is `Tables`.
    pub fn table_feed<'n>(&self, names: impl Iterator<Item = &'n str>) -> String {
        let mut out = String::new();
        self.open_feed(&mut out);
        for name in names {
            self.push_table(&mut out, name, false);
        }
        out.push_str("</feed>");
        out
    }

    /// Prints the part before the first entry of a page.
    pub(crate) fn open_feed(&self, out: &mut String) {
        let MetadataContext { base, table, .. } = self.context;
        let _ = write!(
            out,
            "{}<feed{}><title type=\"text\">{table}</title>\
             <id>{}/{table}</id><updated>{}</updated><link rel=\"self\" title=\"{table}\" href=\"{table}\" />",
            self.style.prolog(),
            self.namespaces(None),
            escaped(base),
            self.updated(),
        );
    }

    /// Returns the attributes of the root element.
    fn namespaces(&self, etag: Option<&str>) -> String {
        let base = attribute(self.context.base);
        let etag = etag.map(|etag| format!(" m:etag=\"{}\"", attribute(etag))).unwrap_or_default();
        match self.style {
            Style::Classic => format!(" xml:base=\"{base}/\" {NAMESPACES}{etag} {ATOM}"),
            Style::Modern => format!(" xml:base=\"{base}/\" {ATOM} {NAMESPACES} {GEOGRAPHY}{etag}"),
        }
    }

    /// Returns the time of the response, to the second.
    fn updated(&self) -> String {
        let text = self.now.to_canonical();
        format!("{}Z", text.get(..19).unwrap_or_default())
    }

    fn push_entity(&self, out: &mut String, entity: BorrowedEntity<'_>, is_document: bool) -> Result<()> {
        let MetadataContext { table, .. } = self.context;
        let address = uri::entity_address(table, entity.partition, entity.row);
        self.open_entry(out, Some(&etag(entity.modified)), is_document, &address, table, table);
        match self.context.select.filter(|select| !select.names.is_empty()) {
            None => {
                self.push_system(out, entity, |_| true);
                for field in stored::ordered_fields(entity.properties, entity.order)? {
                    push_property(out, &field.name, &field.value()?);
                }
            }
            Some(select) => self.push_selected(out, entity, select)?,
        }
        out.push_str("</m:properties></content></entry>");
        Ok(())
    }

    fn push_system(&self, out: &mut String, entity: BorrowedEntity<'_>, includes: impl Fn(&str) -> bool) {
        let text = |text: &str| EdmValue::String(text.to_owned());
        for (name, value) in [
            ("PartitionKey", text(entity.partition)),
            ("RowKey", text(entity.row)),
            ("Timestamp", EdmValue::DateTime(entity.modified)),
        ] {
            if includes(name) {
                push_property(out, name, &value);
            }
        }
    }

    fn push_selected(&self, out: &mut String, entity: BorrowedEntity<'_>, select: &Select) -> Result<()> {
        self.push_system(out, entity, |name| select.includes(name));
        let fields = stored::fields(entity.properties)?;
        for name in select.custom_names() {
            match fields.iter().find(|field| field.name == name) {
                Some(field) => push_property(out, name, &field.value()?),
                // Every stored name is valid as an element name.
                None if crate::model::names::is_identifier(name) => {
                    out.push_str(&format!("<d:{name} m:null=\"true\" />"));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn push_table(&self, out: &mut String, name: &str, is_document: bool) {
        self.open_entry(out, None, is_document, &format!("Tables('{name}')"), "Tables", "Tables");
        push_property(out, "TableName", &EdmValue::String(name.to_owned()));
        out.push_str("</m:properties></content></entry>");
    }

    /// Prints an entry up to its properties.
    fn open_entry(
        &self,
        out: &mut String,
        etag: Option<&str>,
        is_document: bool,
        address: &str,
        title: &str,
        type_name: &str,
    ) {
        let MetadataContext { base, account, .. } = self.context;
        out.push_str("<entry");
        if is_document {
            out.push_str(&self.namespaces(etag));
        } else if let Some(etag) = etag {
            out.push_str(&format!(" m:etag=\"{}\"", attribute(etag)));
        }
        let link = format!("<link rel=\"edit\" title=\"{title}\" href=\"{}\" />", attribute(address));
        let category = format!("<category term=\"{account}.{type_name}\" scheme=\"{SCHEME}\" />");
        let id = format!("<id>{}/{}</id>", escaped(base), escaped(address));
        let tail = format!("<updated>{}</updated><author><name /></author>", self.updated());
        out.push('>');
        out.push_str(&match self.style {
            Style::Classic => format!("{id}<title type=\"text\"></title>{tail}{link}{category}"),
            Style::Modern => format!("{id}{category}{link}<title />{tail}"),
        });
        out.push_str("<content type=\"application/xml\"><m:properties>");
    }
}

fn attribute(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    xml::push_attribute(&mut out, text);
    out
}

/// Prints `<d:Name m:type="…">text</d:Name>`; strings have no type.
fn push_property(out: &mut String, name: &str, value: &EdmValue) {
    out.push_str("<d:");
    out.push_str(name);
    let text = match value {
        EdmValue::Double(d) => lexical::format_double(*d).replace("Infinity", "INF"),
        other => lexical::format(other),
    };
    if value.edm_type() != EdmType::String {
        out.push_str(&format!(" m:type=\"{}\"", value.edm_type().name()));
    }
    if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
        out.push_str(" xml:space=\"preserve\"");
    }
    out.push('>');
    xml::push_text(out, &text);
    out.push_str("</d:");
    out.push_str(name);
    out.push('>');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::feed::{Feed, FeedForm};
    use crate::codec::json::write::Metadata;
    use crate::model::{Key, Stored};

    fn entity() -> Stored {
        Stored {
            key: Key::new("p'<", "r"),
            properties: stored::encode(&[
                ("S", EdmValue::String(" a&b".into())),
                ("I", EdmValue::Int32(5)),
                ("D", EdmValue::Double(f64::NEG_INFINITY)),
            ]),
            modified: Ticks::parse("2011-05-01T00:00:01.5Z").unwrap(),
        }
    }
    fn atom(style: Style, table: &str) -> Atom<'_> {
        let context = MetadataContext {
            metadata: Metadata::Minimal,
            base: "http://h/a",
            account: "a",
            table,
            select: None,
        };
        Atom { context, style, now: Ticks::parse("2011-05-02T01:02:03.4Z").unwrap() }
    }

    #[test]
    fn entries_have_the_recorded_order() {
        assert_eq!(
            atom(Style::Classic, "T").entity_document(&entity()).unwrap(),
            "<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?><entry xml:base=\"http://h/a/\" \
             xmlns:d=\"http://schemas.microsoft.com/ado/2007/08/dataservices\" \
             xmlns:m=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\" \
             m:etag=\"W/&quot;datetime'2011-05-01T00%3A00%3A01.5Z'&quot;\" xmlns=\"http://www.w3.org/2005/Atom\">\
             <id>http://h/a/T(PartitionKey='p''%3C',RowKey='r')</id><title type=\"text\"></title>\
             <updated>2011-05-02T01:02:03Z</updated><author><name /></author>\
             <link rel=\"edit\" title=\"T\" href=\"T(PartitionKey='p''%3C',RowKey='r')\" />\
             <category term=\"a.T\" scheme=\"http://schemas.microsoft.com/ado/2007/08/dataservices/scheme\" />\
             <content type=\"application/xml\"><m:properties><d:PartitionKey>p'&lt;</d:PartitionKey><d:RowKey>r</d:RowKey>\
             <d:Timestamp m:type=\"Edm.DateTime\">2011-05-01T00:00:01.5Z</d:Timestamp>\
             <d:S xml:space=\"preserve\"> a&amp;b</d:S><d:I m:type=\"Edm.Int32\">5</d:I>\
             <d:D m:type=\"Edm.Double\">-INF</d:D></m:properties></content></entry>"
        );
    }

    #[test]
    fn what_is_printed_reads_back() {
        for style in [Style::Classic, Style::Modern] {
            let text = atom(style, "T").entity_document(&entity()).unwrap();
            let read = crate::codec::atom::read::entity(text.as_bytes()).unwrap();
            assert_eq!(read.partition.as_deref(), Some("p'<"));
            assert_eq!(read.into_properties(), stored::decode(&entity().properties).unwrap());
            let text = atom(style, "Tables").table_document("abc");
            assert_eq!(crate::codec::atom::read::table_name(text.as_bytes()).as_deref(), Ok("abc"));
        }
    }

    #[test]
    fn feeds_hold_entries_with_their_own_etags() {
        let mut feed = Feed::open(FeedForm::Atom(atom(Style::Classic, "T")), 1);
        (0..2).for_each(|_| feed.push((&entity()).into()).unwrap());
        let feed = feed.close();
        let root = xml::parse(feed.as_bytes()).unwrap();
        assert_eq!(root.child("title").unwrap().text, "T");
        assert_eq!(root.child("id").unwrap().text, "http://h/a/T");
        let entries = root.children.iter().filter(|c| c.name == "entry");
        assert_eq!(entries.filter(|e| e.attribute(xml::Namespace::Metadata, "etag").is_some()).count(), 2);
        let tables = atom(Style::Modern, "Tables").table_feed(["abc", "def"].into_iter());
        assert_eq!(xml::parse(tables.as_bytes()).unwrap().children.len(), 4 + 2);
    }

    #[test]
    fn select_prints_null_for_what_is_missing() {
        let select =
            Select { names: vec!["I".into(), "No".into(), "bad name".into()], url_text: String::new() };
        let mut atom = atom(Style::Modern, "T");
        atom.context.select = Some(&select);
        let text = atom.entity_document(&entity()).unwrap();
        assert!(
            text.contains("<d:I m:type=\"Edm.Int32\">5</d:I><d:No m:null=\"true\" /></m:properties>"),
            "{text}"
        );
    }
}
