//! The first row of each table in which two stores differ.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use forebay_lab::store::{FILE, unpack};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};

/// Columns that differ between two builds of one tree: commit, digest of the sources, times and machine.
const EXCEPT: [(&str, &str); 3] = [("runs", "commit"), ("runs", "sources"), ("runs", "host")];
/// Columns that identify the subject of a row, where its primary key is a number.
const NAMES: [&str; 7] = ["run", "arm", "cell", "seed", "part", "name", "quantity"];
/// Characters shown of a text before its first difference.
const BEFORE: usize = 40;
/// Characters shown of a text in total.
const SHOWN: usize = 160;

/// Number of runs in the store in the folder `old`, and a text for each table that differs in the one in `new`.
pub fn differences(old: &Path, new: &Path) -> Result<(i64, Vec<String>)> {
    let (old, new) = (open(old)?, open(new)?);
    let [old_tables, new_tables] = [tables(&old)?, tables(&new)?];
    ensure!(old_tables == new_tables, "tables differ: old {old_tables:?}, new {new_tables:?}");
    let mut found = Vec::new();
    for table in &old_tables {
        let difference = difference(&old, &new, table).with_context(|| table.clone())?;
        found.extend(difference.map(|it| format!("{table}: {it}")));
    }
    let runs = old.query_row("SELECT count(*) FROM runs", [], |row| row.get(0))?;
    Ok((runs, found))
}

fn open(folder: &Path) -> Result<Connection> {
    let file = folder.join(FILE);
    Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .with_context(|| file.display().to_string())
}

fn tables(store: &Connection) -> Result<Vec<String>> {
    texts(store, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name", None)
}

fn texts(store: &Connection, select: &str, of: Option<&str>) -> Result<Vec<String>> {
    let mut query = store.prepare(select)?;
    let texts = query.query_map(rusqlite::params_from_iter(of), |row| row.get(0))?;
    Ok(texts.collect::<Result<_, _>>()?)
}

/// Where the rows of `table` first differ: key, column and both values.
fn difference(old: &Connection, new: &Connection, table: &str) -> Result<Option<String>> {
    let columns =
        |store| texts(store, "SELECT name FROM pragma_table_info(?1) ORDER BY cid", Some(table));
    let (names, others) = (columns(old)?, columns(new)?);
    if names != others {
        return Ok(Some(format!("columns differ: old {names:?}, new {others:?}")));
    }
    let primary = "SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk";
    let primary = texts(old, primary, Some(table))?;
    let order: Vec<String> = primary.iter().map(|key| format!("\"{key}\"")).collect();
    let select = format!("SELECT * FROM \"{table}\" ORDER BY {}", order.join(", "));
    let is_key = |name: &&String| primary.contains(name) || NAMES.contains(&name.as_str());
    let keys: Vec<&String> = names.iter().filter(is_key).collect();
    let (mut old_rows, mut new_rows) = (old.prepare(&select)?, new.prepare(&select)?);
    let (mut old_rows, mut new_rows) = (old_rows.query([])?, new_rows.query([])?);
    let key = |store, row: &Row<'_>| key(store, row, &keys);
    loop {
        let (old_row, new_row) = match (old_rows.next()?, new_rows.next()?) {
            (None, None) => return Ok(None),
            (Some(row), None) => return Ok(Some(format!("only old has {}", key(old, row)?))),
            (None, Some(row)) => return Ok(Some(format!("only new has {}", key(new, row)?))),
            (Some(old_row), Some(new_row)) => (old_row, new_row),
        };
        for (place, name) in names.iter().enumerate() {
            let (was, is) = (old_row.get_ref(place)?, new_row.get_ref(place)?);
            if EXCEPT.contains(&(table, name.as_str())) || was == is {
                continue;
            }
            let ([was, is], old_key, new_key) =
                (shown(was, is), key(old, old_row)?, key(new, new_row)?);
            return Ok(Some(match old_key == new_key {
                true => format!("{old_key}: {name}: old {was}, new {is}"),
                false => format!("old has {old_key}, new has {new_key}"),
            }));
        }
    }
}

/// The values of a row's key with their names, and the name of the run.
fn key(store: &Connection, row: &Row<'_>, keys: &[&String]) -> Result<String> {
    let mut words = Vec::new();
    for key in keys {
        let value = row.get_ref(key.as_str())?;
        words.push(format!("{key} {}", text(value)));
        if let ("run", ValueRef::Integer(id)) = (key.as_str(), value) {
            let name =
                "SELECT trim(arm || ' ' || cell) || ' seed ' || seed FROM runs WHERE id = ?1";
            let name: Option<String> = store.query_row(name, [id], |row| row.get(0)).optional()?;
            words.extend(name.map(|it| format!("({it})")));
        }
    }
    Ok(words.join(" "))
}

/// Both values; for long ones the part in which they differ.
fn shown(old: ValueRef<'_>, new: ValueRef<'_>) -> [String; 2] {
    if let (ValueRef::Blob(old), ValueRef::Blob(new)) = (old, new)
        && let (Ok(old), Ok(new)) = (unpack(old), unpack(new))
    {
        let place = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        return [old, new].map(|samples| match samples.get(place) {
            Some((at_s, value)) => format!("{value:?} at {at_s} s (sample {place})"),
            None => format!("{place} samples"),
        });
    }
    let texts = [old, new].map(text);
    let alike = texts[0].chars().zip(texts[1].chars()).take_while(|(old, new)| old == new).count();
    let from = alike.saturating_sub(BEFORE);
    texts.map(|text| text.chars().skip(from).take(SHOWN).collect())
}

fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "nothing".into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => format!("{number:?}"),
        ValueRef::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => format!("{bytes:02x?}"),
    }
}

