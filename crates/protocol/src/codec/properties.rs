//! Service properties and stats as XML and as stored JSON (protocol §11.1, §11.2).

use serde::{Deserialize, Serialize};

use super::xml::{self, DECLARATION, Element, push_element};
use crate::error::{Code, Result};
use crate::model::Ticks;

/// The properties of an account's Table service, or a change of them. Analytics settings are stored and returned, but
/// have no effect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ServiceProperties {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logging: Option<Logging>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hour_metrics: Option<MetricsProperties>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minute_metrics: Option<MetricsProperties>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cors: Option<Vec<CorsRule>>,
}

/// The layout of a document, which depends on the version of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Before 2013-08-15: Logging and Metrics, both always present.
    Metrics,
    /// Since 2013-08-15. Elements that a request omits stay unchanged.
    Cors,
}

/// Settings of analytics logs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Logging {
    pub version: String,
    pub read: bool,
    pub write: bool,
    pub delete: bool,
    pub retention: Option<u32>,
}

/// Settings of analytics metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MetricsProperties {
    pub version: String,
    /// Whether metrics include API operations; `None` if metrics are disabled.
    pub include_apis: Option<bool>,
    /// Retention in days; `None` if disabled.
    pub retention: Option<u32>,
}

/// A CORS rule, which allows requests from pages of other origins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CorsRule {
    pub methods: Vec<String>,
    pub origins: Vec<String>,
    pub allowed_headers: Vec<String>,
    pub exposed_headers: Vec<String>,
    pub max_age: u32,
}

const MAX_RULES: usize = 5;
/// Maximum size of all CORS rules in bytes, without markup.
const MAX_RULES_BYTES: usize = 2 * 1024;
const MAX_ORIGINS: usize = 64;
const MAX_ORIGIN_CHARACTERS: usize = 256;
const MAX_LITERAL_HEADERS: usize = 64;
const MAX_PREFIXED_HEADERS: usize = 2;
const METHODS: [&str; 10] =
    ["DELETE", "GET", "HEAD", "MERGE", "POST", "OPTIONS", "PUT", "PATCH", "TRACE", "CONNECT"];

/// Reads the properties that a request sets. Omitted elements stay unchanged. In the old layout, they are disabled
/// instead (protocol §3.6).
///
/// # Errors
/// [`Code::InvalidXmlDocument`] for an invalid document, a duplicate element, more than five CORS rules or 2
/// KiB of them, and for retention of more than 365 days; [`Code::InvalidXmlNodeValue`] for invalid values in
/// a CORS rule, and for an analytics version other than 1.0.
pub fn read(body: &[u8], layout: Layout) -> Result<ServiceProperties> {
    parse_elements(body).and_then(|elements| from_elements(&elements, layout))
}

/// Reads the document of a request that sets properties, which must contain at least one element.
///
/// # Errors
/// Those of [`read`]; [`Code::InvalidXmlDocument`] for a document without elements.
pub(crate) fn read_change(body: &[u8], layout: Layout) -> Result<ServiceProperties> {
    match parse_elements(body)?.as_slice() {
        [] => Err(Code::InvalidXmlDocument.into()),
        elements => from_elements(elements, layout),
    }
}

fn parse_elements(body: &[u8]) -> Result<Vec<Element>> {
    let root = xml::parse_strictly(body).map_err(|_| Code::InvalidXmlDocument)?;
    if root.name == "StorageServiceProperties" {
        Ok(root.children)
    } else {
        Err(Code::InvalidXmlDocument.into())
    }
}

fn from_elements(elements: &[Element], layout: Layout) -> Result<ServiceProperties> {
    let mut properties = ServiceProperties::default();
    for element in elements {
        match (layout, element.name.as_str()) {
            (_, "Logging") => set_once(&mut properties.logging, parse_logging(element)?)?,
            // The new layout accepts the old name too (UNVERIFIED).
            (_, "Metrics") | (Layout::Cors, "HourMetrics") => {
                set_once(&mut properties.hour_metrics, parse_metrics(element)?)?;
            }
            (Layout::Cors, "MinuteMetrics") => {
                set_once(&mut properties.minute_metrics, parse_metrics(element)?)?
            }
            (Layout::Cors, "Cors") => set_once(&mut properties.cors, parse_cors(element)?)?,
            _ => return Err(Code::InvalidXmlDocument.into()),
        }
    }
    Ok(match layout {
        Layout::Cors => properties,
        Layout::Metrics => properties.completed_by(MetricsProperties::off()),
    })
}

