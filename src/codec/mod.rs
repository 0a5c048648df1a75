//! Entities to bytes and back. Knows neither SQL nor HTTP.

pub mod failure;
pub mod json;
pub mod multipart;
pub mod stored;
pub mod uri;
