//! What every store has to do, and what PostgreSQL has to do besides.

mod accounts;
mod citus;
mod coalesce;
pub mod contract;
mod databases;
mod deleted;
mod explain;
mod groups;
mod held;
mod indexes;
mod limits;
mod loads;
mod merges;
mod operator_features;
mod ordered;
mod outages;
mod pages;
mod postgres;
mod pushdown;
mod reset;
mod sqlite;
mod statements;
mod tables;
mod threads;
mod turns;
mod values;
mod writes;
