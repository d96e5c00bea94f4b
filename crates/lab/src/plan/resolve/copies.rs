//! Bundles given by number: `[[bundle]] count = 64` stands for 64 bundles, each with its own flows.

use std::collections::BTreeMap;

use forebay_reader::tree::{Node, Table, Value};

use super::super::schema;

/// Replaces each bundle with a `count` by bundles NAME-1, NAME-2, .., and each of its flows by flows with
/// the same numbers. A count that the schema does not allow is ignored here.
pub fn expand(tree: &mut Table) {
    let mut counts = BTreeMap::new();
    let allowed = schema::BUNDLE.key("count").map(|key| key.kind);
    replace(tree, "bundle", |bundle| {
        let count = allowed?.whole(&bundle.remove("count")?.value)?;
        counts.insert(text(bundle, "name").unwrap_or_default().to_string(), count);
        Some(count)
    });
    replace(tree, "flow", |flow| counts.get(text(flow, "bundle")?).copied());
}

/// Replaces each table in the list `key` by as many copies as `count_of` returns, or leaves it unchanged.
fn replace(tree: &mut Table, key: &str, mut count_of: impl FnMut(&mut Table) -> Option<u32>) {
    let Some(Node { value: Value::List(nodes), .. }) = tree.get_mut(key) else { return };
    let mut all = Vec::new();
    for mut node in std::mem::take(nodes) {
        let count = match &mut node.value {
            Value::Table(table) => count_of(table),
            _ => None,
        };
        match count {
            None => all.push(node),
            Some(count) => all.extend((1..=count).map(|number| numbered(&node, number))),
        }
    }
    *nodes = all;
}

/// A table with `number` appended to its name and to the names that it refers to.
fn numbered(node: &Node, number: u32) -> Node {
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
    table.get(key)?.value.as_text()
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{PLAN, load};

    #[test]
    fn each_bundle_copy_has_own_flows() {
        let plan = load(PLAN, &["bundle.a.count=3", "flow.bulk.count=2"]).unwrap();
        let run = plan.experiment(&plan.arms[1], &plan.cells[0], 1).unwrap();
        let names: Vec<&str> = run.bundles.iter().map(|bundle| bundle.name.as_str()).collect();
        assert_eq!(names, ["a-1", "a-2", "a-3"]);
        let flows: Vec<(&str, &str, u32)> =
            run.flows.iter().map(|it| (&*it.name, &*it.pair, it.connections())).collect();
        assert_eq!(flows, [("bulk-1", "a-1", 2), ("bulk-2", "a-2", 2), ("bulk-3", "a-3", 2)]);
        // The settings of an arm apply to all copies, and rows keep the written values.
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
