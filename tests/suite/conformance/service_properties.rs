//! Service properties and stats (protocol §3.6, §11.1, §11.2).

use crate::support::*;

cases! {
    a_fresh_account_has_the_recorded_defaults, what_is_set_comes_back, what_is_left_out_stays,
    an_empty_element_of_rules_clears_them, accounts_do_not_share_properties,
    the_order_of_elements_does_not_matter, retention_is_between_1_and_365_days,
    metrics_that_are_enabled_say_whether_operations_are_told_apart, what_is_no_such_document_is_refused,
    a_document_that_sets_nothing_is_refused, a_refused_document_changes_nothing,
    five_rules_are_allowed_and_six_are_not, rules_come_back_as_recorded, rules_need_methods_and_origins,
    rules_hold_64_origins_and_64_headers_and_two_prefixes, ages_are_numbers_from_zero_on,
    identical_rules_are_allowed, rules_have_two_kibibytes_together, elements_are_set_once,
    old_versions_replace_everything, old_versions_know_logging_and_metrics_alone,
    a_head_request_has_the_headers_alone, parameters_must_fit_together, a_bad_timeout_is_refused_in_xml,
    other_verbs_are_refused, stats_are_on_the_secondary_alone,
    the_secondary_shows_properties_and_does_not_set_them,
}

const PATH: &str = "/?restype=service&comp=properties";
const STATS: &str = "/?restype=service&comp=stats";

const LOGGING: &str = "<Logging><Version>1.0</Version><Read>true</Read><Write>false</Write><Delete>true</Delete>\
    <RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy></Logging>";
const HOURS: &str = "<HourMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>false</IncludeAPIs>\
    <RetentionPolicy><Enabled>true</Enabled><Days>365</Days></RetentionPolicy></HourMetrics>";
const MINUTES: &str = "<MinuteMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>\
    <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></MinuteMetrics>";
const RULE: &str = "<CorsRule><AllowedMethods>GET,PUT</AllowedMethods><AllowedOrigins>http://a,http://b</AllowedOrigins>\
    <AllowedHeaders>x-ms-date</AllowedHeaders><ExposedHeaders>*</ExposedHeaders>\
    <MaxAgeInSeconds>500</MaxAgeInSeconds></CorsRule>";
const NO_LOGGING: &str = "<Logging><Version>1.0</Version><Read>false</Read><Write>false</Write><Delete>false</Delete>\
    <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></Logging>";

/// What an account has that nobody set.
const DEFAULT_HOURS: &str = "<HourMetrics><Version>1.0</Version><Enabled>true</Enabled>\
    <IncludeAPIs>true</IncludeAPIs><RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy></HourMetrics>";

fn no_metrics(name: &str) -> String {
    format!(
        "<{name}><Version>1.0</Version><Enabled>false</Enabled>\
         <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></{name}>"
    )
}

fn document(elements: &str) -> String {
    format!("<StorageServiceProperties>{elements}</StorageServiceProperties>")
}

