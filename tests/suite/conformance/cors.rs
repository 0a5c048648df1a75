//! Requests from pages of other origins (protocol §11.3).

use serde_json::json;

use crate::support::*;

cases! {
    a_preflight_that_matches_is_granted, a_preflight_needs_no_credentials,
    a_preflight_without_a_match_is_refused, a_preflight_needs_origin_and_method,
    headers_match_by_name_and_prefix_without_case, a_preflight_works_for_every_resource,
    answers_name_the_origin_that_may_read_them, exposed_headers_are_those_that_were_sent,
    errors_carry_the_headers_too, other_origins_are_served_without_the_headers,
    answers_vary_on_gets_where_rules_exist, a_get_without_an_origin_is_answered_as_one_by_anyone,
    without_rules_nothing_is_added, changed_rules_take_effect,
}

/// Methods, origins, allowed and exposed headers, age.
type Rule<'a> = (&'a str, &'a str, &'a str, &'a str, u32);

fn set(client: &Client, rules: &[Rule]) {
    let rules: String = rules
        .iter()
        .map(|(methods, origins, allowed, exposed, age)| {
            format!(
                "<CorsRule><AllowedMethods>{methods}</AllowedMethods><AllowedOrigins>{origins}</AllowedOrigins>\
                 <AllowedHeaders>{allowed}</AllowedHeaders><ExposedHeaders>{exposed}</ExposedHeaders>\
                 <MaxAgeInSeconds>{age}</MaxAgeInSeconds></CorsRule>"
            )
        })
        .collect();
    let body = format!("<StorageServiceProperties><Cors>{rules}</Cors></StorageServiceProperties>");
    let request = client.request("PUT", "/?restype=service&comp=properties");
    request.header("Accept", "application/xml").body(body).send().expect(202);
}

/// A preflight as browsers send it: without credentials and service headers.
fn preflight(client: &Client, origin: &str, method: &str, headers: &str) -> Answer {
    let mut request = bare(client, "/Tables").header("Origin", origin);
    request = request.header("Access-Control-Request-Method", method);
    if !headers.is_empty() {
        request = request.header("Access-Control-Request-Headers", headers);
    }
    request.send()
}

fn bare<'a>(client: &'a Client, path: &str) -> client::Request<'a> {
    let request = client.request("OPTIONS", path).auth(Auth::None).date(None);
    request.without("x-ms-version").without("DataServiceVersion").without("Accept")
}

const GRANT: &str = "Access-Control-Allow-Origin";

#[track_caller]
fn refused(answer: Answer) {
    assert_eq!(answer.header(GRANT), None, "{answer}");
    answer.turned_away(NO_PREFLIGHT);
}

fn a_preflight_that_matches_is_granted(client: &Client) {
    set(client, &[("GET,PUT", "http://a,http://b", "x-ms-*,accept", "", 321)]);
    let answer = preflight(client, "http://b", "PUT", "x-ms-date, Accept").expect(200);
    for (name, value) in [
        (GRANT, "http://b"),
        ("Access-Control-Allow-Methods", "PUT"),
        ("Access-Control-Allow-Headers", "x-ms-date, Accept"),
        ("Access-Control-Max-Age", "321"),
        ("Access-Control-Allow-Credentials", "true"),
    ] {
        assert_eq!(answer.need(name), value, "{answer}");
    }
    assert!(answer.body.is_empty(), "{answer}");
    let answer = preflight(client, "http://b", "PUT", "").expect(200);
    assert_eq!(answer.header("Access-Control-Allow-Headers"), None, "{answer}");
}

fn a_preflight_needs_no_credentials(client: &Client) {
    set(client, &[("GET", "*", "*", "", 1)]);
    let request = bare(client, "/Tables").header("Origin", "http://a");
    let request = request.header("Access-Control-Request-Method", "GET");
    for auth in [Auth::None, Auth::Header("SharedKey x:AAAA".into()), Auth::Header("nonsense".into())] {
        request.clone().auth(auth).send().expect(200);
    }
}

