//! Error bodies (protocol §4.7).

use super::json_object::push_string;
use super::xml::escaped;
use crate::error::Error;
use crate::model::Ticks;

/// The inputs of an error body in addition to the error.
#[derive(Debug, Clone, Copy)]
pub struct ErrorContext<'a> {
    pub request_id: &'a str,
    pub now: Ticks,
}

/// Returns the message for clients, with the index of the operation, the request id and the time.
fn message(error: &Error, context: &ErrorContext<'_>) -> String {
    let prefix = error.index.map(|i| format!("{i}:")).unwrap_or_default();
    format!(
        "{prefix}{}\nRequestId:{}\nTime:{}",
        error.text(),
        context.request_id,
        context.now.to_seven_digits()
    )
}

/// Prints `{"odata.error":…}`, which is the same at every metadata level.
pub fn json(error: &Error, context: &ErrorContext<'_>) -> String {
    let mut out = String::with_capacity(256);
    out.push_str("{\"odata.error\":{\"code\":");
    push_string(&mut out, error.code.facts().code);
    out.push_str(",\"message\":{\"lang\":\"en-US\",\"value\":");
    push_string(&mut out, &message(error, context));
    out.push_str("}}}");
    out
}

/// Prints `<m:error>`, the body of failed authentication and of XML operations.
pub fn xml(error: &Error, context: &ErrorContext<'_>) -> String {
    let text = message(error, context);
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><m:error \
         xmlns:m=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\"><m:code>{}</m:code>\
         <m:message xml:lang=\"en-US\">{}</m:message></m:error>",
        error.code.facts().code,
        escaped(&text),
    )
}

/// Prints `<error>`, the body of table-layer errors in XML since 2013-08-15.
pub fn table_xml(error: &Error, context: &ErrorContext<'_>) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><error \
         xmlns=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\"><code>{}</code>\
         <message xml:lang=\"en-US\">{}</message></error>",
        error.code.facts().code,
        escaped(&message(error, context)),
    )
}

/// Prints `<error>` on several lines, the body with which the front end refuses versions.
pub fn front_end_xml(error: &Error, context: &ErrorContext<'_>) -> String {
    format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?>\r\n<error \
         xmlns=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\">\r\n  <code>{}</code>\r\n  \
         <message xml:lang=\"en-US\">{}</message>\r\n</error>",
        error.code.facts().code,
        escaped(&message(error, context)),
    )
}

/// Prints `<error>` with the message alone, the body of errors in Atom before 2013-08-15.
pub fn atom(error: &Error) -> String {
    let prefix = error.index.map(|i| format!("{i}:")).unwrap_or_default();
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?><error \
         xmlns=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\"><code>{}</code>\
         <message xml:lang=\"en-US\">{prefix}{}</message></error>",
        error.code.facts().code,
        escaped(error.text()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn control_characters_leave_xml_well_formed() {
        let now = Ticks::parse("2017-08-30T13:20:10.5Z").unwrap();
        let error = Error::with_message(Code::FilterSyntax, "\u{1}\r<");
        for document in [xml(&error, &ErrorContext { request_id: "id", now }), atom(&error)] {
            assert!(document.contains("&#x1;&#xD;&lt;"), "{document}");
        }
    }

    #[test]
    fn bodies_look_as_recorded() {
        let now = Ticks::parse("2017-08-30T13:20:10.5Z").unwrap();
        let context = ErrorContext { request_id: "id", now };
        let error = Error::from(Code::EntityAlreadyExists).at(2);
        assert_eq!(
            json(&error, &context),
            "{\"odata.error\":{\"code\":\"EntityAlreadyExists\",\"message\":{\"lang\":\"en-US\",\"value\":\
             \"2:The specified entity already exists.\\nRequestId:id\\nTime:2017-08-30T13:20:10.5000000Z\"}}}"
        );
        let error = Error::with_message(Code::FilterSyntax, "Syntax error at position 1 in '<&'.");
        assert_eq!(
            xml(&error, &context),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><m:error \
             xmlns:m=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\">\
             <m:code>InvalidInput</m:code><m:message xml:lang=\"en-US\">Syntax error at position 1 in '&lt;&amp;'.\n\
             RequestId:id\nTime:2017-08-30T13:20:10.5000000Z</m:message></m:error>"
        );
    }
}
