//! Entities to bytes and back. Knows neither SQL nor HTTP.

pub mod atom;
pub mod failure;
pub mod feed;
pub mod json;
mod members;
pub mod multipart;
pub mod policies;
pub mod properties;
pub mod sent;
pub mod shown;
pub mod sorted;
pub mod stored;
pub mod strings;
pub mod uri;
pub mod xml;
