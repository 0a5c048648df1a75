//! Parses requests: maps a verb and a resource to an operation, and plans the operation (protocol §3).

use super::decide::WriteKind;
use super::filter::{self, Subject};
use super::write::{EntityWrite, ValidatedEntity, plan_write};
use super::{Plan, PointRead, query};
use crate::codec::atom::read as atom;
use crate::codec::json::read as json;
use crate::codec::policies;
use crate::codec::properties::{self, Layout};
use crate::codec::validated::ValidatedProperties;
use crate::error::{Code, Error, Result};
use crate::model::names::check_read_key;
use crate::model::{IfMatch, IfNoneMatch, Key, TableName};
use crate::odata::Grammar;
use crate::request::head::{WITH_JSON, WITH_UPSERT, WITHOUT_ATOM};
use crate::request::options::Options;
use crate::request::{Head, OperationLabel, QueryOptions, Resource, Verb, format};

/// A parsed operation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The name that metrics, logs and traces use.
    pub label: OperationLabel,
    /// The plan, or the first error among names, keys, properties, filter and tokens.
    pub plan: Result<Plan>,
}

impl Operation {
    const fn new(label: OperationLabel, plan: Result<Plan>) -> Self {
        Self { label, plan }
    }

    pub(super) fn of_write(entity: EntityWrite<'_>) -> Self {
        let label = entity.kind.label();
        Self::new(label, plan_write(entity).map(|(table, write)| Plan::Write { table, write }))
    }
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
    Ok(match (resource, verb) {
        (Resource::Service, _) => service_operation(context, verb)?,
        (Resource::Metadata, _) => return Err(Code::NotImplemented.into()),
        (Resource::EntitySet(table), _) if context.options.any_case("comp").is_some() => {
            policies_operation(context, verb, table)?
        }
        (Resource::Tables, Verb::Get) => {
            let options = query()?;
            let plan = query::tables(&options).map(|scan| Plan::QueryTables { scan, select: options.select });
            Operation::new(OperationLabel::QueryTables, plan)
        }
        (Resource::Tables, Verb::Post) => {
            let name = read_table_name(context)?;
            Operation::new(OperationLabel::CreateTable, TableName::parse(&name).map(Plan::CreateTable))
        }
        (Resource::Table(table), Verb::Get) => {
            let table = existing_table(table, Code::ResourceNotFound);
            Operation::new(OperationLabel::GetTable, table.map(Plan::GetTable))
        }
        (Resource::Table(table), Verb::Delete) => {
            refuse_conditions(context.head)?;
            // As seen in Azure, a table with an invalid name counts as missing.
            let table = TableName::parse(table).map_err(|_| Code::ResourceNotFound.into());
            Operation::new(OperationLabel::DeleteTable, table.map(Plan::DeleteTable))
        }
        (Resource::EntitySet(table), Verb::Get) => query_entities(table, None, query()?),
        (Resource::EntitySet(table), Verb::Post) => insert(context, table)?,
        (Resource::Partition { table, partition }, Verb::Get) => {
            query_entities(table, Some(partition), query()?)
        }
        (Resource::Partition { .. }, _) => return Err(Code::InvalidInput.into()),
        (Resource::Entity { table, key }, Verb::Get | Verb::Head) => get_entity(context, table, key)?,
        (Resource::Entity { table, key }, Verb::Put | Verb::Merge | Verb::Delete) => {
            write(context, verb, table, key)?
        }
        (Resource::BelowTable { rest, .. }, Verb::Post) if rest == "$batch" => {
            return Err(Code::MediaTypeNotSupported.into());
        }
        // As recorded, this is an insert by a client that uses a table's address as the service's address.
        (Resource::BelowTable { table, rest }, Verb::Post) if is_entity_set_name(rest) => {
            insert(context, table)?
        }
        (Resource::BelowTable { table, rest }, _) => {
            let is_query = verb == Verb::Get && is_entity_set_name(rest);
            let plan = TableName::parse(table).map(|table| Plan::BelowTable { table, is_query });
            Operation::new(OperationLabel::Unknown, plan)
        }
        _ => return Err(Code::MethodNotAllowed.into()),
    })
}