#[cfg(test)]
mod tests {
    use forebay_lab::metrics::{Evaluation, Metrics, Series};
    use forebay_lab::plan::Plan;
    use forebay_lab::store::{NewRun, RunKey, Store};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// A store with a run of the build `commit`, changed by `sql`.
    fn store(commit: &str, sql: &str) -> TempDir {
        store_with(2.0, commit, sql)
    }

    /// A store as [`store`] makes it, whose last sample is `sample`.
    fn store_with(sample: f64, commit: &str, sql: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::create(folder.path()).unwrap();
        let plan = Plan::load("bundler/main", &[]).unwrap();
        store.put_plan(&plan).unwrap();
        let experiment = &plan.experiment(&plan.arms[1], &plan.cells[0], 1).unwrap();
        let run = [("goodput_mbps".to_string(), 90.0), ("loss".to_string(), 0.0)];
        let points = vec![(0.5, 1.0), (1.5, sample)];
        let series = Series { part: "bundle", name: "a".into(), quantity: "rate_mbps", points };
        let run = Metrics(run.into_iter().collect());
        let evaluation = &Evaluation { run, series: vec![series], ..Evaluation::default() };
        let (key, host) = (&RunKey::of(experiment, "sim", commit), &json!({ "wall_s": commit }));
        store.put_run(&NewRun { key, experiment, commit, attempt: 1, evaluation, host }).unwrap();
        drop(store);
        Connection::open(folder.path().join(FILE)).unwrap().execute_batch(sql).unwrap();
        folder
    }

    fn changed(sql: &str) -> Vec<String> {
        differences(store("a", "").path(), store("b", sql).path()).unwrap().1
    }

    #[test]
    fn commit_time_and_host_may_differ() {
        let found = differences(store("a", "").path(), store("b", "").path()).unwrap();
        assert_eq!(found, (1, Vec::new()));
        for (table, column) in EXCEPT {
            let store = open(store("a", "").path()).unwrap();
            let columns = "SELECT name FROM pragma_table_info(?1)";
            assert!(texts(&store, columns, Some(table)).unwrap().contains(&column.into()));
        }
    }

    #[test]
    fn first_differing_value_of_each_table() {
        let last_bit = f64::from_bits(90.0_f64.to_bits() + 1);
        let found = changed(&format!(
            "UPDATE metrics SET value = {last_bit:?} WHERE metric = 'goodput_mbps'; \
             UPDATE metrics SET value = 1 WHERE metric = 'loss'; \
             UPDATE plans SET title = 'Other'"
        ));
        let metric = "metrics: run 1 (copa_sfq seed 1) part \"run\" name \"\" metric \"goodput_mbps\": \
                      value: old 90.0, new 90.00000000000001";
        let title = "plans: name \"main\": title: old \"Web requests over a shared bottleneck\", \
                     new \"Other\"";
        assert_eq!(found, [metric, title]);
    }

    #[test]
    fn missing_rows_tables_and_columns() {
        let [missing] = &changed("DELETE FROM metrics WHERE metric = 'loss'")[..] else { panic!() };
        assert!(missing.starts_with("metrics: only old has run 1 (copa_sfq seed 1)"), "{missing}");
        let found = changed("DELETE FROM metrics WHERE metric = 'goodput_mbps'");
        assert!(found[0].contains("\"goodput_mbps\", new has run 1"), "{found:?}");
        let found = changed("INSERT INTO figures VALUES ('q', '[]')");
        assert!(found[0].starts_with("figures: only new has plan"), "{found:?}");
        let found = changed("ALTER TABLE links RENAME COLUMN qdisc TO queue");
        assert!(found[0].starts_with("links: columns differ: old"), "{found:?}");
        let (old, new) = (store("a", ""), store("b", "CREATE TABLE more (id INTEGER PRIMARY KEY)"));
        assert!(differences(old.path(), new.path()).unwrap_err().to_string().contains("more"));
    }

    #[test]
    fn samples_and_long_texts_are_shown_in_part() {
        let found = differences(store("a", "").path(), store_with(2.5, "b", "").path()).unwrap().1;
        let expected = "series: id 1 run 1 (copa_sfq seed 1) part \"bundle\" name \"a\" \
                        quantity \"rate_mbps\": samples: old 2.0 at 1.5 s (sample 1), \
                        new 2.5 at 1.5 s (sample 1)";
        assert_eq!(found, [expected]);
        let of = |commit, length: usize| {
            let text = "x".repeat(length);
            store(commit, &format!("INSERT INTO figures VALUES ('q', '{text}')"))
        };
        let found = differences(of("a", 299).path(), of("b", 300).path()).unwrap().1;
        let (start, x) = ("figures: plan \"q\": figures: old", "x".repeat(BEFORE));
        assert_eq!(found, [format!("{start} {x}\", new {x}x\"")]);
    }
}
