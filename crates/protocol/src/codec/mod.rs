//! Encodes and decodes entities. This module knows neither SQL nor HTTP.

pub mod atom;
pub mod failure;
pub mod feed;
pub mod json;
pub mod json_object;
pub mod multipart;
pub mod policies;
pub mod properties;
pub mod stored;
pub mod uri;
pub mod validated;
pub mod xml;