fn a_preflight_without_a_match_is_refused(client: &Client) {
    set(client, &[("GET", "http://a", "x-ms-date", "", 1)]);
    preflight(client, "http://a", "GET", "x-ms-date").expect(200);
    refused(preflight(client, "http://c", "GET", "x-ms-date"));
    refused(preflight(client, "http://a", "PUT", "x-ms-date"));
    refused(preflight(client, "http://a", "GET", "x-ms-version"));
    refused(preflight(client, "http://a", "GET", "x-ms-date,x-ms-version"));
    refused(preflight(client, "http://a.example", "GET", ""));
    refused(preflight(client, "null", "GET", ""));
    // Case tells origins and methods apart.
    set(client, &[("GET,MERGE", "http://A.example", "", "", 1)]);
    preflight(client, "http://A.example", "MERGE", "").expect(200);
    refused(preflight(client, "http://a.example", "MERGE", ""));
    refused(preflight(client, "http://A.example", "merge", ""));
    let get = |origin: &str| client.request("GET", "/Tables").header("Origin", origin).send().expect(200);
    assert_eq!(get("http://A.example").need(GRANT), "http://A.example");
    assert_eq!(get("http://a.example").header(GRANT), None);
    set(client, &[("GET", "*", "*", "", 1)]);
    let answer = preflight(client, "https://any.example:8443", "GET", "a,b,c").expect(200);
    assert_eq!(answer.need(GRANT), "https://any.example:8443");
}

fn a_preflight_needs_origin_and_method(client: &Client) {
    set(client, &[("GET", "*", "*", "", 1)]);
    bare(client, "/Tables").send().turned_away(CORS_HEADER);
    bare(client, "/Tables").header("Origin", "http://a").send().turned_away(CORS_HEADER);
    let request = bare(client, "/Tables").header("Access-Control-Request-Method", "GET");
    request.send().turned_away(CORS_HEADER);
}

fn headers_match_by_name_and_prefix_without_case(client: &Client) {
    set(client, &[("GET", "*", "X-Ms-Meta-*,accept", "", 1)]);
    for (headers, granted) in [
        ("x-ms-meta-a", true),
        ("X-MS-META-B,ACCEPT", true),
        ("x-ms-meta-", true),
        ("x-ms-meta", false),
        ("accept-language", false),
        ("x-ms-meta-a,other", false),
    ] {
        let answer = preflight(client, "http://a", "GET", headers);
        assert_eq!(answer.status, if granted { 200 } else { 403 }, "{headers} {answer}");
    }
}

fn a_preflight_works_for_every_resource(client: &Client) {
    set(client, &[("GET", "*", "*", "", 1)]);
    for path in ["/", "/Tables", "/sometable()", "/sometable(PartitionKey='p',RowKey='r')", "/$batch"] {
        let request = bare(client, path).header("Origin", "http://a");
        request.header("Access-Control-Request-Method", "GET").send().expect(200);
    }
}

fn answers_name_the_origin_that_may_read_them(client: &Client) {
    set(client, &[("GET,POST", "http://a,http://b", "", "", 1)]);
    let answer = client.request("GET", "/Tables").header("Origin", "http://b").send().expect(200);
    assert_eq!(answer.need(GRANT), "http://b");
    assert_eq!(answer.need("Access-Control-Allow-Credentials"), "true");
    assert_eq!(answer.need("Vary"), "Origin");
    assert_eq!(answer.header("Access-Control-Expose-Headers"), None, "{answer}");
    let t = client.table();
    let answer = t.inserting(&with_keys("p", "r", json!({}))).header("Origin", "http://a").send().expect(201);
    assert_eq!(answer.need(GRANT), "http://a");
    let answer = t.on("DELETE", "p", "r").if_match(Some("*")).header("Origin", "http://a").send().expect(204);
    assert_eq!(answer.header(GRANT), None, "the method is not allowed: {answer}");
}

