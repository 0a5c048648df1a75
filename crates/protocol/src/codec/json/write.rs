//! Prints entities, tables and feeds as JSON (protocol §4.2 to §4.4).

use super::property::{Annotations, Shapes, push_property};
use crate::codec::json_object::{push_escaped, push_string};
use crate::codec::stored;
use crate::codec::uri;
use crate::error::Result;
use crate::model::entity::BorrowedEntity;
use crate::model::ticks::TimeText;
use crate::model::version::write_etag;

/// The metadata level that a client requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metadata {
    None,
    Minimal,
    /// Minimal metadata of versions before 2015-04-05.
    MinimalWithoutEtag,
    Full,
}

impl Metadata {
    /// Returns the values that are printed with a type annotation.
    pub(crate) const fn annotations(self) -> Annotations {
        match self {
            Metadata::None => Annotations::None,
            _ => Annotations::Needed,
        }
    }

    /// Returns the Content-Type of bodies at this level.
    pub const fn content_type(self) -> &'static str {
        match self {
            Metadata::None => "application/json;odata=nometadata;streaming=true;charset=utf-8",
            Metadata::Minimal | Metadata::MinimalWithoutEtag => {
                "application/json;odata=minimalmetadata;streaming=true;charset=utf-8"
            }
            Metadata::Full => "application/json;odata=fullmetadata;streaming=true;charset=utf-8",
        }
    }
}

/// The inputs of a document in addition to its data.
#[derive(Debug, Clone, Copy)]
pub struct MetadataContext<'a> {
    pub metadata: Metadata,
    /// The scheme, the host and, in path style, the account, without a trailing slash.
    pub base: &'a str,
    pub account: &'a str,
    /// The table's name as spelled in the request.
    pub table: &'a str,
    pub select: Option<&'a Select>,
}

/// The `$select` option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Select {
    /// Each name once, in the order of `names::ordinal`. An empty list selects everything.
    pub names: Vec<String>,
    /// The text of the option in the context URL.
    pub url_text: String,
}

impl Select {
    /// Returns the custom properties among the names.
    pub(crate) fn custom_names(&self) -> impl Iterator<Item = &str> {
        let system = |name: &str| matches!(name, "PartitionKey" | "RowKey" | "Timestamp");
        self.names.iter().map(String::as_str).filter(move |name| !system(name))
    }

    pub(crate) fn includes(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|n| n == name)
    }
}

/// Prints an entity as a separate document.
pub fn entity_document<'e>(
    context: &MetadataContext<'_>,
    entity: impl Into<BorrowedEntity<'e>>,
) -> Result<String> {
    let entity = entity.into();
    let mut out = String::with_capacity(256 + estimated_size(context, entity));
    out.push('{');
    if context.metadata != Metadata::None {
        push_context_url(&mut out, context, "/@Element");
    }
    push_entity_members(&mut out, context, &mut PageContext::of_one(context), entity)?;
    out.push('}');
    Ok(out)
}

/// The text that all entities of a page share.
pub(crate) struct PageContext {
    /// The members from `odata.type` to the start of the entity's address in `odata.id`.
    address: String,
    shapes: Shapes,
}

impl PageContext {
    /// Returns the context for the entities of a page.
    pub(crate) fn of(context: &MetadataContext<'_>) -> Self {
        Self { address: address_of(context), shapes: Shapes::new(context.metadata.annotations()) }
    }

    /// Returns the context for a single entity.
    fn of_one(context: &MetadataContext<'_>) -> Self {
        Self { address: address_of(context), shapes: Shapes::of_one(context.metadata.annotations()) }
    }
}

/// Returns the prefix of each entity's address, if addresses are printed.
fn address_of(context: &MetadataContext<'_>) -> String {
    let mut address = String::new();
    if context.metadata == Metadata::Full {
        address.push_str("\"odata.type\":\"");
        push_escaped(&mut address, context.account);
        address.push('.');
        push_escaped(&mut address, context.table);
        address.push_str("\",\"odata.id\":\"");
        push_escaped(&mut address, context.base);
        address.push('/');
    }
    address
}

/// Prints one entity of a page. `common` is the page's context.
pub(crate) fn push_feed_entity(
    out: &mut String,
    context: &MetadataContext<'_>,
    common: &mut PageContext,
    entity: BorrowedEntity<'_>,
    is_first: bool,
) -> Result<()> {
    out.push_str(if is_first { "{" } else { ",{" });
    push_entity_members(out, context, common, entity)?;
    out.push('}');
    Ok(())
}

