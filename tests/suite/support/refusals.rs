//! Failures of the service: status, code and first line of the message
//! (protocol §14).

/// Status, code, first line.
pub type Refusal = (u16, &'static str, &'static str);

pub const INVALID_INPUT: Refusal = (400, "InvalidInput", "One of the request inputs is not valid.");
pub const NO_CONTENT_TYPE: Refusal = (400, "InvalidInput", "Content-Type header value missing.");
pub const BAD_BODY: Refusal = (400, "InvalidInput", "An error occurred while processing this request.");
pub const QUERY_SYNTAX: Refusal = (400, "InvalidInput", "Bad Request - Error in query syntax.");
pub const BOTH_CONDITIONS: Refusal = (
    400,
    "InvalidInput",
    "Both If-Match and If-None-Match HTTP headers cannot be specified at the same time. Please specify either one of the headers or none of them.",
);
pub const HEADER_VALUE: Refusal =
    (400, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.");
pub const QUERY_VALUE: Refusal = (
    400,
    "InvalidQueryParameterValue",
    "Value for one of the query parameters specified in the request URI is invalid.",
);
pub const BAD_AUTH_HEADER: Refusal = (
    400,
    "InvalidAuthenticationInfo",
    "Authentication information is not given in the correct format. Check the value of Authorization header.",
);
pub const TUNNEL_NOT_POST: Refusal =
    (400, "XMethodNotUsingPost", "The request uses X-HTTP-Method with a Http Verb that is not POST.");
pub const TUNNEL_UNKNOWN: Refusal = (400, "XMethodIncorrectValue", "The specified X-HTTP-Method is invalid.");
pub const TUNNEL_TWICE: Refusal = (400, "XMethodIncorrectCount", "More than one X-HTTP-Method is specified.");
pub const DUPLICATE_PROPERTY: Refusal =
    (400, "DuplicatePropertiesSpecified", "A property is specified more than once.");
pub const DUPLICATE_KEY: Refusal =
    (400, "DuplicateKeyPropertySpecified", "A key property is specified more than once.");
pub const NO_HOST: Refusal = (
    400,
    "HostInformationNotPresent",
    "The required host information is not present in the request. You must send a non-empty Host header or include the absolute URI in the request line.",
);
pub const ENTITY_TOO_LARGE: Refusal =
    (400, "EntityTooLarge", "The entity is larger than the maximum allowed size (1MB).");
pub const NEED_VALUE: Refusal =
    (400, "PropertiesNeedValue", "The values are not specified for all properties in the entity.");
pub const NAME_INVALID: Refusal = (400, "PropertyNameInvalid", "The property name is invalid.");
pub const NAME_TOO_LONG: Refusal =
    (400, "PropertyNameTooLong", "The property name exceeds the maximum allowed length (255).");
pub const VALUE_TOO_LARGE: Refusal = (
    400,
    "PropertyValueTooLarge",
    "The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is UTF-16 encoded and the maximum number of characters should be 32K or less.",
);
pub const TOO_MANY_PROPERTIES: Refusal = (
    400,
    "TooManyProperties",
    "The entity contains more properties than allowed. Each entity can include up to 252 properties to store data. Each entity also has 3 system properties.",
);
pub const OUT_OF_RANGE: Refusal = (400, "OutOfRangeInput", "One of the request inputs is out of range.");
pub const TABLE_NAME_LENGTH: Refusal =
    (400, "OutOfRangeInput", "The specified resource name length is not within the permissible limits.");
pub const TABLE_NAME: Refusal =
    (400, "InvalidResourceName", "The specifed resource name contains invalid characters.");
pub const PARTITIONS_DIFFER: Refusal = (
    400,
    "CommandsInBatchActOnDifferentPartitions",
    "All commands in a batch must operate on same entity group.",
);
pub const DUPLICATE_ROW: Refusal = (
    400,
    "InvalidDuplicateRow",
    "The batch request contains multiple changes with same row key. An entity can appear only once in a batch request.",
);
pub const TOO_MANY_OPERATIONS: Refusal =
    (400, "InvalidInput", "The batch request operation exceeds the maximum 100 changes per change set.");
pub const NO_CREDENTIALS: Refusal = (
    401,
    "NoAuthenticationInformation",
    "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.",
);
pub const TOKEN_REFUSED: Refusal = (
    401,
    "InvalidAuthenticationInfo",
    "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.",
);
pub const NOT_AUTHENTICATED: Refusal = (
    403,
    "AuthenticationFailed",
    "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.",
);
pub const WRITE_ON_SECONDARY: Refusal =
    (403, "InsufficientAccountPermissions", "Write operations are not allowed.");
pub const NOT_FOUND: Refusal = (404, "ResourceNotFound", "The specified resource does not exist.");
pub const NO_TABLE: Refusal = (404, "TableNotFound", "The table specified does not exist.");
pub const METHOD_NOT_ALLOWED: Refusal =
    (405, "MethodNotAllowed", "The requested method is not allowed on the specified resource.");
pub const UNKNOWN_VERB: Refusal =
    (405, "UnsupportedHttpVerb", "The resource doesn't support specified Http Verb.");
pub const TABLE_EXISTS: Refusal = (409, "TableAlreadyExists", "The table specified already exists.");
pub const TABLE_BEING_DELETED: Refusal =
    (409, "TableBeingDeleted", "The specified table is being deleted. Try operation later.");
pub const ENTITY_EXISTS: Refusal = (409, "EntityAlreadyExists", "The specified entity already exists.");
pub const CONDITION_NOT_MET: Refusal =
    (412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.");
pub const CONDITION_FAILED: Refusal =
    (412, "UpdateConditionNotSatisfied", "The update condition specified in the request was not satisfied.");
pub const BODY_TOO_LARGE: Refusal =
    (413, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.");
pub const VERBOSE_JSON: Refusal =
    (415, "JsonVerboseFormatNotSupported", "Verbose JSON format is not supported.");
pub const MEDIA_TYPE: Refusal =
    (415, "MediaTypeNotSupported", "None of the provided media types are supported");
pub const NOT_IMPLEMENTED: Refusal =
    (501, "NotImplemented", "The requested operation is not implemented on the specified resource.");
pub const ATOM_FORMAT: Refusal = (415, "AtomFormatNotSupported", "Atom format is not supported.");
pub const JSON_FORMAT: Refusal = (415, "JsonFormatNotSupported", "JSON format is not supported.");
pub const PERMISSION: Refusal = (
    403,
    "AuthorizationPermissionMismatch",
    "This request is not authorized to perform this operation using this permission.",
);
pub const RESOURCE_TYPE: Refusal = (
    403,
    "AuthorizationResourceTypeMismatch",
    "This request is not authorized to perform this operation using this resource type.",
);
pub const WRONG_SERVICE: Refusal = (
    403,
    "AuthorizationServiceMismatch",
    "This request is not authorized to perform this operation using this service.",
);
pub const WRONG_PROTOCOL: Refusal = (
    403,
    "AuthorizationProtocolMismatch",
    "This request is not authorized to perform this operation using this protocol.",
);
pub const OUTSIDE: Refusal =
    (403, "AuthorizationFailure", "This request is not authorized to perform this operation.");
pub const XML_DOCUMENT: Refusal = (400, "InvalidXmlDocument", "XML specified is not syntactically valid.");
pub const XML_VALUE: Refusal = (
    400,
    "InvalidXmlNodeValue",
    "The value provided for one of the XML nodes in the request body was not in the correct format.",
);
pub const NO_PREFLIGHT: Refusal =
    (403, "CorsPreflightFailure", "CORS not enabled or no matching rule found for this request.");
pub const WRONG_ADDRESS: Refusal = (
    403,
    "AuthorizationSourceIPMismatch",
    "This request is not authorized to perform this operation using this source IP 127.0.0.1.",
);
pub const BUSY: Refusal = (503, "ServerBusy", "The server is busy.");
pub const BODY_TIMED_OUT: Refusal =
    (408, "RequestTimedOut", "The body of the request did not arrive in time.");
pub const TIMED_OUT: Refusal =
    (500, "OperationTimedOut", "Operation could not be completed within the specified time.");
pub const INTERNAL: Refusal =
    (500, "InternalError", "The server encountered an internal error. Please retry the request.");
pub const CORS_HEADER: Refusal = (400, "InvalidHeaderValue", "A required CORS header is not present.");
pub const ACCOUNT_DISABLED: Refusal = (403, "AccountIsDisabled", "The specified account is disabled.");
