//! The arms of a store, their runs pooled, as a table: a row for each of their metrics.

use std::borrow::Cow;

use super::ExportError;
use crate::metrics::Metrics;
use crate::store::{Cell, Column, ColumnKind, Run, Store};
use crate::summary::{ArmSummary, Requests, summarise};

/// Name of the table in an export.
pub const SUMMARY: &str = "summary";

/// The columns of the spread over seeds, one value a run. Metrics of bundles have no spread.
const SPREAD: [&str; 5] = ["least", "p5", "median", "p95", "greatest"];

/// The columns of the table.
pub fn summary_columns() -> Vec<Column> {
    let text = |name| Column::new(name, ColumnKind::Text);
    let mut columns = vec![
        text("plan"),
        text("cell"),
        text("arm"),
        text("backend"),
        Column::new("runs", ColumnKind::Integer),
        text("part"),
        text("name"),
        text("metric"),
        Column::new("value", ColumnKind::Real),
    ];
    let spread =
        SPREAD.map(|name| Column { is_optional: true, ..Column::new(name, ColumnKind::Real) });
    columns.extend(spread);
    columns
}

/// Calls `visit` with every row of the table for `runs` of `store`.
pub fn summary_rows(
    store: &Store,
    runs: &[Run],
    visit: &mut dyn FnMut(&[Cell<'_>]) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    for arm in summarise(&Requests::new(store), runs)? {
        let parts = [("flow", &arm.flows), ("link", &arm.links), ("bundle", &arm.bundles)];
        let parts = parts.into_iter().flat_map(|(part, list)| {
            list.iter().map(move |it| (part, it.name.as_str(), &it.metrics))
        });
        for (part, name, metrics) in std::iter::once(("run", "", &arm.metrics)).chain(parts) {
            part_rows(&arm, part, name, metrics, visit)?;
        }
    }
    Ok(())
}

fn part_rows(
    arm: &ArmSummary,
    part: &str,
    name: &str,
    metrics: &Metrics,
    visit: &mut dyn FnMut(&[Cell<'_>]) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    for (metric, value) in &metrics.0 {
        let address =
            if part == "run" { metric.clone() } else { format!("{part} {name} {metric}") };
        let spread = arm.spread(&address);
        let spread = spread.map(|it| [it.least, it.p5, it.median, it.p95, it.greatest]);
        let head = [&arm.plan, &arm.cell, &arm.arm, &arm.backend].map(|it| text(it));
        let runs = Cell::Integer(arm.runs as i64);
        let place = [runs, text(part), text(name), text(metric), Cell::Real(*value)];
        let spread =
            spread.map_or([const { Cell::Nothing }; SPREAD.len()], |it| it.map(Cell::Real));
        visit(&[&head[..], &place, &spread].concat())?;
    }
    Ok(())
}

fn text(text: &str) -> Cell<'_> {
    Cell::Text(Cow::Borrowed(text))
}
