//! The errors that Rowhouse returns to clients (protocol §14).

use std::borrow::Cow;
use std::fmt;

macro_rules! codes {
    ($($variant:ident: $status:literal, $code:literal, $message:literal;)*) => {
        /// An error of the protocol. Several variants share one wire code if Azure distinguishes them only by their
        /// message.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($variant,)*
        }

        impl Code {
            /// All codes, each at the index of its discriminant.
            pub const ALL: [Self; Self::COUNT] = [$(Code::$variant,)*];
            pub const COUNT: usize = [$(Code::$variant,)*].len();

            /// Returns status, code and default message.
            pub const fn facts(self) -> ErrorFacts {
                match self {
                    $(Code::$variant => ErrorFacts { status: $status, code: $code, message: $message },)*
                }
            }
        }
    };
}

// Status, code and default message (protocol §14; messages as recorded from Azure, including the misspelling in
// `InvalidResourceName`).
codes! {
    // 400, malformed requests
    InvalidInput: 400, "InvalidInput", "One of the request inputs is not valid.";
    BodyNotUnderstood: 400, "InvalidInput", "An error occurred while processing this request.";
    ContentTypeMissing: 400, "InvalidInput", "Content-Type header value missing.";
    FilterSyntax: 400, "InvalidInput", "Syntax error in '$filter'.";
    FilterOperandKinds: 400, "InvalidInput", "A binary operator with incompatible types was detected.";
    QuerySyntax: 400, "InvalidInput", "Bad Request - Error in query syntax.";
    KeyCountMismatch: 400, "InvalidInput", "The number of keys specified in the URI does not match number of key properties for the resource.";
    InvalidEtag: 400, "InvalidInput", "The etag value specified in one of the request headers is not valid. Please make sure only one etag value is specified and is valid.";
    BothConditions: 400, "InvalidInput", "Both If-Match and If-None-Match HTTP headers cannot be specified at the same time. Please specify either one of the headers or none of them.";
    IfNoneMatchNotAllowed: 400, "InvalidInput", "If-None-Match HTTP header cannot be specified for this operation.";
    ConditionWithoutEtag: 400, "InvalidInput", "If-Match or If-None-Match headers cannot be specified if the target type does not have etag properties defined.";
    TooManyBatchOperations: 400, "InvalidInput", "The batch request operation exceeds the maximum 100 changes per change set.";
    InvalidHeaderValue: 400, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.";
    CorsHeaderMissing: 400, "InvalidHeaderValue", "A required CORS header is not present.";
    InvalidXmlDocument: 400, "InvalidXmlDocument", "XML specified is not syntactically valid.";
    InvalidXmlNodeValue: 400, "InvalidXmlNodeValue", "The value provided for one of the XML nodes in the request body was not in the correct format.";
    InvalidQueryParameterValue: 400, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request URI is invalid.";
    HostInformationNotPresent: 400, "HostInformationNotPresent", "The required host information is not present in the request. You must send a non-empty Host header or include the absolute URI in the request line.";
    InvalidAuthenticationInfo: 400, "InvalidAuthenticationInfo", "Authentication information is not given in the correct format. Check the value of Authorization header.";
    XMethodNotUsingPost: 400, "XMethodNotUsingPost", "The request uses X-HTTP-Method with a Http Verb that is not POST.";
    XMethodIncorrectValue: 400, "XMethodIncorrectValue", "The specified X-HTTP-Method is invalid.";
    XMethodIncorrectCount: 400, "XMethodIncorrectCount", "More than one X-HTTP-Method is specified.";
    // 400, entities and names
    DuplicatePropertiesSpecified: 400, "DuplicatePropertiesSpecified", "A property is specified more than once.";
    DuplicateKeyPropertySpecified: 400, "DuplicateKeyPropertySpecified", "A key property is specified more than once.";
    EntityTooLarge: 400, "EntityTooLarge", "The entity is larger than the maximum allowed size (1MB).";
    PropertiesNeedValue: 400, "PropertiesNeedValue", "The values are not specified for all properties in the entity.";
    PropertyNameInvalid: 400, "PropertyNameInvalid", "The property name is invalid.";
    PropertyNameTooLong: 400, "PropertyNameTooLong", "The property name exceeds the maximum allowed length (255).";
    PropertyValueTooLarge: 400, "PropertyValueTooLarge", "The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is UTF-16 encoded and the maximum number of characters should be 32K or less.";
    TooManyProperties: 400, "TooManyProperties", "The entity contains more properties than allowed. Each entity can include up to 252 properties to store data. Each entity also has 3 system properties.";
    OutOfRangeInput: 400, "OutOfRangeInput", "One of the request inputs is out of range.";
    UrlKeyOutOfRange: 400, "OutOfRangeInput", "One of the request inputs is out of range.";
    NameLengthOutOfRange: 400, "OutOfRangeInput", "The specified resource name length is not within the permissible limits.";
    InvalidResourceName: 400, "InvalidResourceName", "The specifed resource name contains invalid characters.";
    CommandsInBatchActOnDifferentPartitions: 400, "CommandsInBatchActOnDifferentPartitions", "All commands in a batch must operate on same entity group.";
    InvalidDuplicateRow: 400, "InvalidDuplicateRow", "The batch request contains multiple changes with same row key. An entity can appear only once in a batch request.";
    // 401, 403
    NoCredentials: 401, "NoAuthenticationInformation", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.";
    TokenRefused: 401, "InvalidAuthenticationInfo", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.";
    AccountIsDisabled: 403, "AccountIsDisabled", "The specified account is disabled.";
    AuthenticationFailed: 403, "AuthenticationFailed", "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.";
    AuthorizationFailure: 403, "AuthorizationFailure", "This request is not authorized to perform this operation.";
    AuthorizationPermissionMismatch: 403, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation using this permission.";
    AuthorizationResourceTypeMismatch: 403, "AuthorizationResourceTypeMismatch", "This request is not authorized to perform this operation using this resource type.";
    AuthorizationServiceMismatch: 403, "AuthorizationServiceMismatch", "This request is not authorized to perform this operation using this service.";
    AuthorizationProtocolMismatch: 403, "AuthorizationProtocolMismatch", "This request is not authorized to perform this operation using this protocol.";
    AuthorizationSourceIpMismatch: 403, "AuthorizationSourceIPMismatch", "This request is not authorized to perform this operation using this source IP.";
    CorsPreflightFailure: 403, "CorsPreflightFailure", "CORS not enabled or no matching rule found for this request.";
    WriteOnSecondary: 403, "InsufficientAccountPermissions", "Write operations are not allowed.";
    // 404 and above
    ResourceNotFound: 404, "ResourceNotFound", "The specified resource does not exist.";
    TableNotFound: 404, "TableNotFound", "The table specified does not exist.";
    MethodNotAllowed: 405, "MethodNotAllowed", "The requested method is not allowed on the specified resource.";
    UnsupportedHttpVerb: 405, "UnsupportedHttpVerb", "The resource doesn't support specified Http Verb.";
    RequestTimedOut: 408, "RequestTimedOut", "The body of the request did not arrive in time.";
    TableAlreadyExists: 409, "TableAlreadyExists", "The table specified already exists.";
    TableBeingDeleted: 409, "TableBeingDeleted", "The specified table is being deleted. Try operation later.";
    EntityAlreadyExists: 409, "EntityAlreadyExists", "The specified entity already exists.";
    UpdateConditionNotSatisfied: 412, "UpdateConditionNotSatisfied", "The update condition specified in the request was not satisfied.";
    ConditionNotMet: 412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.";
    RequestBodyTooLarge: 413, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.";
    AtomFormatNotSupported: 415, "AtomFormatNotSupported", "Atom format is not supported.";
    JsonFormatNotSupported: 415, "JsonFormatNotSupported", "JSON format is not supported.";
    JsonVerboseFormatNotSupported: 415, "JsonVerboseFormatNotSupported", "Verbose JSON format is not supported.";
    MediaTypeNotSupported: 415, "MediaTypeNotSupported", "None of the provided media types are supported";
    // 5xx
    InternalError: 500, "InternalError", "The server encountered an internal error. Please retry the request.";
    OperationTimedOut: 500, "OperationTimedOut", "Operation could not be completed within the specified time.";
    NotImplemented: 501, "NotImplemented", "The requested operation is not implemented on the specified resource.";
    ServerBusy: 503, "ServerBusy", "The server is busy.";
}

