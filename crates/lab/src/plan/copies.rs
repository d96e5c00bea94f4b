//! Bundles that a plan has in numbers: `[[bundle]] count = 64` stands for so many, each with flows of its own.

use std::collections::BTreeMap;

use super::error::PlanError;
use super::schema;
use super::tree::{Node, Table, Value, join};

/// Most bundles alike: as many as a box has.
const COUNT_MAX: i64 = 1024;

/// Puts bundles NAME-1, NAME-2, .. in the place of each that has a `count`, and flows of theirs, numbered
/// likewise, in the place of each flow of the bundle.
///
/// # Errors
///
/// A count is no whole number from 1 to 1024.
pub fn expand(tree: &mut Table) -> Result<(), PlanError> {
    let mut counts = BTreeMap::new();
    replace(tree, "bundle", |bundle| {
        let Some(count) = bundle.remove("count") else { return Ok(None) };
        let name = text(bundle, "name").unwrap_or_default();
        match count.value {
            Value::Integer(number @ 1..=COUNT_MAX) => {
                counts.insert(name.to_string(), number);
                Ok(Some(number))
            }
            other => {
                let key = join(&join("bundle", name), "count");
                let allowed = schema::BUNDLE.key("count").map_or("", |key| key.allowed);
                Err(PlanError::value(count.origin, &key, &other.to_string(), allowed))
            }
        }
    })?;
    replace(tree, "flow", |flow| {
        let count = text(flow, "bundle").and_then(|name| counts.get(name));
        Ok(count.copied())
    })
}

/// Puts as many tables in the place of each in the list `key` as `count_of` says, or leaves it as it is.
fn replace(
    tree: &mut Table,
    key: &str,
    mut count_of: impl FnMut(&mut Table) -> Result<Option<i64>, PlanError>,
) -> Result<(), PlanError> {
    let Some(Node { value: Value::List(nodes), .. }) = tree.get_mut(key) else { return Ok(()) };
    let mut all = Vec::new();
    for mut node in std::mem::take(nodes) {
        let count = match &mut node.value {
            Value::Table(table) => count_of(table)?,
            _ => None,
        };
        match count {
            None => all.push(node),
            Some(count) => all.extend((1..=count).map(|number| numbered(&node, number))),
        }
    }
    *nodes = all;
    Ok(())
}

/// A table with `number` behind whatever it is called and names.
fn numbered(node: &Node, number: i64) -> Node {
    let mut node = node.clone();
    if let Value::Table(table) = &mut node.value {
        for key in ["name", "pair", "bundle"] {
            if let Some(Node { value: Value::Text(name), .. }) = table.get_mut(key) {
                *name = format!("{name}-{number}");
            }
        }
    }
    node
}

fn text<'a>(table: &'a Table, key: &str) -> Option<&'a str> {
    match &table.get(key)?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PLAN, load};

    #[test]
    fn each_of_several_bundles_has_flows_of_its_own() {
        let plan = load(PLAN, &["bundle.a.count=3", "flow.bulk.count=2"]).unwrap();
        let run = plan.experiment(&plan.arms[1], &plan.cells[0], 1).unwrap();
        let names: Vec<&str> = run.bundles.iter().map(|bundle| bundle.name.as_str()).collect();
        assert_eq!(names, ["a-1", "a-2", "a-3"]);
        let flows: Vec<(&str, &str, u32)> =
            run.flows.iter().map(|it| (&*it.name, &*it.pair, it.connections())).collect();
        assert_eq!(flows, [("bulk-1", "a-1", 2), ("bulk-2", "a-2", 2), ("bulk-3", "a-3", 2)]);
        // What an arm sets of the bundle is of all of them, and rows say what was written.
        assert!(run.bundles.iter().all(|it| it.qdisc.to_string() == "sfq(limit=600p)"));
        assert_eq!(run.parameters.get("bundle.a.count").map(String::as_str), Some("3"));
        let more = load(PLAN, &["bundle.a.count=4"]).unwrap();
        let more = more.experiment(&more.arms[1], &more.cells[0], 1).unwrap();
        assert_ne!(more.sha256, run.sha256);
    }

    #[test]
    fn a_count_that_no_box_has_is_refused() {
        for count in ["0", "1025", "\"4\""] {
            let error = load(PLAN, &[&format!("bundle.a.count={count}")]).unwrap_err().to_string();
            let expected = format!("bundle.a.count = {count}: allowed is a whole number, 1 to");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