/// Sets a value, and refuses a second value.
fn set_once<T>(place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Code::InvalidXmlDocument.into()),
    }
}

impl ServiceProperties {
    /// Returns properties with all elements. Missing hourly metrics get the given value, and other missing elements are
    /// disabled.
    fn completed_by(self, hour_metrics: MetricsProperties) -> Self {
        Self {
            logging: Some(self.logging.unwrap_or_else(Logging::off)),
            hour_metrics: Some(self.hour_metrics.unwrap_or(hour_metrics)),
            minute_metrics: Some(self.minute_metrics.unwrap_or_else(MetricsProperties::off)),
            cors: Some(self.cors.unwrap_or_default()),
        }
    }
}

/// The only analytics version.
const ANALYTICS_VERSION: &str = "1.0";

impl Logging {
    fn off() -> Self {
        Self { version: ANALYTICS_VERSION.into(), ..Self::default() }
    }
}

impl MetricsProperties {
    /// Returns the default hourly metrics of an account, as recorded.
    fn hourly() -> Self {
        Self { version: ANALYTICS_VERSION.into(), include_apis: Some(true), retention: Some(7) }
    }

    fn off() -> Self {
        Self { version: ANALYTICS_VERSION.into(), ..Self::default() }
    }
}

fn parse_version(element: &Element) -> Result<String> {
    match required_child(element, "Version")?.trimmed() {
        ANALYTICS_VERSION => Ok(ANALYTICS_VERSION.into()),
        _ => Err(Code::InvalidXmlNodeValue.into()),
    }
}

fn required_child<'a>(element: &'a Element, name: &str) -> Result<&'a Element> {
    element.child(name).ok_or_else(|| Code::InvalidXmlDocument.into())
}

fn parse_boolean(element: &Element, name: &str) -> Result<bool> {
    // Older Python clients send `True` and `False`.
    match required_child(element, name)?.trimmed() {
        text if text.eq_ignore_ascii_case("true") => Ok(true),
        text if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(Code::InvalidXmlDocument.into()),
    }
}

fn parse_logging(element: &Element) -> Result<Logging> {
    Ok(Logging {
        version: parse_version(element)?,
        read: parse_boolean(element, "Read")?,
        write: parse_boolean(element, "Write")?,
        delete: parse_boolean(element, "Delete")?,
        retention: parse_retention(element)?,
    })
}

fn parse_metrics(element: &Element) -> Result<MetricsProperties> {
    let enabled = parse_boolean(element, "Enabled")?;
    Ok(MetricsProperties {
        version: parse_version(element)?,
        include_apis: if enabled { Some(parse_boolean(element, "IncludeAPIs")?) } else { None },
        retention: parse_retention(element)?,
    })
}

fn parse_retention(element: &Element) -> Result<Option<u32>> {
    let policy = required_child(element, "RetentionPolicy")?;
    if !parse_boolean(policy, "Enabled")? {
        return Ok(None);
    }
    let days = required_child(policy, "Days")?.trimmed().parse().ok().filter(|days| (1..=365).contains(days));
    days.map(Some).ok_or_else(|| Code::InvalidXmlDocument.into())
}

fn parse_cors(element: &Element) -> Result<Vec<CorsRule>> {
    let is_rule = |e: &Element| e.name == "CorsRule";
    if element.children.len() > MAX_RULES || !element.children.iter().all(is_rule) {
        return Err(Code::InvalidXmlDocument.into());
    }
    let size: usize =
        element.children.iter().flat_map(|rule| &rule.children).map(|e| e.trimmed().len()).sum();
    if size > MAX_RULES_BYTES {
        return Err(Code::InvalidXmlDocument.into());
    }
    element.children.iter().map(parse_rule).collect()
}

