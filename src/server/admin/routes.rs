//! All routes of the admin listener, and their OpenAPI document. Each module declares its routes and their handlers.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::call::Call;
use super::console::{assets, requests, sas, service};
use super::reply::{ErrorDocument, Outcome, Reply};
use super::route::{Access, Content, ListenerPart, Route, guarded, parameter};
use super::{about, accounts, expiry, indexes, tables, test_mode};

const ROUTES: &[&[Route]] = &[
    about::ROUTES,
    DOCUMENTATION,
    tables::ROUTES,
    indexes::ROUTES,
    accounts::ROUTES,
    expiry::ROUTES,
    test_mode::ROUTES,
    assets::ROUTES,
    requests::ROUTES,
    sas::ROUTES,
    service::ROUTES,
];

const DOCUMENTATION: &[Route] = &[guarded("GET", "/openapi.json", |call| Box::pin(document(call)))
    .about("openapi", "This OpenAPI document")
    .answers::<serde_json::Map<String, serde_json::Value>>("An OpenAPI document.")];

/// Returns all routes. The first one that matches a request answers it.
pub(crate) fn routes() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().copied().flatten()
}

/// Generated once, because clients choose how often they request it.
static DOCUMENT: LazyLock<Reply> = LazyLock::new(|| Reply::json(200, &generate(routes())));

async fn document(_: &Call<'_>) -> Outcome {
    Ok(DOCUMENT.clone())
}

const INFO: &str = "The admin interface of a server, on the address of --admin-listen. Everything but the probes and \
                    the files of the console requires the admin token. If the server was given a loopback address \
                    and no token, programs on this machine may read without it.";
const UNAUTHORIZED: &str = "The token is missing or wrong.";
const FORBIDDEN: &str = "The request comes from a web page of another site, or names another host than this machine \
                         and has no token.";

fn generate<'a>(routes: impl Iterator<Item = &'a Route>) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    // Members that a client may omit are always present in a response, so bodies and responses need separate schemas.
    let mut of_answers = settings.clone().for_serialize().into_generator();
    let mut of_bodies = settings.for_deserialize().into_generator();
    let error = json_content(of_answers.subschema_for::<ErrorDocument>());
    let mut paths = Map::new();
    for route in routes {
        let methods = paths.entry(route.path.replace("...}", "}")).or_insert_with(|| json!({}));
        methods[route.method.to_ascii_lowercase()] =
            operation(route, &mut of_answers, &mut of_bodies, &error);
    }
    let mut schemas = of_bodies.take_definitions(true);
    schemas.extend(of_answers.take_definitions(true));
    let refused = |text: &str| json!({ "description": text, "content": error });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Rowhouse admin", "version": env!("CARGO_PKG_VERSION"), "description": INFO },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "responses": { "Unauthorized": refused(UNAUTHORIZED), "Forbidden": refused(FORBIDDEN) },
            "schemas": schemas,
        },
    })
}

fn operation(
    route: &Route,
    of_answers: &mut SchemaGenerator,
    of_bodies: &mut SchemaGenerator,
    error: &Value,
) -> Value {
    let mut operation = json!({ "operationId": route.id, "summary": route.summary });
    if !route.details.is_empty() {
        operation["description"] = route.details.into();
    }
    let of_path = path_parameters(route.path);
    let parameters: Vec<Value> = of_path.chain(route.query.iter().map(|query| query.to_json())).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some((schema, is_required)) = route.body {
        operation["requestBody"] =
            json!({ "required": is_required, "content": json_content(schema(of_bodies)) });
    }
    if route.access == Access::Open {
        operation["security"] = json!([]);
    }
    let mut answer = json!({ "description": route.answer });
    match route.content {
        Content::Nothing => {}
        Content::Json(schema) => answer["content"] = json_content(schema(of_answers)),
        Content::Text(types) => {
            let text = |media: &&str| ((*media).to_owned(), json!({ "schema": { "type": "string" } }));
            answer["content"] = Value::Object(types.iter().map(text).collect());
        }
    }
    operation["responses"] = Value::Object(responses(route, answer, error));
    operation
}

fn responses(route: &Route, answer: Value, error: &Value) -> Map<String, Value> {
    let mut texts: Vec<(u16, String)> = Vec::new();
    let mut add = |status: u16, text: &str| match texts.iter_mut().find(|(known, _)| *known == status) {
        Some((_, known)) => *known = format!("{known} {text}"),
        None => texts.push((status, text.to_owned())),
    };
    route.others.iter().for_each(|(status, text)| add(*status, text));
    if route.body.is_some() {
        add(400, "BadRequest: the body is invalid.");
        add(408, "RequestTimedOut: the body did not arrive in time.");
        add(413, "BodyTooLarge.");
    }
    match route.part {
        ListenerPart::Always => {}
        ListenerPart::TestMode => add(404, "NotFound: the server is not in test mode."),
        ListenerPart::Console => add(404, "NotFound: the console is off."),
    }
    let mut responses = Map::new();
    responses.insert(route.status.to_string(), answer);
    for (status, text) in texts {
        let mut other = json!({ "description": text });
        if status >= 400 {
            other["content"] = error.clone();
        }
        responses.insert(status.to_string(), other);
    }
    if route.access != Access::Open {
        for (status, name) in [("401", "Unauthorized"), ("403", "Forbidden")] {
            responses.insert(status.into(), json!({ "$ref": format!("#/components/responses/{name}") }));
        }
    }
    responses
}

/// Returns the parameters of a path, which are in braces.
fn path_parameters(path: &'static str) -> impl Iterator<Item = Value> {
    path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')).map(|name| {
        let name = name.trim_end_matches("...");
        let (description, schema_type) = match name {
            "name" => ("The name.", "string"),
            "account" => ("The name of the account.", "string"),
            "table" => ("The name of the table.", "string"),
            "id" => ("The number.", "integer"),
            _ => ("The rest of the path. It may have slashes.", "string"),
        };
        parameter("path", name, true, description, json!({ "type": schema_type }))
    })
}

fn json_content(schema: Schema) -> Value {
    json!({ "application/json": { "schema": schema } })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The committed document, for readers and for reviews of changes.
    const COMMITTED: &str = "docs/reference/openapi.json";

    #[test]
    fn the_committed_document_is_the_generated_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(COMMITTED);
        let generated = format!("{}\n", serde_json::to_string_pretty(&generate(routes())).unwrap());
        if std::env::var_os("ROWHOUSE_WRITE_OPENAPI").is_some() {
            std::fs::write(&path, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let is_same = committed == generated;
        assert!(is_same, "{COMMITTED} is old: ROWHOUSE_WRITE_OPENAPI=1 cargo test --lib routes");
    }

    #[test]
    fn each_operation_has_a_name_of_its_own() {
        let mut ids: Vec<&str> = routes().map(|route| route.id).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn routes_for_tests_and_only_those_begin_with_test() {
        let for_tests =
            |route: &Route| (route.part == ListenerPart::TestMode) == route.path.starts_with("/test/");
        assert!(routes().all(for_tests));
    }
}
