//! Entities to bytes and back. Knows neither SQL nor HTTP.

pub mod atom;
pub mod failure;
pub mod feed;
pub mod json;
pub(crate) mod json_object;
pub mod multipart;
pub mod policies;
pub mod properties;
pub(crate) mod property_order;
pub(crate) mod sorted;
pub mod stored;
pub(crate) mod strings;
pub mod uri;
pub mod validated;
pub mod xml;
