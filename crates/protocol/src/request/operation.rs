//! Maps a verb and a resource to an operation (protocol §3).

use super::format;
use super::head::{Head, JSON, JSON_ONLY, UPSERT};
use super::labels::OperationLabel;
use super::options::{Options, QueryOptions};
use super::target::Resource;
use super::verb::Verb;
use crate::codec::atom::read as atom;
use crate::codec::json::read as json;
use crate::codec::json::write::Select;
use crate::codec::policies::{self, Policy};
use crate::codec::properties::{self, Layout, ServiceProperties};
use crate::codec::validated::ValidatedProperties;
use crate::error::{Code, Error, Result};
use crate::model::{IfMatch, IfNoneMatch, Key};
use crate::odata::{Expr, Grammar};

/// The operation of a request. Names and keys are unchecked and as sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    QueryTables(QueryOptions),
    GetTable {
        name: String,
    },
    CreateTable {
        name: String,
    },
    DeleteTable {
        name: String,
    },
    /// `partition` comes from a URL with a PartitionKey alone.
    QueryEntities {
        table: String,
        partition: Option<String>,
        query: QueryOptions,
    },
    GetEntity {
        table: String,
        key: Key,
        options: PointOptions,
    },
    Write(EntityWrite),
    GetPolicies {
        table: String,
    },
    SetPolicies {
        table: String,
        policies: Vec<Policy>,
    },
    GetProperties(Layout),
    SetProperties(ServiceProperties),
    GetStats,
    /// A path below a table. The error depends on the table, and on whether the request queries a set below it.
    BelowTable {
        table: String,
        is_query: bool,
    },
}

impl Operation {
    /// Returns the name that metrics, logs and traces use.
    pub const fn label(&self) -> OperationLabel {
        match self {
            Operation::QueryTables(_) => OperationLabel::QueryTables,
            Operation::GetTable { .. } => OperationLabel::GetTable,
            Operation::CreateTable { .. } => OperationLabel::CreateTable,
            Operation::DeleteTable { .. } => OperationLabel::DeleteTable,
            Operation::QueryEntities { .. } => OperationLabel::QueryEntities,
            Operation::GetEntity { .. } => OperationLabel::GetEntity,
            Operation::Write(write) => write.label(),
            Operation::GetPolicies { .. } => OperationLabel::GetTableAcl,
            Operation::SetPolicies { .. } => OperationLabel::SetTableAcl,
            Operation::GetProperties(_) => OperationLabel::GetServiceProperties,
            Operation::SetProperties(_) => OperationLabel::SetServiceProperties,
            Operation::GetStats => OperationLabel::GetServiceStats,
            Operation::BelowTable { .. } => OperationLabel::Unknown,
        }
    }
}

/// The options of a read of one entity.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PointOptions {
    pub select: Option<Select>,
    /// An entity that does not match is not found.
    pub filter: Option<Expr>,
    /// The versions that the client already has.
    pub known: Option<IfNoneMatch>,
}

/// A write of one entity, as sent.
#[derive(Debug, Clone, PartialEq)]
pub struct EntityWrite {
    pub table: String,
    pub verb: WriteVerb,
    /// The key in the URL. An insert has its keys in the body.
    pub key: Option<Key>,
    /// Absent in a delete.
    pub body: Option<ValidatedEntity>,
    pub if_match: IfMatch,
}

impl EntityWrite {
    const fn label(&self) -> OperationLabel {
        match (self.verb, &self.if_match) {
            (WriteVerb::Insert, _) => OperationLabel::InsertEntity,
            (WriteVerb::Replace, IfMatch::Absent) => OperationLabel::InsertOrReplaceEntity,
            (WriteVerb::Replace, _) => OperationLabel::UpdateEntity,
            (WriteVerb::Merge, IfMatch::Absent) => OperationLabel::InsertOrMergeEntity,
            (WriteVerb::Merge, _) => OperationLabel::MergeEntity,
            (WriteVerb::Delete, _) => OperationLabel::DeleteEntity,
        }
    }
}

/// An entity in a body. Keys may be missing, because an update takes them from its URL.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidatedEntity {
    pub partition: Option<String>,
    pub row: Option<String>,
    /// Errors in properties are reported after errors in keys.
    pub properties: Result<ValidatedProperties>,
}

/// The verbs that write entities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteVerb {
    Insert,
    Replace,
    Merge,
    Delete,
}

/// The input to parse an operation, inside or outside a batch.
pub struct Context<'a> {
    pub head: &'a Head<'a>,
    pub options: &'a Options<'a>,
    pub body: &'a [u8],
    pub grammar: Grammar,
}

/// Returns whether a request may have `$orderby`, which only extended entity queries have.
pub fn may_have_order(extended: bool, head: &Head, resource: &Resource) -> bool {
    extended
        && head.method == "GET"
        && matches!(resource, Resource::EntitySet(_) | Resource::Partition { .. })
}

