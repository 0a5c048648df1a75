//! The errors that the service returns to clients (protocol §14).

use std::borrow::Cow;
use std::fmt;

/// An error of the protocol. Several variants share one wire code if Azure distinguishes them only by their
/// message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    // 400, malformed requests
    InvalidInput,
    BodyNotUnderstood,
    ContentTypeMissing,
    FilterSyntax,
    FilterOperandKinds,
    QuerySyntax,
    KeyCountMismatch,
    InvalidEtag,
    BothConditions,
    IfNoneMatchNotAllowed,
    ConditionWithoutEtag,
    TooManyBatchOperations,
    InvalidHeaderValue,
    CorsHeaderMissing,
    InvalidXmlDocument,
    InvalidXmlNodeValue,
    InvalidQueryParameterValue,
    HostInformationNotPresent,
    InvalidAuthenticationInfo,
    XMethodNotUsingPost,
    XMethodIncorrectValue,
    XMethodIncorrectCount,
    // 400, entities and names
    DuplicatePropertiesSpecified,
    DuplicateKeyPropertySpecified,
    EntityTooLarge,
    PropertiesNeedValue,
    PropertyNameInvalid,
    PropertyNameTooLong,
    PropertyValueTooLarge,
    TooManyProperties,
    OutOfRangeInput,
    UrlKeyOutOfRange,
    NameLengthOutOfRange,
    InvalidResourceName,
    CommandsInBatchActOnDifferentPartitions,
    InvalidDuplicateRow,
    // 401, 403
    NoCredentials,
    TokenRefused,
    AccountIsDisabled,
    AuthenticationFailed,
    AuthorizationFailure,
    AuthorizationPermissionMismatch,
    AuthorizationResourceTypeMismatch,
    AuthorizationServiceMismatch,
    AuthorizationProtocolMismatch,
    AuthorizationSourceIpMismatch,
    CorsPreflightFailure,
    WriteOnSecondary,
    // 404 and above
    ResourceNotFound,
    TableNotFound,
    MethodNotAllowed,
    UnsupportedHttpVerb,
    RequestTimedOut,
    TableAlreadyExists,
    TableBeingDeleted,
    EntityAlreadyExists,
    UpdateConditionNotSatisfied,
    ConditionNotMet,
    RequestBodyTooLarge,
    AtomFormatNotSupported,
    JsonFormatNotSupported,
    JsonVerboseFormatNotSupported,
    MediaTypeNotSupported,
    // 5xx
    InternalError,
    OperationTimedOut,
    NotImplemented,
    ServerBusy,
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
    pub const COUNT: usize = Code::ServerBusy as usize + 1;

    /// All codes, each at the index of its discriminant.
    pub const ALL: [Self; Self::COUNT] = [
        Code::InvalidInput,
        Code::BodyNotUnderstood,
        Code::ContentTypeMissing,
        Code::FilterSyntax,
        Code::FilterOperandKinds,
        Code::QuerySyntax,
        Code::KeyCountMismatch,
        Code::InvalidEtag,
        Code::BothConditions,
        Code::IfNoneMatchNotAllowed,
        Code::ConditionWithoutEtag,
        Code::TooManyBatchOperations,
        Code::InvalidHeaderValue,
        Code::CorsHeaderMissing,
        Code::InvalidXmlDocument,
        Code::InvalidXmlNodeValue,
        Code::InvalidQueryParameterValue,
        Code::HostInformationNotPresent,
        Code::InvalidAuthenticationInfo,
        Code::XMethodNotUsingPost,
        Code::XMethodIncorrectValue,
        Code::XMethodIncorrectCount,
        Code::DuplicatePropertiesSpecified,
        Code::DuplicateKeyPropertySpecified,
        Code::EntityTooLarge,
        Code::PropertiesNeedValue,
        Code::PropertyNameInvalid,
        Code::PropertyNameTooLong,
        Code::PropertyValueTooLarge,
        Code::TooManyProperties,
        Code::OutOfRangeInput,
        Code::UrlKeyOutOfRange,
        Code::NameLengthOutOfRange,
        Code::InvalidResourceName,
        Code::CommandsInBatchActOnDifferentPartitions,
        Code::InvalidDuplicateRow,
        Code::NoCredentials,
        Code::TokenRefused,
        Code::AccountIsDisabled,
        Code::AuthenticationFailed,
        Code::AuthorizationFailure,
        Code::AuthorizationPermissionMismatch,
        Code::AuthorizationResourceTypeMismatch,
        Code::AuthorizationServiceMismatch,
        Code::AuthorizationProtocolMismatch,
        Code::AuthorizationSourceIpMismatch,
        Code::CorsPreflightFailure,
        Code::WriteOnSecondary,
        Code::ResourceNotFound,
        Code::TableNotFound,
        Code::MethodNotAllowed,
        Code::UnsupportedHttpVerb,
        Code::RequestTimedOut,
        Code::TableAlreadyExists,
        Code::TableBeingDeleted,
        Code::EntityAlreadyExists,
        Code::UpdateConditionNotSatisfied,
        Code::ConditionNotMet,
        Code::RequestBodyTooLarge,
        Code::AtomFormatNotSupported,
        Code::JsonFormatNotSupported,
        Code::JsonVerboseFormatNotSupported,
        Code::MediaTypeNotSupported,
        Code::InternalError,
        Code::OperationTimedOut,
        Code::NotImplemented,
        Code::ServerBusy,
    ];

    /// Returns status, code and default message (protocol §14; messages as recorded from Azure, including the
    /// misspelling in `InvalidResourceName`).
    #[rustfmt::skip]
    pub const fn facts(self) -> ErrorFacts {
        let (status, code, message) = match self {
            Code::InvalidInput => (400, "InvalidInput", "One of the request inputs is not valid."),
            Code::BodyNotUnderstood => (400, "InvalidInput", "An error occurred while processing this request."),
            Code::ContentTypeMissing => (400, "InvalidInput", "Content-Type header value missing."),
            Code::FilterSyntax => (400, "InvalidInput", "Syntax error in '$filter'."),
            Code::FilterOperandKinds => (400, "InvalidInput", "A binary operator with incompatible types was detected."),
            Code::QuerySyntax => (400, "InvalidInput", "Bad Request - Error in query syntax."),
            Code::KeyCountMismatch => (400, "InvalidInput", "The number of keys specified in the URI does not match number of key properties for the resource."),
            Code::InvalidEtag => (400, "InvalidInput", "The etag value specified in one of the request headers is not valid. Please make sure only one etag value is specified and is valid."),
            Code::BothConditions => (400, "InvalidInput", "Both If-Match and If-None-Match HTTP headers cannot be specified at the same time. Please specify either one of the headers or none of them."),
            Code::IfNoneMatchNotAllowed => (400, "InvalidInput", "If-None-Match HTTP header cannot be specified for this operation."),
            Code::ConditionWithoutEtag => (400, "InvalidInput", "If-Match or If-None-Match headers cannot be specified if the target type does not have etag properties defined."),
            Code::TooManyBatchOperations => (400, "InvalidInput", "The batch request operation exceeds the maximum 100 changes per change set."),
            Code::InvalidHeaderValue => (400, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format."),
            Code::CorsHeaderMissing => (400, "InvalidHeaderValue", "A required CORS header is not present."),
            Code::InvalidXmlDocument => (400, "InvalidXmlDocument", "XML specified is not syntactically valid."),
            Code::InvalidXmlNodeValue => (400, "InvalidXmlNodeValue", "The value provided for one of the XML nodes in the request body was not in the correct format."),
            Code::InvalidQueryParameterValue => (400, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request URI is invalid."),
            Code::HostInformationNotPresent => (400, "HostInformationNotPresent", "The required host information is not present in the request. You must send a non-empty Host header or include the absolute URI in the request line."),
            Code::InvalidAuthenticationInfo => (400, "InvalidAuthenticationInfo", "Authentication information is not given in the correct format. Check the value of Authorization header."),
            Code::XMethodNotUsingPost => (400, "XMethodNotUsingPost", "The request uses X-HTTP-Method with a Http Verb that is not POST."),
            Code::XMethodIncorrectValue => (400, "XMethodIncorrectValue", "The specified X-HTTP-Method is invalid."),
            Code::XMethodIncorrectCount => (400, "XMethodIncorrectCount", "More than one X-HTTP-Method is specified."),
            Code::DuplicatePropertiesSpecified => (400, "DuplicatePropertiesSpecified", "A property is specified more than once."),
            Code::DuplicateKeyPropertySpecified => (400, "DuplicateKeyPropertySpecified", "A key property is specified more than once."),
            Code::EntityTooLarge => (400, "EntityTooLarge", "The entity is larger than the maximum allowed size (1MB)."),
            Code::PropertiesNeedValue => (400, "PropertiesNeedValue", "The values are not specified for all properties in the entity."),
            Code::PropertyNameInvalid => (400, "PropertyNameInvalid", "The property name is invalid."),
            Code::PropertyNameTooLong => (400, "PropertyNameTooLong", "The property name exceeds the maximum allowed length (255)."),
            Code::PropertyValueTooLarge => (400, "PropertyValueTooLarge", "The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is UTF-16 encoded and the maximum number of characters should be 32K or less."),
            Code::TooManyProperties => (400, "TooManyProperties", "The entity contains more properties than allowed. Each entity can include up to 252 properties to store data. Each entity also has 3 system properties."),
            Code::OutOfRangeInput | Code::UrlKeyOutOfRange => (400, "OutOfRangeInput", "One of the request inputs is out of range."),
            Code::NameLengthOutOfRange => (400, "OutOfRangeInput", "The specified resource name length is not within the permissible limits."),
            Code::InvalidResourceName => (400, "InvalidResourceName", "The specifed resource name contains invalid characters."),
            Code::CommandsInBatchActOnDifferentPartitions => (400, "CommandsInBatchActOnDifferentPartitions", "All commands in a batch must operate on same entity group."),
            Code::InvalidDuplicateRow => (400, "InvalidDuplicateRow", "The batch request contains multiple changes with same row key. An entity can appear only once in a batch request."),
            Code::AccountIsDisabled => (403, "AccountIsDisabled", "The specified account is disabled."),
            Code::NoCredentials => (401, "NoAuthenticationInformation", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."),
            Code::TokenRefused => (401, "InvalidAuthenticationInfo", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."),
            Code::AuthenticationFailed => (403, "AuthenticationFailed", "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature."),
            Code::AuthorizationFailure => (403, "AuthorizationFailure", "This request is not authorized to perform this operation."),
            Code::AuthorizationPermissionMismatch => (403, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation using this permission."),
            Code::AuthorizationResourceTypeMismatch => (403, "AuthorizationResourceTypeMismatch", "This request is not authorized to perform this operation using this resource type."),
            Code::AuthorizationServiceMismatch => (403, "AuthorizationServiceMismatch", "This request is not authorized to perform this operation using this service."),
            Code::AuthorizationProtocolMismatch => (403, "AuthorizationProtocolMismatch", "This request is not authorized to perform this operation using this protocol."),
            Code::AuthorizationSourceIpMismatch => (403, "AuthorizationSourceIPMismatch", "This request is not authorized to perform this operation using this source IP."),
            Code::CorsPreflightFailure => (403, "CorsPreflightFailure", "CORS not enabled or no matching rule found for this request."),
            Code::WriteOnSecondary => (403, "InsufficientAccountPermissions", "Write operations are not allowed."),
            Code::ResourceNotFound => (404, "ResourceNotFound", "The specified resource does not exist."),
            Code::TableNotFound => (404, "TableNotFound", "The table specified does not exist."),
            Code::MethodNotAllowed => (405, "MethodNotAllowed", "The requested method is not allowed on the specified resource."),
            Code::UnsupportedHttpVerb => (405, "UnsupportedHttpVerb", "The resource doesn't support specified Http Verb."),
            Code::RequestTimedOut => (408, "RequestTimedOut", "The body of the request did not arrive in time."),
            Code::TableAlreadyExists => (409, "TableAlreadyExists", "The table specified already exists."),
            Code::TableBeingDeleted => (409, "TableBeingDeleted", "The specified table is being deleted. Try operation later."),
            Code::EntityAlreadyExists => (409, "EntityAlreadyExists", "The specified entity already exists."),
            Code::UpdateConditionNotSatisfied => (412, "UpdateConditionNotSatisfied", "The update condition specified in the request was not satisfied."),
            Code::ConditionNotMet => (412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met."),
            Code::RequestBodyTooLarge => (413, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit."),
            Code::AtomFormatNotSupported => (415, "AtomFormatNotSupported", "Atom format is not supported."),
            Code::JsonFormatNotSupported => (415, "JsonFormatNotSupported", "JSON format is not supported."),
            Code::JsonVerboseFormatNotSupported => (415, "JsonVerboseFormatNotSupported", "Verbose JSON format is not supported."),
            Code::MediaTypeNotSupported => (415, "MediaTypeNotSupported", "None of the provided media types are supported"),
            Code::InternalError => (500, "InternalError", "The server encountered an internal error. Please retry the request."),
            Code::OperationTimedOut => (500, "OperationTimedOut", "Operation could not be completed within the specified time."),
            Code::NotImplemented => (501, "NotImplemented", "The requested operation is not implemented on the specified resource."),
            Code::ServerBusy => (503, "ServerBusy", "The server is busy."),
        };
        ErrorFacts { status, code, message }
    }

    /// Returns whether a change set with a single operation reports this error without an index prefix. Errors that
    /// depend on stored data have none (protocol §8.4), nor, as seen in Azure, does a value that is too large.
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
    /// The exact reason, for the log if the operator has enabled it. Never sent to clients, because it could
    /// help attackers.
    pub reason: Option<Box<str>>,
}

/// The result of every stage of the pipeline.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error with a message that replaces the default of its code.
    pub fn with_message(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: Some(message.into()), index: None, reason: None }
    }

    /// Attributes the error to one operation of a change set.
    pub fn at(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    /// Adds the exact reason.
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