/// The wire representation of a [`Code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorFacts {
    /// HTTP status.
    pub status: u16,
    /// The error code that programs read.
    pub code: &'static str,
    /// The first line of the message, unless the error has its own message.
    pub message: &'static str,
}

impl Code {
    /// Returns whether a change set with a single operation reports this error without an index prefix: an error that
    /// depends on stored data (protocol §8.4) or, as seen in Azure, on a value that is too large.
    pub const fn is_unnumbered_alone(self) -> bool {
        matches!(
            self,
            Code::PropertyValueTooLarge
                | Code::EntityAlreadyExists
                | Code::UpdateConditionNotSatisfied
                | Code::ConditionNotMet
                | Code::ResourceNotFound
        )
    }
}

/// An error on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub code: Code,
    /// A message that replaces the default one.
    pub message: Option<Cow<'static, str>>,
    /// Index of the failed operation in its change set.
    pub index: Option<usize>,
    /// The exact reason, for the log. It is never sent to clients, because it could help attackers.
    pub reason: Option<Box<str>>,
}

/// The result of every stage of the pipeline.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error with a message that replaces the default of its code.
    pub fn with_message(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: Some(message.into()), index: None, reason: None }
    }

    /// Attributes the error to one operation of a change set.
    pub fn at(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    pub fn with_reason(mut self, reason: impl Into<Box<str>>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Returns the first line of the message to the client, without the index prefix.
    pub fn text(&self) -> &str {
        match &self.message {
            Some(text) => text,
            None => self.code.facts().message,
        }
    }

    /// Returns the exact reason, or the text if none was given.
    pub fn reason_or_text(&self) -> &str {
        self.reason.as_deref().unwrap_or(self.text())
    }
}

impl From<Code> for Error {
    fn from(code: Code) -> Self {
        Self { code, message: None, index: None, reason: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.facts().code, self.text())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_at_its_number() {
        assert!(Code::ALL.iter().enumerate().all(|(at, code)| *code as usize == at));
    }
}