/// Estimates the size of a printed entity in bytes. Many escapes can exceed the estimate.
fn estimated_size(context: &MetadataContext<'_>, entity: BorrowedEntity<'_>) -> usize {
    let addresses = match context.metadata {
        Metadata::Full => {
            128 + context.account.len()
                + context.base.len()
                + 3 * context.table.len()
                + 2 * uri::key_room(entity.partition, entity.row)
        }
        Metadata::Minimal | Metadata::MinimalWithoutEtag | Metadata::None => 0,
    };
    256 + addresses + entity.weight()
}

/// Prints a table as a separate document. `context.table` is `Tables`.
pub fn table_document(context: &MetadataContext<'_>, name: &str) -> String {
    let mut out = String::from("{");
    if context.metadata != Metadata::None {
        push_context_url(&mut out, context, "/@Element");
    }
    push_table_members(&mut out, context, name);
    out.push('}');
    out
}

/// Prints a page of tables. `context.table` is `Tables`.
pub fn table_feed<'n>(context: &MetadataContext<'_>, names: impl Iterator<Item = &'n str>) -> String {
    let mut out = String::with_capacity(256);
    open_feed(&mut out, context);
    for (at, name) in names.enumerate() {
        out.push_str(if at == 0 { "{" } else { ",{" });
        push_table_members(&mut out, context, name);
        out.push('}');
    }
    out.push_str("]}");
    out
}

/// Prints the part before the first entry of a page.
pub(crate) fn open_feed(out: &mut String, context: &MetadataContext<'_>) {
    out.push('{');
    if context.metadata != Metadata::None {
        push_context_url(out, context, "");
    }
    out.push_str("\"value\":[");
}

fn push_context_url(out: &mut String, context: &MetadataContext<'_>, suffix: &str) {
    let (select, url_text) =
        context.select.map_or(("", ""), |select| ("&$select=", select.url_text.as_str()));
    let url = [context.base, "/$metadata#", context.table, suffix, select, url_text].concat();
    push_quoted_member(out, "\"odata.metadata\":", &url);
}

fn push_table_members(out: &mut String, context: &MetadataContext<'_>, name: &str) {
    if context.metadata == Metadata::Full {
        let address = format!("Tables('{name}')");
        push_member(out, "odata.type", &format!("{}.Tables", context.account));
        push_member(out, "odata.id", &format!("{}/{address}", context.base));
        push_member(out, "odata.editLink", &address);
    }
    if context.select.is_none_or(|s| s.includes("TableName")) {
        push_member(out, "TableName", name);
    }
    out.truncate(out.trim_end_matches(',').len());
}

/// Appends a member with a string value and a comma.
fn push_member(out: &mut String, name: &str, value: &str) {
    push_string(out, name);
    push_quoted_member(out, ":", value);
}

/// Appends a member whose name is given with its quotes and colon.
fn push_quoted_member(out: &mut String, name: &str, value: &str) {
    out.push_str(name);
    push_string(out, value);
    out.push(',');
}

fn push_entity_members(
    out: &mut String,
    context: &MetadataContext<'_>,
    common: &mut PageContext,
    entity: BorrowedEntity<'_>,
) -> Result<()> {
    let modified = entity.modified.to_text();
    match context.metadata {
        Metadata::Full => push_addresses(out, context, &common.address, entity, &modified),
        Metadata::Minimal => push_etag(out, &modified),
        Metadata::MinimalWithoutEtag | Metadata::None => {}
    }
    match context.select.filter(|s| !s.names.is_empty()) {
        None => {
            push_system(out, context, entity, &modified, |_| true);
            common.shapes.push(out, entity.properties, entity.order)?;
        }
        Some(select) => push_selected(out, context, entity, &modified, select)?,
    }
    out.truncate(out.trim_end_matches(',').len());
    Ok(())
}

/// Appends the type of an entity, its address, its ETag, and its address again as the edit link.
fn push_addresses(
    out: &mut String,
    context: &MetadataContext<'_>,
    start: &str,
    entity: BorrowedEntity<'_>,
    modified: &TimeText,
) {
    out.push_str(start);
    let start = out.len();
    push_escaped(out, context.table);
    uri::push_key(out, entity.partition, entity.row);
    let address = start..out.len();
    out.push_str("\",");
    push_etag(out, modified);
    out.push_str("\"odata.editLink\":\"");
    out.extend_from_within(address);
    out.push_str("\",");
}