/// Parses the name of a table that must exist, with `missing` as the error for Azure's metrics tables. Those have
/// otherwise invalid names (protocol §3.1), and Rowhouse has none.
fn existing_table(name: &str, missing: Code) -> Result<TableName> {
    if name.starts_with("$Metrics") { Err(missing.into()) } else { TableName::parse(name) }
}

/// Returns the value of the Allow header of a 405 response (RFC 9110, 15.5.6). Every resource supports CORS preflight
/// requests. An entity supports POST only for verb tunnelling (protocol §3.9), so POST is not listed.
pub fn allowed_methods(resource: &Resource, options: &Options) -> &'static str {
    let comp = options.any_case("comp").map(str::to_ascii_lowercase);
    match (resource, comp.as_deref()) {
        (Resource::Service, Some("properties")) => "GET, HEAD, PUT, OPTIONS",
        (Resource::Service, Some("stats")) => "GET, HEAD, OPTIONS",
        (Resource::EntitySet(_), Some("acl")) => "GET, HEAD, PUT, OPTIONS",
        // Every request to this resource is an error.
        (Resource::EntitySet(_), Some(_))
        | (Resource::Service | Resource::Metadata | Resource::BelowTable { .. }, _) => "OPTIONS",
        (Resource::Tables | Resource::EntitySet(_), _) => "GET, POST, OPTIONS",
        (Resource::Table(_), _) => "GET, DELETE, OPTIONS",
        (Resource::Entity { .. }, _) => "GET, HEAD, PUT, MERGE, PATCH, DELETE, OPTIONS",
        (Resource::Partition { .. }, _) => "GET, OPTIONS",
        (Resource::Batch, _) => "POST, OPTIONS",
    }
}

/// Parses `/?restype=service&comp=…` (protocol §3.6).
fn service_operation(context: &Context<'_>, verb: Verb) -> Result<Operation> {
    let option = |name| context.options.any_case(name);
    let is_service = option("restype").is_some_and(|r| r.eq_ignore_ascii_case("service"));
    let comp = option("comp").map(str::to_ascii_lowercase);
    match (is_service, comp.as_deref(), verb) {
        (false, None, _) if option("restype").is_none() => Err(Code::NotImplemented.into()),
        (true, Some("properties"), Verb::Get | Verb::Head) => {
            let layout = properties_layout(context.head)?;
            Ok(Operation::new(OperationLabel::GetServiceProperties, Ok(Plan::GetProperties(layout))))
        }
        (true, Some("properties"), Verb::Put) => {
            let change = properties::read_change(context.body, properties_layout(context.head)?)?;
            Ok(Operation::new(OperationLabel::SetServiceProperties, Ok(Plan::SetProperties(change))))
        }
        (true, Some("stats"), Verb::Get | Verb::Head) => {
            Ok(Operation::new(OperationLabel::GetServiceStats, Ok(Plan::GetStats)))
        }
        (true, Some("properties" | "stats"), _) => Err(Code::MethodNotAllowed.into()),
        _ => Err(Code::InvalidQueryParameterValue.into()),
    }
}

fn properties_layout(head: &Head) -> Result<Layout> {
    Ok(if head.version()?.at_least(WITH_JSON) { Layout::Cors } else { Layout::Metrics })
}

/// Parses `/table?comp=acl` (protocol §3.5).
fn policies_operation(context: &Context<'_>, verb: Verb, table: &str) -> Result<Operation> {
    if !context.options.any_case("comp").is_some_and(|comp| comp.eq_ignore_ascii_case("acl")) {
        return Err(Code::InvalidQueryParameterValue.into());
    }
    match verb {
        Verb::Get | Verb::Head => {
            let table = existing_table(table, Code::TableNotFound);
            Ok(Operation::new(OperationLabel::GetTableAcl, table.map(Plan::GetPolicies)))
        }
        Verb::Put => {
            if !accepts_xml(context.head)? {
                return Err(Code::MediaTypeNotSupported.into());
            }
            let policies = policies::read(context.body)?;
            let plan = TableName::parse(table).map(|table| Plan::SetPolicies { table, policies });
            Ok(Operation::new(OperationLabel::SetTableAcl, plan))
        }
        _ => Err(Code::MethodNotAllowed.into()),
    }
}

