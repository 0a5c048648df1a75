//! The methods that a resource supports, which a 405 response lists (RFC 9110, 15.5.6).

use super::options::Options;
use super::target::Resource;

/// Returns the value of `Allow`. Every resource supports CORS preflight requests. An entity supports POST
/// only for verb tunnelling (protocol §3.9), so POST is not listed.
pub fn methods(resource: &Resource, options: &Options) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::model::Key;
    use crate::odata::Grammar;
    use crate::request::operation::Context;
    use crate::request::verb::Verb;
    use crate::request::{Head, Target, wanted};

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
        let operation = Verb::of(&head).and_then(|verb| wanted(&context, verb, &target));
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
                methods(&resource, &Options::parse(query).unwrap()).split(", ").collect();
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
            assert_eq!(methods(&resource, &Options::default()), "OPTIONS", "{resource:?}");
        }
        let half = Resource::Partition { table: "abc".into(), partition: "p".into() };
        assert_eq!(methods(&half, &Options::default()), "GET, OPTIONS");
        assert_eq!(refusal(&half, "", "PUT"), Some(Code::InvalidInput));
        assert_eq!(refusal(&half, "", "HEAD"), Some(Code::InvalidInput));
    }
}
