//! Reading runs back.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Row, params};
use serde_json::Value;

use super::{RunKey, Store, StoreError, samples};
use crate::metrics::{Address, Metrics, Outcome, Part, Transition};
use crate::plan::figures::{Figure, defaults};
use crate::plan::references::References;

/// A stored run without its requests and samples.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Row in the store.
    pub id: i64,
    /// Key of the run.
    pub key: RunKey,
    /// Commit of the program.
    pub commit: String,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Why the run is not valid; empty: valid.
    pub invalid: Vec<String>,
    /// Every key of the plan as resolved.
    pub parameters: BTreeMap<String, String>,
    /// The machine and every wall-clock figure.
    pub host: Value,
    /// Metrics of the whole run.
    pub metrics: Metrics,
    /// Metrics of its flows.
    pub flows: Vec<Part>,
    /// Metrics of its links.
    pub links: Vec<Part>,
    /// Metrics of its bundles.
    pub bundles: Vec<Part>,
    /// Kernel congestion control and bundle of each flow, by name.
    pub flow_kinds: BTreeMap<String, (String, Option<String>)>,
}

impl Run {
    /// Whether it may be used.
    pub fn is_valid(&self) -> bool {
        self.invalid.is_empty()
    }

    /// The metric at `address`; for several parts, their mean.
    pub fn get(&self, address: &Address) -> Option<f64> {
        address.find(&self.metrics, [&self.flows, &self.links, &self.bundles])
    }

    /// The box that died during the run, and how. Such a run is valid, and counts against the box.
    pub fn died(&self) -> Option<&str> {
        self.host["died"].as_str()
    }
}

/// An attempt at a run in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Row in the store.
    pub id: i64,
    /// The run is valid.
    pub valid: bool,
    /// The harness could not make the run at all.
    pub failed: bool,
}

/// Arms with their summaries.
type Arms = Vec<(String, String)>;

/// The column `arms` of the table `plans`.
fn read_arms(text: &str) -> Result<(Arms, References, Option<String>), StoreError> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Column {
        Arms(Arms),
        Named { arms: Arms, references: References, command: Option<String> },
    }
    Ok(match serde_json::from_str(text)? {
        Column::Arms(arms) => (arms, References::default(), None),
        Column::Named { arms, references, command } => (arms, references, command),
    })
}

/// Identifies a request across runs: flow, and place in the schedule.
pub type RequestKey = (String, u32);