fn put(client: &Client, elements: &str) -> Answer {
    put_raw(client, format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>{}", document(elements)))
}

fn put_raw(client: &Client, body: impl Into<Vec<u8>>) -> Answer {
    let request = client.request("PUT", PATH).header("Accept", "application/xml");
    request.header("Content-Type", "application/xml").body(body).send()
}

fn get(client: &Client) -> String {
    client.request("GET", PATH).header("Accept", "application/xml").send().expect_xml()
}

/// A rule with one element replaced.
fn rule(name: &str, value: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let (head, rest) = RULE.split_once(&open).expect("a known element");
    let (_, tail) = rest.split_once(&close).expect("a closed element");
    format!("<Cors>{head}{open}{value}{close}{tail}</Cors>")
}

fn a_fresh_account_has_the_recorded_defaults(client: &Client) {
    let minutes = no_metrics("MinuteMetrics");
    assert_eq!(get(client), document(&format!("{NO_LOGGING}{DEFAULT_HOURS}{minutes}<Cors />")));
}

fn what_is_set_comes_back(client: &Client) {
    let all = format!("{LOGGING}{HOURS}{MINUTES}<Cors>{RULE}</Cors>");
    put(client, &all).expect(202);
    assert_eq!(get(client), document(&all));
}

fn what_is_left_out_stays(client: &Client) {
    put(client, &format!("{LOGGING}{HOURS}{MINUTES}<Cors>{RULE}</Cors>")).expect(202);
    put(client, NO_LOGGING).expect(202);
    assert_eq!(get(client), document(&format!("{NO_LOGGING}{HOURS}{MINUTES}<Cors>{RULE}</Cors>")));
    put(client, &no_metrics("MinuteMetrics")).expect(202);
    let expected = format!("{NO_LOGGING}{HOURS}{}<Cors>{RULE}</Cors>", no_metrics("MinuteMetrics"));
    assert_eq!(get(client), document(&expected));
}

fn an_empty_element_of_rules_clears_them(client: &Client) {
    for empty in ["<Cors />", "<Cors></Cors>"] {
        put(client, &format!("{LOGGING}<Cors>{RULE}</Cors>")).expect(202);
        put(client, empty).expect(202);
        let found = get(client);
        assert!(found.contains("<Cors />") && found.contains(LOGGING), "{found}");
    }
}

fn accounts_do_not_share_properties(client: &Client) {
    let Some(neighbour) = client.neighbour() else { return };
    let before = get(&neighbour);
    put(client, &rule("MaxAgeInSeconds", "424242")).expect(202);
    assert!(get(client).contains("424242"));
    assert!(!get(&neighbour).contains("424242"), "{before}");
}

fn the_order_of_elements_does_not_matter(client: &Client) {
    let logging = "<Logging><RetentionPolicy><Days>7</Days><Enabled>true</Enabled></RetentionPolicy>\
                   <Delete>true</Delete><Write>false</Write><Read>true</Read><Version>1.0</Version></Logging>";
    let cors = "<Cors><CorsRule><AllowedOrigins>http://a,http://b</AllowedOrigins><MaxAgeInSeconds>500</MaxAgeInSeconds>\
                <ExposedHeaders>*</ExposedHeaders><AllowedHeaders>x-ms-date</AllowedHeaders>\
                <AllowedMethods>GET,PUT</AllowedMethods></CorsRule></Cors>";
    put(client, &format!("{cors}{MINUTES}{HOURS}{logging}")).expect(202);
    assert_eq!(get(client), document(&format!("{LOGGING}{HOURS}{MINUTES}<Cors>{RULE}</Cors>")));
    let namespace = document(LOGGING).replacen('>', " xmlns=\"urn:x\">", 1);
    put_raw(client, format!("\u{feff}{namespace}")).expect(202);
}

fn retention_is_between_1_and_365_days(client: &Client) {
    for (days, status) in
        [("1", 202), ("365", 202), ("366", 400), ("0", 400), ("-1", 400), ("x", 400), ("", 400)]
    {
        let answer = put(client, &LOGGING.replace("7</Days>", &format!("{days}</Days>")));
        assert_eq!(answer.status, status, "{days} {answer}");
        let answer = put(client, &HOURS.replace("365</Days>", &format!("{days}</Days>")));
        assert_eq!(answer.status, status, "{days} {answer}");
    }
    put(client, &HOURS.replace("365", "366")).refused_in_xml(XML_DOCUMENT);
    put(client, &LOGGING.replace("<Days>7</Days>", "")).expect(400);
}

fn metrics_that_are_enabled_say_whether_operations_are_told_apart(client: &Client) {
    put(client, &HOURS.replace("<IncludeAPIs>false</IncludeAPIs>", "")).expect(400);
    put(client, &HOURS.replace("<Enabled>true</Enabled><Inc", "<Enabled>yes</Enabled><Inc")).expect(400);
    put(client, &no_metrics("HourMetrics")).expect(202);
}

fn what_is_no_such_document_is_refused(client: &Client) {
    for body in [
        "",
        "x",
        "{}",
        "<StorageServiceProperties>",
        "<Other/>",
        "<StorageServiceProperties><Other/></StorageServiceProperties>",
        "<StorageServiceProperties><Logging/></StorageServiceProperties>",
        "<x:StorageServiceProperties/>",
        "<StorageServiceProperties x:a=\"1\"/>",
        "<StorageServiceProperties><x:Cors/></StorageServiceProperties>",
        "<StorageServiceProperties/><StorageServiceProperties/>",
    ] {
        put_raw(client, body).refused_in_xml(XML_DOCUMENT);
    }
}

fn a_document_that_sets_nothing_is_refused(client: &Client) {
    put(client, LOGGING).expect(202);
    let before = get(client);
    for elements in ["", " ", "\n", "<!-- nothing -->"] {
        put(client, elements).refused_in_xml(XML_DOCUMENT);
    }
    for version in ["2009-09-19", "2012-02-12", "2013-08-15", "2020-12-06"] {
        let request = client.request("PUT", PATH).version(version);
        request.body("<StorageServiceProperties/>").send().refused_in_xml(XML_DOCUMENT);
    }
    assert_eq!(get(client), before);
}

fn a_refused_document_changes_nothing(client: &Client) {
    put(client, LOGGING).expect(202);
    let before = get(client);
    let bad = format!("{NO_LOGGING}{}", rule("MaxAgeInSeconds", "x"));
    put(client, &bad).expect(400);
    assert_eq!(get(client), before);
}

fn five_rules_are_allowed_and_six_are_not(client: &Client) {
    put(client, &format!("<Cors>{}</Cors>", RULE.repeat(5))).expect(202);
    let answer = put(client, &format!("<Cors>{}</Cors>", RULE.repeat(6))).refused_in_xml(XML_DOCUMENT);
    assert_eq!(answer.reason, XML_DOCUMENT.2, "{answer}");
    assert_eq!(get(client).matches("<CorsRule>").count(), 5);
}

fn rules_come_back_as_recorded(client: &Client) {
    // Literal names come first, then prefixes, each in the order sent.
    put(client, &rule("AllowedHeaders", "x-a*,b,x-c*,d")).expect(202);
    let found = get(client);
    assert!(found.contains("<AllowedHeaders>b,d,x-a*,x-c*</AllowedHeaders>"), "{found}");
    put(client, &rule("AllowedHeaders", "")).expect(202);
    assert!(get(client).contains("<AllowedHeaders />"), "{}", get(client));
}

fn rules_need_methods_and_origins(client: &Client) {
    for name in ["AllowedMethods", "AllowedOrigins"] {
        put(client, &rule(name, "")).expect(400);
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let renamed = rule(name, "*").replace(&open, "<Other>").replace(&close, "</Other>");
        put(client, &renamed).expect(400);
    }
    for method in ["FROB", "get", "GET;PUT", "*"] {
        put(client, &rule("AllowedMethods", method)).refused_in_xml(XML_VALUE);
    }
    put(client, &rule("AllowedMethods", "DELETE,GET,HEAD,MERGE,POST,OPTIONS,PUT,PATCH")).expect(202);
}

fn rules_hold_64_origins_and_64_headers_and_two_prefixes(client: &Client) {
    let many = |count: usize, suffix: &str| {
        (0..count).map(|i| format!("http-{i}{suffix}")).collect::<Vec<_>>().join(",")
    };
    put(client, &rule("AllowedOrigins", &many(64, ""))).expect(202);
    put(client, &rule("AllowedOrigins", &many(65, ""))).refused_in_xml(XML_VALUE);
    put(client, &rule("AllowedOrigins", &"o".repeat(256))).expect(202);
    put(client, &rule("AllowedOrigins", &"o".repeat(257))).expect(400);
    for name in ["AllowedHeaders", "ExposedHeaders"] {
        put(client, &rule(name, &format!("{},{}", many(64, ""), many(2, "*")))).expect(202);
        put(client, &rule(name, &many(65, ""))).refused_in_xml(XML_VALUE);
        put(client, &rule(name, &many(3, "*"))).refused_in_xml(XML_VALUE);
    }
}

fn ages_are_numbers_from_zero_on(client: &Client) {
    for (age, status) in [("0", 202), ("86400", 202), ("-1", 400), ("x", 400), ("1.5", 400), ("", 400)] {
        assert_eq!(put(client, &rule("MaxAgeInSeconds", age)).status, status, "{age}");
    }
}

fn identical_rules_are_allowed(client: &Client) {
    put(client, &format!("<Cors>{RULE}{RULE}</Cors>")).expect(202);
    assert_eq!(get(client).matches(RULE).count(), 2);
}

/// How much the rules may hold, markup left out.
const RULES_SIZE: usize = 2048;

fn rules_have_two_kibibytes_together(client: &Client) {
    let text =
        |body: &str| body.split('<').filter_map(|part| Some(part.split_once('>')?.1.len())).sum::<usize>();
    let padded = |count: usize, size: usize| {
        let plain = RULE.repeat(count);
        let missing = size - text(&plain);
        // Spread over origins, of which each has 256 characters at most.
        let origins: Vec<String> =
            (0..missing).step_by(200).map(|at| "o".repeat(199.min(missing - at - 1))).collect();
        plain.replacen("http://a,", &format!("{},http://a,", origins.join(",")), 1)
    };
    for count in [1, 5] {
        assert_eq!(text(&padded(count, RULES_SIZE)), RULES_SIZE);
        put(client, &format!("<Cors>{}</Cors>", padded(count, RULES_SIZE))).expect(202);
        let before = get(client);
        put(client, &format!("<Cors>{}</Cors>", padded(count, RULES_SIZE + 1))).refused_in_xml(XML_DOCUMENT);
        assert_eq!(get(client), before);
    }
}

fn elements_are_set_once(client: &Client) {
    for element in [LOGGING, HOURS, MINUTES, "<Cors />"] {
        put(client, &element.repeat(2)).refused_in_xml(XML_DOCUMENT);
    }
    for version in ["2.0", "", "x"] {
        let other = |element: &str| element.replace(">1.0<", &format!(">{version}<"));
        put(client, &other(LOGGING)).refused_in_xml(XML_VALUE);
        put(client, &other(HOURS)).refused_in_xml(XML_VALUE);
    }
}

/// Sets properties as clients before 2013-08-15 do.
fn put_as_before(client: &Client, version: &str, elements: &str) -> Answer {
    let request = client.request("PUT", PATH).version(version).header("Accept", "application/xml");
    request.body(document(elements)).send()
}

fn old_versions_replace_everything(client: &Client) {
    let metrics = HOURS.replace("HourMetrics", "Metrics");
    for version in ["2011-08-18", "2012-02-12", "2013-08-14"] {
        put(client, &format!("{LOGGING}{HOURS}{MINUTES}<Cors>{RULE}</Cors>")).expect(202);
        put_as_before(client, version, &metrics).expect(202);
        let minutes = no_metrics("MinuteMetrics");
        assert_eq!(get(client), document(&format!("{NO_LOGGING}{HOURS}{minutes}<Cors />")), "{version}");
        put_as_before(client, version, LOGGING).expect(202);
        let hours = no_metrics("HourMetrics");
        assert_eq!(get(client), document(&format!("{LOGGING}{hours}{minutes}<Cors />")), "{version}");
    }
    put(client, &format!("{MINUTES}<Cors>{RULE}</Cors>")).expect(202);
    assert!(get(client).contains(LOGGING), "since 2013-08-15 what is left out stays");
}

fn old_versions_know_logging_and_metrics_alone(client: &Client) {
    put(client, &format!("{LOGGING}{HOURS}{MINUTES}<Cors>{RULE}</Cors>")).expect(202);
    let metrics = HOURS.replace("HourMetrics", "Metrics");
    for version in ["2011-08-18", "2012-02-12"] {
        let shown = client.request("GET", PATH).version(version).send().expect_xml();
        assert_eq!(shown, document(&format!("{LOGGING}{metrics}")), "{version}");
        for element in [HOURS, MINUTES, "<Cors />"] {
            put_as_before(client, version, element).refused_in_xml(XML_DOCUMENT);
        }
    }
    let shown = client.request("GET", PATH).version("2013-08-15").send().expect_xml();
    assert_eq!(shown, document(&format!("{LOGGING}{HOURS}{MINUTES}<Cors>{RULE}</Cors>")));
}

fn a_head_request_has_the_headers_alone(client: &Client) {
    let answer = client.request("HEAD", PATH).send().expect(200);
    assert_eq!(answer.need("Content-Type"), "application/xml");
    get(client);
}

fn parameters_must_fit_together(client: &Client) {
    for path in [
        "/?comp=properties",
        "/?restype=other&comp=properties",
        "/?restype=service&comp=other",
        "/?comp=stats",
    ] {
        let answer = client.get(path);
        assert_eq!(answer.status, 400, "{path} {answer}");
        assert_eq!(answer.need("x-ms-error-code"), QUERY_VALUE.1, "{path}");
    }
    client.get("/?RESTYPE=service&COMP=properties").expect_xml();
}

fn a_bad_timeout_is_refused_in_xml(client: &Client) {
    let t = client.table();
    for path in [format!("{PATH}&timeout=abc"), format!("{}?comp=acl&timeout=abc", t.set())] {
        client.get(&path).refused_in_xml(QUERY_VALUE);
    }
}

fn other_verbs_are_refused(client: &Client) {
    for verb in ["POST", "DELETE", "MERGE"] {
        let answer = client.request(verb, PATH).send().refused_in_xml(METHOD_NOT_ALLOWED);
        assert_eq!(answer.need("Allow"), "GET, HEAD, PUT, OPTIONS", "{answer}");
    }
    for verb in ["DELETE", "PUT"] {
        let answer = client.secondary().request(verb, STATS).send().refused_in_xml(METHOD_NOT_ALLOWED);
        assert_eq!(answer.need("Allow"), "GET, HEAD, OPTIONS", "{answer}");
    }
    client.request("FROB", PATH).send().refused_in_xml(UNKNOWN_VERB);
}

fn stats_are_on_the_secondary_alone(client: &Client) {
    client.get(STATS).refused_in_xml(QUERY_VALUE);
    let found = client.secondary().get(STATS).expect_xml();
    let head = "<StorageServiceStats><GeoReplication><Status>live</Status><LastSyncTime>";
    let time = found
        .strip_prefix(head)
        .and_then(|rest| rest.strip_suffix("</LastSyncTime></GeoReplication></StorageServiceStats>"));
    let time = time.unwrap_or_else(|| panic!("not the recorded form: {found}"));
    assert!(time.ends_with(" GMT") && chrono::DateTime::parse_from_rfc2822(time).is_ok(), "{time}");
}

fn the_secondary_shows_properties_and_does_not_set_them(client: &Client) {
    put(client, LOGGING).expect(202);
    let secondary = client.secondary();
    assert_eq!(get(&secondary), get(client));
    put(&secondary, NO_LOGGING).refused_in_xml(WRITE_ON_SECONDARY);
    assert!(get(client).contains(LOGGING));
}