/// Returns whether a client that sets policies accepts XML. As recorded, no other operation requires this, and
/// `*/*` means JSON here. In versions with Atom, `*/*` means XML, and the Ruby SDK relies on that.
fn accepts_xml(head: &Head) -> Result<bool> {
    let Some(accept) = head.header("accept") else { return Ok(true) };
    let any_means_xml = accept.trim() == "*/*" && !head.version()?.at_least(WITHOUT_ATOM);
    Ok(any_means_xml || accept.to_ascii_lowercase().contains("xml"))
}

fn query_entities(table: &str, partition: Option<&str>, query: QueryOptions) -> Operation {
    let plan = || {
        let scan = query::entities(&query, partition)?;
        Ok(Plan::QueryEntities {
            table: existing_table(table, Code::TableNotFound)?,
            scan,
            select: query.select,
        })
    };
    Operation::new(OperationLabel::QueryEntities, plan())
}

/// Parses a point read. `$top` has no meaning for one entity, and `If-Match` has no effect.
fn get_entity(context: &Context<'_>, table: &str, key: &Key) -> Result<Operation> {
    let filter = context.options.filter(context.grammar)?;
    let select = context.options.select()?;
    let plan = || {
        check_read_key(&key.partition)?;
        check_read_key(&key.row)?;
        let filter = filter.map(|expr| filter::predicate(&expr, Subject::Entities).map(Box::new));
        let known = context.head.list("if-none-match").map(|list| IfNoneMatch::parse(&list));
        let read = PointRead { key: key.clone(), filter: filter.transpose()?, known, select };
        Ok(Plan::GetEntity { table: existing_table(table, Code::TableNotFound)?, read })
    };
    Ok(Operation::new(OperationLabel::GetEntity, plan()))
}

fn insert(context: &Context<'_>, table: &str) -> Result<Operation> {
    let body = Some(read_entity(context, None)?);
    Ok(Operation::of_write(EntityWrite { table, kind: WriteKind::Insert, key: None, body }))
}