fn exposed_headers_are_those_that_were_sent(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let exposed = |pattern: &str| {
        set(client, &[("GET", "http://a", "", pattern, 1)]);
        let answer = t.on("GET", "p", "r").header("Origin", "http://a").send().expect(200);
        let names = answer.header("Access-Control-Expose-Headers").unwrap_or_default().to_lowercase();
        let names: Vec<String> = names.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect();
        for name in &names {
            // Whether a body comes in chunks is found out after the headers are made.
            assert!(
                answer.header(name).is_some() || name == "content-length",
                "{name} was not sent: {answer}"
            );
        }
        names
    };
    assert_eq!(exposed("etag"), ["etag"]);
    assert_eq!(exposed("x-ms-r*,x-nothing"), ["x-ms-request-id"]);
    assert_eq!(exposed("x-nothing"), [""; 0]);
    let all = exposed("*");
    for name in ["x-ms-request-id", "x-ms-version", "etag", "content-type", "date", "x-ms-client-request-id"]
    {
        assert!(all.iter().any(|n| n == name), "{name} in {all:?}");
    }
}

fn errors_carry_the_headers_too(client: &Client) {
    set(client, &[("GET", "http://a", "", "", 1)]);
    let answer =
        client.request("GET", "/nosuchtable()").header("Origin", "http://a").send().refused(NO_TABLE);
    assert_eq!(answer.need(GRANT), "http://a");
    let request = client.request("GET", "/Tables").header("Origin", "http://a");
    let answer = request.auth(Auth::Header(format!("SharedKey {}:AAAA", client.account.name))).send();
    assert_eq!(answer.turned_away(NOT_AUTHENTICATED).need(GRANT), "http://a");
}

fn other_origins_are_served_without_the_headers(client: &Client) {
    set(client, &[("GET", "http://a", "", "*", 1)]);
    let answer = client.request("GET", "/Tables").header("Origin", "http://b").send().expect(200);
    for (name, _) in &answer.headers {
        assert!(!name.to_lowercase().starts_with("access-control-"), "{answer}");
    }
    assert_eq!(answer.need("Vary"), "Origin");
}

fn answers_vary_on_gets_where_rules_exist(client: &Client) {
    let t = client.table();
    set(client, &[("PUT", "http://a", "", "", 1)]);
    assert_eq!(client.get("/Tables").need("Vary"), "Origin");
    assert_eq!(client.get("/nosuchtable()").expect(404).need("Vary"), "Origin");
    let answer = t.insert(&with_keys("p", "r", json!({})));
    assert_eq!(answer.header("Vary"), None, "{answer}");
}

fn a_get_without_an_origin_is_answered_as_one_by_anyone(client: &Client) {
    let t = client.table();
    set(client, &[("GET,PUT", "*", "", "x-ms-*,content-type", 1)]);
    let properties = "/?restype=service&comp=properties";
    for (path, exposed) in [
        ("/Tables", "x-ms-request-id,x-ms-version,Content-Type"),
        (properties, "x-ms-request-id,x-ms-version"),
    ] {
        for origin in [None, Some("http://a")] {
            let mut request =
                client.request("GET", path).header("Accept", "application/json,application/xml");
            if let Some(origin) = origin {
                request = request.header("Origin", origin);
            }
            let answer = request.without("x-ms-client-request-id").send().expect(200);
            assert_eq!((answer.need(GRANT), answer.header("Vary")), ("*", None), "{answer}");
            assert_eq!(answer.need("Access-Control-Expose-Headers"), exposed, "{answer}");
        }
    }
    // Only what is got: whoever writes says from where.
    let answer = t.insert(&with_keys("p", "r", json!({}))).expect(201);
    assert_eq!(answer.header(GRANT), None, "{answer}");
    let answer = t.on("PUT", "p", "r").json(&json!({})).send().expect(204);
    assert_eq!(answer.header(GRANT), None, "{answer}");
}

fn without_rules_nothing_is_added(client: &Client) {
    let answer = client.request("GET", "/Tables").header("Origin", "http://a").send().expect(200);
    assert_eq!((answer.header("Vary"), answer.header(GRANT)), (None, None), "{answer}");
    refused(preflight(client, "http://a", "GET", ""));
}

fn changed_rules_take_effect(client: &Client) {
    set(client, &[("GET", "http://a", "", "", 1)]);
    let get = || client.request("GET", "/Tables").header("Origin", "http://a").send().expect(200);
    assert_eq!(get().need(GRANT), "http://a");
    set(client, &[("GET", "http://b", "", "", 1)]);
    assert_eq!(get().header(GRANT), None);
    set(client, &[]);
    assert_eq!(get().header("Vary"), None);
    refused(preflight(client, "http://b", "GET", ""));
}