/// Parses an operation that is not a batch.
///
/// # Errors
/// [`Code::MethodNotAllowed`] for a verb that the resource does not support, [`Code::NotImplemented`] for
/// operations that later versions of Rowhouse will support, and the errors of bodies, options and conditions.
pub(crate) fn on_resource(context: &Context<'_>, verb: Verb, resource: &Resource) -> Result<Operation> {
    let query = || context.options.query(context.grammar);
    let name = String::clone;
    Ok(match (resource, verb) {
        (Resource::Service, _) => service(context, verb)?,
        (Resource::Metadata, _) => return Err(Code::NotImplemented.into()),
        (Resource::EntitySet(table), _) if context.options.any_case("comp").is_some() => {
            policies(context, verb, table)?
        }
        (Resource::Tables, Verb::Get) => Operation::QueryTables(query()?),
        (Resource::Tables, Verb::Post) => Operation::CreateTable { name: new_table(context)? },
        (Resource::Table(table), Verb::Get) => Operation::GetTable { name: name(table) },
        (Resource::Table(table), Verb::Delete) => {
            refuse_conditions(context.head)?;
            Operation::DeleteTable { name: name(table) }
        }
        (Resource::EntitySet(table), Verb::Get) => {
            Operation::QueryEntities { table: name(table), partition: None, query: query()? }
        }
        (Resource::EntitySet(table), Verb::Post) => Operation::Write(insert(context, table)?),
        (Resource::Partition { table, partition }, Verb::Get) => Operation::QueryEntities {
            table: name(table),
            partition: Some(partition.clone()),
            query: query()?,
        },
        (Resource::Partition { .. }, _) => return Err(Code::InvalidInput.into()),
        (Resource::Entity { table, key }, Verb::Get | Verb::Head) => {
            Operation::GetEntity { table: name(table), key: key.clone(), options: point_options(context)? }
        }
        (Resource::Entity { table, key }, Verb::Put | Verb::Merge | Verb::Delete) => {
            Operation::Write(write(context, verb, table, key)?)
        }
        (Resource::BelowTable { rest, .. }, Verb::Post) if rest == "$batch" => {
            return Err(Code::MediaTypeNotSupported.into());
        }
        // As recorded, an insert into a table whose address the client takes for the service's.
        (Resource::BelowTable { table, rest }, Verb::Post) if is_name(rest) => {
            Operation::Write(insert(context, table)?)
        }
        (Resource::BelowTable { table, rest }, _) => {
            Operation::BelowTable { table: name(table), is_query: verb == Verb::Get && is_name(rest) }
        }
        _ => return Err(Code::MethodNotAllowed.into()),
    })
}

/// Parses `/?restype=service&comp=…` (protocol §3.6).
fn service(context: &Context<'_>, verb: Verb) -> Result<Operation> {
    let option = |name| context.options.any_case(name);
    let is_service = option("restype").is_some_and(|r| r.eq_ignore_ascii_case("service"));
    let comp = option("comp").map(str::to_ascii_lowercase);
    match (is_service, comp.as_deref(), verb) {
        (false, None, _) if option("restype").is_none() => Err(Code::NotImplemented.into()),
        (true, Some("properties"), Verb::Get | Verb::Head) => {
            layout(context.head).map(Operation::GetProperties)
        }
        (true, Some("properties"), Verb::Put) => {
            properties::read_change(context.body, layout(context.head)?).map(Operation::SetProperties)
        }
        (true, Some("stats"), Verb::Get | Verb::Head) => Ok(Operation::GetStats),
        (true, Some("properties" | "stats"), _) => Err(Code::MethodNotAllowed.into()),
        _ => Err(Code::InvalidQueryParameterValue.into()),
    }
}

fn layout(head: &Head) -> Result<Layout> {
    Ok(if head.version()?.at_least(JSON) { Layout::Cors } else { Layout::Metrics })
}

/// Parses `/table?comp=acl` (protocol §3.5).
fn policies(context: &Context<'_>, verb: Verb, table: &str) -> Result<Operation> {
    if !context.options.any_case("comp").is_some_and(|comp| comp.eq_ignore_ascii_case("acl")) {
        return Err(Code::InvalidQueryParameterValue.into());
    }
    match verb {
        Verb::Get | Verb::Head => Ok(Operation::GetPolicies { table: table.to_owned() }),
        Verb::Put => {
            if !accepts_xml(context.head)? {
                return Err(Code::MediaTypeNotSupported.into());
            }
            Ok(Operation::SetPolicies { table: table.to_owned(), policies: policies::read(context.body)? })
        }
        _ => Err(Code::MethodNotAllowed.into()),
    }
}

/// Returns whether a client accepts XML. As recorded, only setting policies requires it, and `*/*` stands for
/// JSON there. In versions with Atom, `*/*` stands for XML, and the Ruby SDK relies on this.
fn accepts_xml(head: &Head) -> Result<bool> {
    let Some(accept) = head.header("accept") else { return Ok(true) };
    let stands_for_xml = accept.trim() == "*/*" && !head.version()?.at_least(JSON_ONLY);
    Ok(stands_for_xml || accept.to_ascii_lowercase().contains("xml"))
}