impl Store {
    /// All attempts at the run of this key, oldest first.
    pub fn attempts(&self, key: &RunKey) -> Result<Vec<Attempt>, StoreError> {
        let mut query = self.connection.prepare_cached(
            "SELECT id, valid, json_extract(host, '$.failed') IS NOT NULL FROM runs \
             WHERE plan = ?1 AND arm = ?2 AND cell = ?3 AND seed = ?4 \
             AND backend = ?5 AND sources = ?6 AND experiment_sha256 = ?7 ORDER BY id",
        )?;
        let rows = query.query_map(
            params![
                key.plan,
                key.arm,
                key.cell,
                key.seed as i64,
                key.backend,
                key.sources,
                key.experiment_sha256
            ],
            |row| Ok(Attempt { id: row.get(0)?, valid: row.get(1)?, failed: row.get(2)? }),
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The ids of all runs, oldest first.
    pub fn run_ids(&self) -> Result<Vec<i64>, StoreError> {
        let mut query = self.connection.prepare("SELECT id FROM runs ORDER BY id")?;
        let rows = query.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The machine in the last trial of costs that differs from `key` in its seed alone; null without such a trial.
    pub fn last_host(&self, key: &RunKey) -> Result<Value, StoreError> {
        let mut query = self.connection.prepare_cached(
            "SELECT host FROM runs WHERE plan = ?1 AND arm = ?2 AND cell = ?3 AND backend = ?4 \
             AND sources = ?5 AND experiment_sha256 = ?6 AND json_extract(host, '$.cost') IS NOT NULL \
             ORDER BY id DESC LIMIT 1",
        )?;
        let RunKey { plan, arm, cell, backend, sources, experiment_sha256, .. } = key;
        let key = params![plan, arm, cell, backend, sources, experiment_sha256];
        let host: Option<String> = query.query_row(key, |row| row.get(0)).optional()?;
        Ok(host.map(|host| serde_json::from_str(&host)).transpose()?.unwrap_or_default())
    }

    /// Duration of a run of `plan` on `backend` (s): the mean of the valid ones.
    pub fn wall_s(&self, plan: &str, backend: &str) -> Result<Option<f64>, StoreError> {
        let mean = "SELECT avg(json_extract(host, '$.wall_s')) FROM runs \
                    WHERE plan = ?1 AND backend = ?2 AND valid";
        Ok(self.connection.query_row(mean, [plan, backend], |row| row.get(0))?)
    }

    /// The names of the plans that have runs, in the order of their first run.
    pub fn plan_names(&self) -> Result<Vec<String>, StoreError> {
        let mut query =
            self.connection.prepare("SELECT plan FROM runs GROUP BY plan ORDER BY min(id)")?;
        let rows = query.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Title, description and arms with their summaries of a plan.
    pub fn plan(&self, name: &str) -> Result<Option<(String, String, Arms)>, StoreError> {
        let row: Option<(String, String, String)> = self
            .connection
            .query_row(
                "SELECT title, description, arms FROM plans WHERE name = ?1",
                [name],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()?;
        row.map(|(title, description, arms)| Ok((title, description, read_arms(&arms)?.0)))
            .transpose()
    }

    /// The reference arms that a plan names.
    pub fn references(&self, plan: &str) -> Result<References, StoreError> {
        Ok(self.arms(plan)?.1)
    }

    /// The command that ran a plan, without back end and seeds; `None` in stores of older versions.
    pub fn command(&self, plan: &str) -> Result<Option<String>, StoreError> {
        Ok(self.arms(plan)?.2)
    }

    fn arms(&self, plan: &str) -> Result<(Arms, References, Option<String>), StoreError> {
        let select = "SELECT arms FROM plans WHERE name = ?1";
        let arms: Option<String> =
            self.connection.query_row(select, [plan], |row| row.get(0)).optional()?;
        Ok(arms.map(|arms| read_arms(&arms)).transpose()?.unwrap_or_default())
    }

    /// The figures for the report of a plan; the default ones if the store has none.
    pub fn figures(&self, plan: &str) -> Result<Vec<Figure>, StoreError> {
        let mut query = self.connection.prepare("SELECT figures FROM figures WHERE plan = ?1")?;
        let text: Option<String> = query.query_row([plan], |row| row.get(0)).optional()?;
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?.unwrap_or_else(defaults))
    }

    /// The run `id`.
    pub fn run(&self, id: i64) -> Result<Run, StoreError> {
        let mut run = self.head(id)?;
        let mut query = self
            .connection
            .prepare_cached("SELECT part, name, metric, value FROM metrics WHERE run = ?1")?;
        let rows = query
            .query_map([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        for row in rows {
            let (part, name, metric, value): (String, String, String, f64) = row?;
            let list = match part.as_str() {
                "flow" => &mut run.flows,
                "link" => &mut run.links,
                "bundle" => &mut run.bundles,
                _ => {
                    run.metrics.0.insert(metric, value);
                    continue;
                }
            };
            match list.iter_mut().find(|part| part.name == name) {
                Some(part) => drop(part.metrics.0.insert(metric, value)),
                None => {
                    let metrics = Metrics(BTreeMap::from([(metric, value)]));
                    list.push(Part { name, metrics });
                }
            }
        }
        let mut query =
            self.connection.prepare_cached("SELECT name, cc, bundle FROM flows WHERE run = ?1")?;
        let rows = query.query_map([id], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
        run.flow_kinds = rows.collect::<Result<_, _>>()?;
        Ok(run)
    }

    fn head(&self, id: i64) -> Result<Run, StoreError> {
        let mut query = self.connection.prepare_cached(
            "SELECT plan, arm, cell, seed, backend, sources, experiment_sha256, \"commit\", attempt, \
             reasons, parameters, host FROM runs WHERE id = ?1",
        )?;
        let text = |row: &Row<'_>, index| row.get::<_, String>(index);
        let (key, commit, attempt, json) = query.query_row([id], |row| {
            let key = RunKey {
                plan: row.get(0)?,
                arm: row.get(1)?,
                cell: row.get(2)?,
                seed: row.get::<_, i64>(3)? as u64,
                backend: row.get(4)?,
                sources: row.get(5)?,
                experiment_sha256: row.get(6)?,
            };
            let json = [text(row, 9)?, text(row, 10)?, text(row, 11)?];
            Ok((key, row.get(7)?, row.get(8)?, json))
        })?;
        let [reasons, parameters, host] = &json;
        Ok(Run {
            id,
            key,
            commit,
            attempt,
            invalid: serde_json::from_str(reasons)?,
            parameters: serde_json::from_str(parameters)?,
            host: serde_json::from_str(host)?,
            metrics: Metrics::default(),
            flows: Vec::new(),
            links: Vec::new(),
            bundles: Vec::new(),
            flow_kinds: BTreeMap::new(),
        })
    }

    /// The counted requests of a run with their outcomes.
    pub fn outcomes(&self, id: i64) -> Result<Vec<(RequestKey, Outcome)>, StoreError> {
        let mut query = self.connection.prepare_cached(
            "SELECT flow, number, size_bytes, fct_ms, slowdown, queued_behind, finished_ns \
             FROM requests WHERE run = ?1 AND counted ORDER BY flow, number",
        )?;
        let rows = query.query_map([id], |row| {
            let outcome = Outcome {
                size_bytes: row.get::<_, i64>(2)? as u64,
                fct_ms: row.get(3)?,
                slowdown: row.get(4)?,
                queued_behind: row.get(5)?,
                finished: row.get::<_, Option<i64>>(6)?.is_some(),
            };
            Ok(((row.get(0)?, row.get(1)?), outcome))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// One quantity over time; empty if the run has no such quantity.
    pub fn series(
        &self,
        id: i64,
        part: &str,
        name: &str,
        quantity: &str,
    ) -> Result<Vec<(f64, f64)>, StoreError> {
        let mut query = self.connection.prepare_cached(
            "SELECT samples FROM series \
             WHERE run = ?1 AND part = ?2 AND name = ?3 AND quantity = ?4",
        )?;
        let packed: Option<Vec<u8>> =
            query.query_row(params![id, part, name, quantity], |row| row.get(0)).optional()?;
        Ok(packed.map_or(Ok(Vec::new()), |packed| samples::unpack(&packed))?)
    }

    /// The changes of state of a run's bundles, in order of time for each bundle.
    pub fn transitions(&self, id: i64) -> Result<Vec<Transition>, StoreError> {
        let mut query = self.connection.prepare_cached(
            "SELECT bundle, at_s, state, reason FROM transitions WHERE run = ?1 ORDER BY number",
        )?;
        let rows = query.query_map([id], |row| {
            Ok(Transition {
                bundle: row.get(0)?,
                at_s: row.get(1)?,
                state: row.get(2)?,
                reason: row.get(3)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