fn push_etag(out: &mut String, modified: &TimeText) {
    out.push_str("\"odata.etag\":\"");
    write_etag(modified, out, "\\\"");
    out.push_str("\",");
}

fn push_system(
    out: &mut String,
    context: &MetadataContext<'_>,
    entity: BorrowedEntity<'_>,
    modified: &TimeText,
    includes: impl Fn(&str) -> bool,
) {
    if includes("PartitionKey") {
        push_quoted_member(out, "\"PartitionKey\":", entity.partition);
    }
    if includes("RowKey") {
        push_quoted_member(out, "\"RowKey\":", entity.row);
    }
    if includes("Timestamp") {
        if context.metadata == Metadata::Full {
            out.push_str("\"Timestamp@odata.type\":\"Edm.DateTime\",");
        }
        out.push_str("\"Timestamp\":\"");
        modified.write(out, ":");
        out.push_str("\",");
    }
}

/// Appends only the members that `$select` names, with null for those that the entity lacks.
fn push_selected(
    out: &mut String,
    context: &MetadataContext<'_>,
    entity: BorrowedEntity<'_>,
    modified: &TimeText,
    select: &Select,
) -> Result<()> {
    push_system(out, context, entity, modified, |name| select.includes(name));
    let fields = stored::fields(entity.properties)?;
    for name in select.custom_names() {
        match fields.iter().find(|field| field.name == name) {
            Some(field) => push_property(out, context.metadata.annotations(), field),
            // The metadata level, not `$select`, decides whether metadata is printed.
            None if name.starts_with("odata.") || name.contains("@odata.") => {}
            None => {
                push_string(out, name);
                out.push_str(":null,");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::feed::{Feed, FeedForm};
    use crate::model::entity::StoredProperties;
    use crate::model::{EdmValue, Key, Stored, Ticks};
    use uuid::Uuid;

    fn entity() -> Stored {
        let ticks = |text: &str| Ticks::parse(text).unwrap();
        Stored {
            key: Key::new("p'\"", "r"),
            properties: stored::encode(&[
                ("S", EdmValue::String("x\u{0}é".into())),
                ("B", EdmValue::Boolean(true)),
                ("Bin", EdmValue::Binary(vec![1, 2, 50])),
                ("I", EdmValue::Int32(42)),
                ("L", EdmValue::Int64(5_432_873_627_392)),
                ("D", EdmValue::Double(3.0)),
                ("E", EdmValue::Double(1e300)),
                ("N", EdmValue::Double(f64::NAN)),
                ("F", EdmValue::Double(f64::NEG_INFINITY)),
                ("G", EdmValue::Guid(Uuid::from_u128(1))),
                ("T", EdmValue::DateTime(ticks("2014-05-07T08:20:53Z"))),
            ]),
            modified: ticks("2017-01-05T03:25:45.588957Z"),
        }
    }

    fn context(metadata: Metadata, select: Option<&Select>) -> MetadataContext<'_> {
        MetadataContext { metadata, base: "http://h/a", account: "a", table: "T", select }
    }

    #[test]
    fn the_three_levels_print_as_recorded() {
        let custom_plain = r#""S":"x\u0000é","B":true,"Bin":"AQIy","I":42,"L":"5432873627392","D":3.0,"E":1E+300,"N":"NaN","F":"-Infinity","G":"00000000-0000-0000-0000-000000000001","T":"2014-05-07T08:20:53Z"}"#;
        let custom_typed = r#""S":"x\u0000é","B":true,"Bin@odata.type":"Edm.Binary","Bin":"AQIy","I":42,"L@odata.type":"Edm.Int64","L":"5432873627392","D":3.0,"E":1E+300,"N@odata.type":"Edm.Double","N":"NaN","F@odata.type":"Edm.Double","F":"-Infinity","G@odata.type":"Edm.Guid","G":"00000000-0000-0000-0000-000000000001","T@odata.type":"Edm.DateTime","T":"2014-05-07T08:20:53Z"}"#;
        let keys = r#""PartitionKey":"p'\"","RowKey":"r","#;
        let stamp = r#""Timestamp":"2017-01-05T03:25:45.588957Z","#;
        let etag = r#""odata.etag":"W/\"datetime'2017-01-05T03%3A25%3A45.588957Z'\"","#;
        let print = |level| entity_document(&context(level, None), &entity()).unwrap();
        assert_eq!(print(Metadata::None), format!("{{{keys}{stamp}{custom_plain}"));
        let url = r#""odata.metadata":"http://h/a/$metadata#T/@Element","#;
        assert_eq!(print(Metadata::Minimal), format!("{{{url}{etag}{keys}{stamp}{custom_typed}"));
        let address = "T(PartitionKey='p''%22',RowKey='r')";
        assert_eq!(
            print(Metadata::Full),
            format!(
                "{{{url}\"odata.type\":\"a.T\",\"odata.id\":\"http://h/a/{address}\",{etag}\
                 \"odata.editLink\":\"{address}\",{keys}\"Timestamp@odata.type\":\"Edm.DateTime\",{stamp}{custom_typed}"
            )
        );
    }

    #[test]
    fn white_space_of_the_stored_form_is_not_printed() {
        let compact = entity();
        let spaced = compact.properties.as_str().replace("\":", "\": ").replace(",\"", ", \"");
        let spaced = Stored { properties: StoredProperties::from_stored_text(spaced), ..compact.clone() };
        for level in [Metadata::None, Metadata::Minimal, Metadata::Full] {
            let print = |entity| entity_document(&context(level, None), entity).unwrap();
            assert_eq!(print(&spaced), print(&compact));
        }
    }

    #[test]
    fn feeds_hold_entities_without_their_own_context() {
        let feed = |level, n| {
            let mut feed = Feed::open(FeedForm::Json(context(level, None)), n);
            (0..n).for_each(|_| feed.push((&entity()).into()).unwrap());
            feed.close()
        };
        assert_eq!(feed(Metadata::None, 0), "{\"value\":[]}");
        assert_eq!(
            feed(Metadata::Minimal, 0),
            "{\"odata.metadata\":\"http://h/a/$metadata#T\",\"value\":[]}"
        );
        let two: serde_json::Value = serde_json::from_str(&feed(Metadata::Full, 2)).unwrap();
        assert_eq!(two["value"].as_array().unwrap().len(), 2);
        assert!(two["value"][1].get("odata.metadata").is_none());
    }

    #[test]
    fn select_prints_what_it_names_and_null_for_the_rest() {
        let select = Select {
            names: vec!["L".into(), "RowKey".into(), "nope".into()],
            url_text: "L,nope,RowKey".into(),
        };
        assert_eq!(
            entity_document(&context(Metadata::Minimal, Some(&select)), &entity()).unwrap(),
            r##"{"odata.metadata":"http://h/a/$metadata#T/@Element&$select=L,nope,RowKey","odata.etag":"W/\"datetime'2017-01-05T03%3A25%3A45.588957Z'\"","RowKey":"r","L@odata.type":"Edm.Int64","L":"5432873627392","nope":null}"##
        );
        let all = Select { names: vec![], url_text: String::new() };
        let text = entity_document(&context(Metadata::Minimal, Some(&all)), &entity()).unwrap();
        assert!(text.contains("/@Element&$select=\",") && text.contains("\"PartitionKey\""));
    }

    #[test]
    fn tables_print_as_recorded() {
        let tables = MetadataContext { table: "Tables", ..context(Metadata::Minimal, None) };
        assert_eq!(
            table_document(&tables, "Abc"),
            r##"{"odata.metadata":"http://h/a/$metadata#Tables/@Element","TableName":"Abc"}"##
        );
        assert_eq!(
            table_feed(&tables, ["a1b", "b"].into_iter()),
            r##"{"odata.metadata":"http://h/a/$metadata#Tables","value":[{"TableName":"a1b"},{"TableName":"b"}]}"##
        );
        let full = MetadataContext { metadata: Metadata::Full, ..tables };
        assert_eq!(
            table_feed(&full, ["abc"].into_iter()),
            r##"{"odata.metadata":"http://h/a/$metadata#Tables","value":[{"odata.type":"a.Tables","odata.id":"http://h/a/Tables('abc')","odata.editLink":"Tables('abc')","TableName":"abc"}]}"##
        );
    }
}