/// Returns the options of a point read. `$top` has no meaning for one entity, and `If-Match` has no effect.
fn point_options(context: &Context<'_>) -> Result<PointOptions> {
    Ok(PointOptions {
        filter: context.options.filter(context.grammar)?,
        select: context.options.select()?,
        known: context.head.list("if-none-match").map(|list| IfNoneMatch::parse(&list)),
    })
}

fn insert(context: &Context<'_>, table: &str) -> Result<EntityWrite> {
    Ok(EntityWrite {
        table: table.to_owned(),
        verb: WriteVerb::Insert,
        key: None,
        body: Some(entity(context, None)?),
        if_match: IfMatch::Absent,
    })
}

/// Returns whether a path is just the name of an entity set.
fn is_name(path: &str) -> bool {
    let name = path.strip_suffix("()").unwrap_or(path);
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn write(context: &Context<'_>, verb: Verb, table: &str, key: &Key) -> Result<EntityWrite> {
    let if_match = condition(context.head, verb)?;
    let (verb, body) = match verb {
        Verb::Put => (WriteVerb::Replace, Some(entity(context, Some(key))?)),
        Verb::Merge => (WriteVerb::Merge, Some(entity(context, Some(key))?)),
        _ => (WriteVerb::Delete, None),
    };
    Ok(EntityWrite { table: table.to_owned(), verb, key: Some(key.clone()), body, if_match })
}

/// Returns the condition of a write on an existing entity (protocol §9). A delete needs a condition, and
/// before 2011-08-18 so does every other verb.
fn condition(head: &Head, verb: Verb) -> Result<IfMatch> {
    if head.header("if-none-match").is_some() {
        if head.header("if-match").is_some() {
            return Err(Code::BothConditions.into());
        }
        let shown = match verb {
            Verb::Delete => "DELETE",
            Verb::Put => "PUT",
            _ => "MERGE",
        };
        return Err(Error::with_message(
            Code::IfNoneMatchNotAllowed,
            format!("If-None-Match HTTP header cannot be specified for {shown} operations."),
        ));
    }
    if head.all("if-match").count() > 1 {
        return Err(Code::InvalidEtag.into());
    }
    let condition = IfMatch::parse(head.header("if-match"))?;
    let needed = verb == Verb::Delete || !head.version()?.at_least(UPSERT);
    if needed && condition == IfMatch::Absent { Err(Code::InvalidInput.into()) } else { Ok(condition) }
}

/// Refuses conditions on tables, which have no ETag.
fn refuse_conditions(head: &Head) -> Result<()> {
    if head.header("if-match").is_some() || head.header("if-none-match").is_some() {
        return Err(Code::ConditionWithoutEtag.into());
    }
    Ok(())
}

/// Parses the entity in a body. `key` is the entity's key in the URL, if there is one. Only an insert, which
/// has its key in the body, keeps the order of its properties, as recorded.
fn entity(context: &Context<'_>, key: Option<&Key>) -> Result<ValidatedEntity> {
    let mut body = match body_form(context)? {
        BodyForm::Json => json::entity(context.body),
        BodyForm::Atom => atom::entity(context.body),
    }?;
    if key.is_none() && body.has_key_of_other_type {
        return Err(Code::InvalidInput.into());
    }
    let properties = match key {
        None => ValidatedProperties::new(body.counted_keys(), &body.properties, body.deferred_error),
        Some(key) => ValidatedProperties::in_ordinal_order(
            key.counted_size(),
            &mut body.properties,
            body.deferred_error,
        ),
    };
    Ok(ValidatedEntity { partition: body.partition, row: body.row, properties })
}

fn new_table(context: &Context<'_>) -> Result<String> {
    match body_form(context)? {
        BodyForm::Json => json::table_name(context.body),
        BodyForm::Atom => atom::table_name(context.body),
    }
}

/// Returns whether text in this character set is valid as UTF-8. Text in any other would be misread.
fn is_utf8(charset: &str) -> bool {
    let charset = charset.trim_matches('"');
    ["utf-8", "utf8", "us-ascii", "ascii"].iter().any(|known| known.eq_ignore_ascii_case(charset))
}

enum BodyForm {
    Json,
    Atom,
}

/// Returns the declared format of a body. Without a declaration, returns the format that the body looks like
/// (protocol §4.1).
fn body_form(context: &Context<'_>) -> Result<BodyForm> {
    let declared = context.head.header("content-type").unwrap_or_default();
    let name = declared.split(';').next().unwrap_or_default().trim();
    let looks_like_xml = context.body.trim_ascii_start().starts_with(b"<");
    let version = context.head.version()?;
    if !format::parameter(declared, "charset").is_none_or(is_utf8) {
        return Err(Code::MediaTypeNotSupported.into());
    }
    if name.eq_ignore_ascii_case("application/json") {
        format::knows_json(version)?;
        return Ok(BodyForm::Json);
    }
    match name.to_ascii_lowercase().as_str() {
        "" if !looks_like_xml => Ok(BodyForm::Json),
        "" | "application/atom+xml" | "application/xml" | "text/xml" => {
            format::atom(version)?;
            Ok(BodyForm::Atom)
        }
        _ => Err(Code::MediaTypeNotSupported.into()),
    }
}
