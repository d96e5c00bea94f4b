//! Writing runs.

use forebay_core::traffic::Schedule;
use rusqlite::{Transaction, params};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Store, StoreError, samples};
use crate::metrics::{Evaluation, Metrics};
use crate::plan::{Experiment, Plan};

/// Sources of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Build {
    /// Commit, for people.
    pub commit: &'static str,
    /// Digest of the sources behind simulations.
    pub sim: &'static str,
    /// Digest of the sources behind runs on the testbed.
    pub emu: &'static str,
    /// Digest of the sources behind runs of ns-3.
    pub ns3: &'static str,
}

impl Build {
    /// Digest of the sources behind runs of `backend`.
    pub fn sources(&self, backend: &str) -> &'static str {
        match backend {
            "sim" => self.sim,
            "ns3" => self.ns3,
            _ => self.emu,
        }
    }
}

/// Key of a run: everything that can influence it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunKey {
    /// Name of the plan.
    pub plan: String,
    /// Name of the arm.
    pub arm: String,
    /// Name of the cell.
    pub cell: String,
    /// Seed of the run.
    pub seed: u64,
    /// Back end.
    pub backend: String,
    /// Digest of the sources behind the back end's runs, then name and version of the external program, if
    /// any.
    pub sources: String,
    /// Every number of the experiment.
    pub experiment_sha256: String,
}

impl RunKey {
    /// The key of an experiment run by `backend` of a program whose digest is `sources`.
    pub fn of(experiment: &Experiment, backend: &str, sources: &str) -> Self {
        Self {
            plan: experiment.plan.clone(),
            arm: experiment.arm.clone(),
            cell: experiment.cell.clone(),
            seed: experiment.seed,
            backend: backend.into(),
            sources: sources.into(),
            experiment_sha256: experiment.sha256.clone(),
        }
    }

    /// SHA-256 over all of the key, in hex: name of the run where the fields have no columns.
    pub fn digest(&self) -> String {
        let Self { plan, arm, cell, seed, backend, sources, experiment_sha256 } = self;
        let parts = json!([plan, arm, cell, seed, backend, sources, experiment_sha256]);
        let digest = Sha256::digest(parts.to_string());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A run to be written.
pub struct NewRun<'a> {
    /// Key of the run.
    pub key: &'a RunKey,
    /// The experiment that was run.
    pub experiment: &'a Experiment,
    /// Commit of the program.
    pub commit: &'a str,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Evaluation of the run.
    pub evaluation: &'a Evaluation,
    /// The machine and every wall-clock figure.
    pub host: &'a Value,
}

impl Store {
    /// Stores a plan's title, description and arms, for reports.
    pub fn put_plan(&mut self, plan: &Plan) -> Result<(), StoreError> {
        let with = plan.replacements().into_iter().map(|clause| format!("With {clause}."));
        let description: Vec<String> =
            std::iter::once(plan.description.clone()).chain(with).collect();
        let arms: Vec<[&str; 2]> =
            plan.arms.iter().map(|arm| [arm.name.as_str(), arm.summary.as_str()]).collect();
        let command = (!plan.command.is_empty()).then_some(&plan.command);
        let arms = json!({ "arms": arms, "references": plan.references, "command": command });
        self.connection.execute(
            "INSERT OR REPLACE INTO plans VALUES (?1, ?2, ?3, ?4)",
            params![plan.name, plan.title, description.join(" "), arms.to_string()],
        )?;
        self.connection.execute(
            "INSERT OR REPLACE INTO figures VALUES (?1, ?2)",
            params![plan.name, json!(plan.figures).to_string()],
        )?;
        Ok(())
    }