/// Returns whether a path is just the name of an entity set.
fn is_entity_set_name(path: &str) -> bool {
    let name = path.strip_suffix("()").unwrap_or(path);
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn write(context: &Context<'_>, verb: Verb, table: &str, key: &Key) -> Result<Operation> {
    let if_match = write_condition(context.head, verb)?;
    let (kind, body) = match verb {
        Verb::Put => (WriteKind::Replace(if_match), Some(read_entity(context, Some(key))?)),
        Verb::Merge => (WriteKind::Merge(if_match), Some(read_entity(context, Some(key))?)),
        _ => (WriteKind::Delete(if_match), None),
    };
    Ok(Operation::of_write(EntityWrite { table, kind, key: Some(key.clone()), body }))
}

/// Returns the condition of a write on an existing entity (protocol §9). A delete needs a condition, and
/// before 2011-08-18 so does every other verb.
fn write_condition(head: &Head, verb: Verb) -> Result<IfMatch> {
    if head.header("if-none-match").is_some() {
        if head.header("if-match").is_some() {
            return Err(Code::BothConditions.into());
        }
        let verb_name = match verb {
            Verb::Delete => "DELETE",
            Verb::Put => "PUT",
            _ => "MERGE",
        };
        return Err(Error::with_message(
            Code::IfNoneMatchNotAllowed,
            format!("If-None-Match HTTP header cannot be specified for {verb_name} operations."),
        ));
    }
    if head.all("if-match").count() > 1 {
        return Err(Code::InvalidEtag.into());
    }
    let condition = IfMatch::parse(head.header("if-match"))?;
    let is_required = verb == Verb::Delete || !head.version()?.at_least(WITH_UPSERT);
    if is_required && condition == IfMatch::Absent { Err(Code::InvalidInput.into()) } else { Ok(condition) }
}

/// Refuses conditions on tables, which have no ETag.
fn refuse_conditions(head: &Head) -> Result<()> {
    if head.header("if-match").is_some() || head.header("if-none-match").is_some() {
        return Err(Code::ConditionWithoutEtag.into());
    }
    Ok(())
}

/// Parses the entity in a body. `key` is the key in the URL; an insert has its key in the body instead. As recorded,
/// only an insert keeps the order of its properties.
fn read_entity(context: &Context<'_>, key: Option<&Key>) -> Result<ValidatedEntity> {
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

fn read_table_name(context: &Context<'_>) -> Result<String> {
    match body_form(context)? {
        BodyForm::Json => json::table_name(context.body),
        BodyForm::Atom => atom::table_name(context.body),
    }
}

/// Returns whether text in this character set can be read as UTF-8.
fn is_utf8(charset: &str) -> bool {
    let charset = charset.trim_matches('"');
    ["utf-8", "utf8", "us-ascii", "ascii"].iter().any(|known| known.eq_ignore_ascii_case(charset))
}

enum BodyForm {
    Json,
    Atom,
}

/// Returns the format of a body from its Content-Type or, without one, from its first character (protocol §4.1).
fn body_form(context: &Context<'_>) -> Result<BodyForm> {
    let declared = context.head.header("content-type").unwrap_or_default();
    let name = format::name_of(declared);
    let version = context.head.version()?;
    if !format::parameter(declared, "charset").is_none_or(is_utf8) {
        return Err(Code::MediaTypeNotSupported.into());
    }
    if name.eq_ignore_ascii_case("application/json") {
        format::require_json(version)?;
        return Ok(BodyForm::Json);
    }
    match name.to_ascii_lowercase().as_str() {
        "" if !context.body.trim_ascii_start().starts_with(b"<") => Ok(BodyForm::Json),
        "" | "application/atom+xml" | "application/xml" | "text/xml" => {
            format::atom(version)?;
            Ok(BodyForm::Atom)
        }
        _ => Err(Code::MediaTypeNotSupported.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::request::read_kind;
    use crate::request::Target;

    const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "MERGE", "PATCH", "DELETE", "BREW"];

    fn refusal(resource: &Resource, query: &str, method: &str) -> Option<Code> {
        let head =
            Head { method: method.into(), headers: vec![("if-match".into(), "*".into())], ..Head::default() };
        let options = Options::parse(query).unwrap();
        let grammar = Grammar { max_comparisons: 1, extended: false };
        let context = Context { head: &head, options: &options, body: b"", grammar };
        let target = Target {
            account: "acct".into(),
            secondary: false,
            base: String::new(),
            path_style: true,
            resource: resource.clone(),
        };
        let operation = Verb::of(&head).and_then(|verb| read_kind(&context, verb, &target));
        operation.err().map(|error| error.code)
    }

    #[test]
    fn what_is_named_is_answered_and_what_is_not_is_refused() {
        let table = || "abc".to_owned();
        for (resource, query) in [
            (Resource::Service, "restype=service&comp=properties"),
            (Resource::Service, "restype=service&COMP=Stats"),
            (Resource::Tables, ""),
            (Resource::Table(table()), ""),
            (Resource::EntitySet(table()), ""),
            (Resource::EntitySet(table()), "comp=ACL"),
            (Resource::Entity { table: table(), key: Key::new("p", "r") }, ""),
            (Resource::Batch, ""),
        ] {
            let allowed: Vec<&str> =
                allowed_methods(&resource, &Options::parse(query).unwrap()).split(", ").collect();
            assert!(allowed.contains(&"OPTIONS"));
            for method in METHODS {
                let refused = matches!(
                    refusal(&resource, query, method),
                    Some(Code::MethodNotAllowed | Code::UnsupportedHttpVerb)
                );
                assert_eq!(refused, !allowed.contains(&method), "{method} {resource:?} {query}");
            }
        }
    }

    #[test]
    fn what_has_nothing_to_offer_names_the_preflight_alone() {
        let below = Resource::BelowTable { table: "abc".into(), rest: "x".into() };
        for resource in [Resource::Service, Resource::Metadata, below] {
            assert_eq!(allowed_methods(&resource, &Options::default()), "OPTIONS", "{resource:?}");
        }
        let half = Resource::Partition { table: "abc".into(), partition: "p".into() };
        assert_eq!(allowed_methods(&half, &Options::default()), "GET, OPTIONS");
        assert_eq!(refusal(&half, "", "PUT"), Some(Code::InvalidInput));
        assert_eq!(refusal(&half, "", "HEAD"), Some(Code::InvalidInput));
    }
}
