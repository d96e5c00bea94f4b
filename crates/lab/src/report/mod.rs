//! The report: tables and figures from the store, as one offline HTML file.

pub mod figure;
pub mod page;