    /// Writes a run, all or nothing; returns its id.
    pub fn put_run(&mut self, run: &NewRun<'_>) -> Result<i64, StoreError> {
        let transaction = self.connection.transaction()?;
        let id = put_head(&transaction, run)?;
        put_parts(&transaction, id, run.experiment)?;
        put_metrics(&transaction, id, "run", "", &run.evaluation.run)?;
        for (part, list) in [
            ("flow", &run.evaluation.flows),
            ("link", &run.evaluation.links),
            ("bundle", &run.evaluation.bundles),
        ] {
            for one in list {
                put_metrics(&transaction, id, part, &one.name, &one.metrics)?;
            }
        }
        put_requests(&transaction, id, run)?;
        put_series(&transaction, id, run.evaluation)?;
        put_transitions(&transaction, id, run.evaluation)?;
        transaction.commit()?;
        Ok(id)
    }
}

fn put_head(db: &Transaction<'_>, run: &NewRun<'_>) -> Result<i64, StoreError> {
    let NewRun { key, experiment, evaluation, .. } = run;
    db.execute(
        "INSERT INTO runs (plan, arm, cell, seed, backend, sources, experiment_sha256, \"commit\", \
         attempt, valid, reasons, parameters, host, stop_s, warmup_s) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        params![
            key.plan,
            key.arm,
            key.cell,
            key.seed as i64,
            key.backend,
            key.sources,
            key.experiment_sha256,
            run.commit,
            run.attempt,
            evaluation.invalid.is_empty(),
            json!(evaluation.invalid).to_string(),
            json!(experiment.parameters).to_string(),
            run.host.to_string(),
            experiment.stop.as_secs_f64(),
            experiment.warmup.as_secs_f64(),
        ],
    )?;
    Ok(db.last_insert_rowid())
}

fn put_parts(db: &Transaction<'_>, id: i64, experiment: &Experiment) -> Result<(), StoreError> {
    for (place, flow) in experiment.flows.iter().enumerate() {
        let bundle = experiment
            .bundles
            .iter()
            .find(|bundle| bundle.pair == flow.pair && bundle.reversed == flow.reversed);
        db.execute(
            "INSERT INTO flows VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                id,
                flow.name,
                flow.pair,
                bundle.map(|bundle| &bundle.name),
                flow.cc_name(),
                experiment.schedule_at(place).map(Schedule::hash),
            ],
        )?;
    }
    for link in experiment.links() {
        db.execute(
            "INSERT INTO links VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                id,
                link.name,
                link.rate().map(|rate| rate.as_mbit_per_sec_f64()),
                link.delay.as_secs_f64() * 1e3,
                link.qdisc.to_string(),
            ],
        )?;
    }
    for bundle in &experiment.bundles {
        db.execute(
            "INSERT INTO bundles VALUES (?1, ?2, ?3, ?4)",
            params![id, bundle.name, bundle.cc.to_string(), bundle.qdisc.to_string()],
        )?;
    }
    Ok(())
}

fn put_metrics(
    db: &Transaction<'_>,
    id: i64,
    part: &str,
    name: &str,
    metrics: &Metrics,
) -> Result<(), StoreError> {
    let mut insert = db.prepare_cached("INSERT INTO metrics VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for (metric, value) in &metrics.0 {
        insert.execute(params![id, part, name, metric, value])?;
    }
    Ok(())
}

fn put_requests(db: &Transaction<'_>, id: i64, run: &NewRun<'_>) -> Result<(), StoreError> {
    let mut insert = db.prepare_cached(
        "INSERT INTO requests VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    for request in &run.evaluation.requests {
        let row = &request.row;
        insert.execute(params![
            id,
            run.experiment.flows[row.flow].name,
            row.index,
            row.connection,
            row.size_bytes as i64,
            row.scheduled_ns as i64,
            row.sent_ns.map(|at| at as i64),
            row.finished_ns.map(|at| at as i64),
            row.queued_behind,
            request.counted,
            request.outcome.fct_ms,
            request.outcome.slowdown,
        ])?;
    }
    Ok(())
}

fn put_transitions(
    db: &Transaction<'_>,
    id: i64,
    evaluation: &Evaluation,
) -> Result<(), StoreError> {
    let mut insert =
        db.prepare_cached("INSERT INTO transitions VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for (number, it) in evaluation.transitions.iter().enumerate() {
        insert.execute(params![id, number as i64, it.bundle, it.at_s, it.state, it.reason])?;
    }
    Ok(())
}

fn put_series(db: &Transaction<'_>, id: i64, evaluation: &Evaluation) -> Result<(), StoreError> {
    let mut insert = db.prepare_cached(
        "INSERT INTO series (run, part, name, quantity, samples) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for series in &evaluation.series {
        let packed = samples::pack(&series.points)?;
        insert.execute(params![id, series.part, series.name, series.quantity, packed])?;
    }
    Ok(())
}