fn parse_rule(element: &Element) -> Result<CorsRule> {
    let list = |name: &str| -> Result<Vec<String>> {
        let text = required_child(element, name)?.trimmed();
        Ok(text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect())
    };
    let rule = CorsRule {
        methods: list("AllowedMethods")?,
        origins: list("AllowedOrigins")?,
        allowed_headers: list("AllowedHeaders")?,
        exposed_headers: list("ExposedHeaders")?,
        max_age: required_child(element, "MaxAgeInSeconds")?
            .trimmed()
            .parse()
            .map_err(|_| Code::InvalidXmlNodeValue)?,
    };
    let is_valid = !rule.methods.is_empty()
        && rule.methods.iter().all(|m| METHODS.contains(&m.as_str()))
        && (1..=MAX_ORIGINS).contains(&rule.origins.len())
        && rule.origins.iter().all(|o| o.chars().count() <= MAX_ORIGIN_CHARACTERS)
        && headers_fit(&rule.allowed_headers)
        && headers_fit(&rule.exposed_headers);
    if is_valid { Ok(rule) } else { Err(Code::InvalidXmlNodeValue.into()) }
}

fn headers_fit(headers: &[String]) -> bool {
    let prefixes = headers.iter().filter(|h| h.len() > 1 && h.ends_with('*')).count();
    prefixes <= MAX_PREFIXED_HEADERS && headers.len() - prefixes <= MAX_LITERAL_HEADERS
}

/// Prints all properties as recorded. Properties that were never set have their defaults.
pub fn write(properties: &ServiceProperties, layout: Layout) -> String {
    let mut out = String::from(DECLARATION);
    out.push_str("<StorageServiceProperties>");
    let ServiceProperties { logging, hour_metrics, minute_metrics, cors } =
        properties.clone().completed_by(MetricsProperties::hourly());
    push_logging(&mut out, &logging.unwrap_or_default());
    let hourly = hour_metrics.unwrap_or_default();
    match layout {
        Layout::Metrics => push_metrics(&mut out, "Metrics", &hourly),
        Layout::Cors => {
            push_metrics(&mut out, "HourMetrics", &hourly);
            push_metrics(&mut out, "MinuteMetrics", &minute_metrics.unwrap_or_default());
            push_cors(&mut out, &cors.unwrap_or_default());
        }
    }
    out.push_str("</StorageServiceProperties>");
    out
}

fn push_retention(out: &mut String, days: Option<u32>) {
    out.push_str("<RetentionPolicy>");
    push_element(out, "Enabled", &days.is_some().to_string());
    if let Some(days) = days {
        push_element(out, "Days", &days.to_string());
    }
    out.push_str("</RetentionPolicy>");
}

fn push_logging(out: &mut String, logging: &Logging) {
    out.push_str("<Logging>");
    push_element(out, "Version", &logging.version);
    push_element(out, "Read", &logging.read.to_string());
    push_element(out, "Write", &logging.write.to_string());
    push_element(out, "Delete", &logging.delete.to_string());
    push_retention(out, logging.retention);
    out.push_str("</Logging>");
}

fn push_metrics(out: &mut String, name: &str, metrics: &MetricsProperties) {
    out.push_str(&format!("<{name}>"));
    push_element(out, "Version", &metrics.version);
    push_element(out, "Enabled", &metrics.include_apis.is_some().to_string());
    if let Some(include) = metrics.include_apis {
        push_element(out, "IncludeAPIs", &include.to_string());
    }
    push_retention(out, metrics.retention);
    out.push_str(&format!("</{name}>"));
}

fn push_cors(out: &mut String, rules: &[CorsRule]) {
    if rules.is_empty() {
        out.push_str("<Cors />");
        return;
    }
    out.push_str("<Cors>");
    for rule in rules {
        out.push_str("<CorsRule>");
        push_element(out, "AllowedMethods", &rule.methods.join(","));
        push_element(out, "AllowedOrigins", &rule.origins.join(","));
        push_element(out, "AllowedHeaders", &header_list(&rule.allowed_headers));
        push_element(out, "ExposedHeaders", &header_list(&rule.exposed_headers));
        push_element(out, "MaxAgeInSeconds", &rule.max_age.to_string());
        out.push_str("</CorsRule>");
    }
    out.push_str("</Cors>");
}

/// Joins header names as recorded: literal names first, then prefixes, each in the order sent.
fn header_list(names: &[String]) -> String {
    let (prefixes, literals): (Vec<&str>, Vec<&str>) =
        names.iter().map(String::as_str).partition(|name| name.len() > 1 && name.ends_with('*'));
    [literals, prefixes].concat().join(",")
}

/// The replication status of a secondary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// All commits up to this time are visible on the secondary.
    Live(Ticks),
    /// The secondary answers, but has replayed nothing yet.
    Bootstrap,
    /// The secondary does not answer.
    Unavailable,
}

/// Prints the stats of a secondary. The time is an RFC 1123 date, or empty if there is none.
pub fn write_stats(replication: Replication) -> String {
    let mut out = format!("{DECLARATION}<StorageServiceStats><GeoReplication>");
    let (status, time) = match replication {
        Replication::Live(until) => ("live", until.to_http_date()),
        Replication::Bootstrap => ("bootstrap", String::new()),
        Replication::Unavailable => ("unavailable", String::new()),
    };
    push_element(&mut out, "Status", status);
    push_element(&mut out, "LastSyncTime", &time);
    out.push_str("</GeoReplication></StorageServiceStats>");
    out
}

/// Prints the stored JSON. Only elements that are set have a member, so that an update replaces only these members.
pub fn to_stored(properties: &ServiceProperties) -> Result<String> {
    serde_json::to_string(properties).map_err(|_| Code::InternalError.into())
}

/// Reads the stored JSON.
///
/// # Errors
/// [`Code::InternalError`] for text that [`to_stored`] did not print.
pub fn from_stored(text: &str) -> Result<ServiceProperties> {
    serde_json::from_str(text).map_err(|_| Code::InternalError.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: &str = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><StorageServiceProperties>\
        <Logging><Version>1.0</Version><Read>false</Read><Write>false</Write><Delete>false</Delete>\
        <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></Logging>\
        <HourMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>\
        <RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy></HourMetrics><MinuteMetrics><Version>1.0</Version><Enabled>false</Enabled>\
        <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></MinuteMetrics><Cors /></StorageServiceProperties>";

    fn document(inner: &str) -> String {
        format!("<StorageServiceProperties>{inner}</StorageServiceProperties>")
    }
    fn code(inner: &str) -> Option<Code> {
        read(document(inner).as_bytes(), Layout::Cors).err().map(|e| e.code)
    }
    fn cors_rule(methods: &str, origins: &str, headers: &str, age: &str) -> String {
        format!(
            "<CorsRule><AllowedOrigins>{origins}</AllowedOrigins><AllowedMethods>{methods}</AllowedMethods>\
             <AllowedHeaders>{headers}</AllowedHeaders><ExposedHeaders/><MaxAgeInSeconds>{age}</MaxAgeInSeconds></CorsRule>"
        )
    }

    #[test]
    fn a_fresh_account_prints_as_recorded() {
        assert_eq!(write(&ServiceProperties::default(), Layout::Cors), FRESH);
    }

    #[test]
    fn what_is_printed_reads_back_and_survives_storage() {
        let set = read(document(
            "<Logging><Version>1.0</Version><Delete>true</Delete><Read>true</Read><Write>false</Write>\
             <RetentionPolicy><Enabled>true</Enabled><Days>5</Days></RetentionPolicy></Logging>\
             <HourMetrics><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy><Enabled>true</Enabled>\
             <IncludeAPIs>true</IncludeAPIs><Version>1.0</Version></HourMetrics>\
             <Cors><CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET, PUT</AllowedMethods><AllowedHeaders>content-type,\
             x-ms-*</AllowedHeaders><ExposedHeaders>*</ExposedHeaders><MaxAgeInSeconds>500</MaxAgeInSeconds></CorsRule></Cors>",
        ).as_bytes(), Layout::Cors).unwrap();
        assert_eq!(set.minute_metrics, None);
        assert_eq!(set.cors.as_ref().unwrap()[0].methods, ["GET", "PUT"]);
        assert_eq!(from_stored(&to_stored(&set).unwrap()).unwrap(), set);
        let again = read(write(&set, Layout::Cors).as_bytes(), Layout::Cors).unwrap();
        assert_eq!(
            (again.logging, again.hour_metrics, again.cors),
            (set.logging, set.hour_metrics, set.cors)
        );
    }

    #[test]
    fn booleans_are_read_in_any_case() {
        let metrics = |enabled: &str| {
            let inner = format!(
                "<HourMetrics><Version>1.0</Version><Enabled>{enabled}</Enabled><IncludeAPIs>False</IncludeAPIs>\
                 <RetentionPolicy><Enabled>FALSE</Enabled></RetentionPolicy></HourMetrics>"
            );
            read(document(&inner).as_bytes(), Layout::Cors)
                .map(|p| p.hour_metrics.and_then(|m| m.include_apis))
        };
        assert_eq!(metrics("True"), Ok(Some(false)));
        assert_eq!(metrics("False"), Ok(None));
        assert!(metrics("1").is_err());
    }

    #[test]
    fn limits_are_those_of_the_service() {
        let metrics = |days: &str| {
            format!(
                "<MinuteMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>\
             <RetentionPolicy><Enabled>true</Enabled><Days>{days}</Days></RetentionPolicy></MinuteMetrics>"
            )
        };
        let cors = |rules: String| format!("<Cors>{rules}</Cors>");
        let rule = || cors_rule("GET", "a", "", "0");
        let many =
            |n: usize, suffix: &str| (0..n).map(|i| format!("h{i}{suffix}")).collect::<Vec<_>>().join(",");
        let (doc, value) = (Some(Code::InvalidXmlDocument), Some(Code::InvalidXmlNodeValue));
        for (inner, expected) in [
            (metrics("365"), None),
            (metrics("366"), doc),
            (metrics("0"), doc),
            (metrics("x"), doc),
            (cors(rule().repeat(5)), None),
            (cors(rule().repeat(6)), doc),
            (cors(String::new()), None),
            (cors(cors_rule("GET", &many(64, ""), "", "0")), None),
            (cors(cors_rule("GET", &many(65, ""), "", "0")), value),
            (cors(cors_rule("GET", "a", &many(64, ""), "0")), None),
            (cors(cors_rule("GET", "a", &many(65, ""), "0")), value),
            (cors(cors_rule("GET", "a", &many(2, "*"), "0")), None),
            (cors(cors_rule("GET", "a", &many(3, "*"), "0")), value),
            (cors(cors_rule("BREW", "a", "", "0")), value),
            (cors(cors_rule("", "a", "", "0")), value),
            (cors(cors_rule("GET", "", "", "0")), value),
            (cors(cors_rule("GET", "a", "", "-1")), value),
            (cors(cors_rule("GET", &"o".repeat(257), "", "0")), value),
            ("<Nonsense/>".into(), doc),
            ("<Logging/>".into(), doc),
            (String::new(), None),
        ] {
            assert_eq!(code(&inner), expected, "{inner}");
        }
        assert!(read(b"<Other/>", Layout::Cors).is_err() && read(b"", Layout::Cors).is_err());
    }

    #[test]
    fn the_old_layout_sets_everything_and_shows_what_it_knows() {
        let metrics = "<Metrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>false</IncludeAPIs>\
                       <RetentionPolicy><Enabled>true</Enabled><Days>3</Days></RetentionPolicy></Metrics>";
        let set = read(document(metrics).as_bytes(), Layout::Metrics).unwrap();
        assert_eq!(
            (set.minute_metrics.clone(), set.cors.clone()),
            (Some(MetricsProperties::off()), Some(vec![]))
        );
        assert_eq!(set.logging, Some(Logging::off()));
        let shown = write(&set, Layout::Metrics);
        assert!(shown.ends_with(&format!("</Logging>{metrics}</StorageServiceProperties>")), "{shown}");
        for inner in ["<Cors/>".to_owned(), metrics.replace("Metrics>", "HourMetrics>"), metrics.repeat(2)] {
            let refused = read(document(&inner).as_bytes(), Layout::Metrics).unwrap_err();
            assert_eq!(refused.code, Code::InvalidXmlDocument, "{inner}");
        }
    }
}
