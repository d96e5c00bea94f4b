//! Overrides: dotted keys that replace values of a plan, from arms, cells and the command line.
//!
//! Keys use the `name` of an element in a list of tables (`bundle.a.cc`). Elements without a name have their
//! place from 0 (`bottleneck.change.0.at`).

use forebay_reader::Problem;
use forebay_reader::tree::{Node, Origin, Table, Value, element_name, join};

/// Replaces the value of `key` in `root` by `node`, and returns the old one. Missing tables on the way are
/// created, so a typing error appears as an unknown key when the plan is read, with the override's own line.
pub fn apply(root: &mut Table, key: &str, node: Node) -> Result<Option<Node>, Box<Problem>> {
    let segments: Vec<&str> = key.split('.').collect();
    if segments.iter().any(|segment| segment.is_empty()) {
        let allowed = "a dotted key such as bottleneck.rate or bundle.a.cc";
        return Err(Problem::value(&node.origin, key, allowed).into());
    }
    let (last, way) = segments.split_last().expect("split gives at least one segment");
    let mut table = root;
    let mut path = String::new();
    let mut way = way.iter().peekable();
    while let Some(segment) = way.next() {
        path = join(&path, segment);
        let entry = table.entry(segment.to_string()).or_insert_with(|| empty_table(&node.origin));
        let target = match entry.value {
            Value::List(_) => {
                let name = way.next().unwrap_or(last);
                let element = element(entry, name, &path, key, &node)?;
                path = join(&path, name);
                if way.peek().is_none() && std::ptr::eq(name, last) {
                    return Ok(Some(std::mem::replace(element, node)));
                }
                element
            }
            _ => entry,
        };
        table = as_table(target, &path, &node.origin)?;
    }
    Ok(table.insert(last.to_string(), node))
}

fn empty_table(origin: &Origin) -> Node {
    Node { value: Value::Table(Table::new()), origin: origin.clone() }
}

/// The element `name` of `list` at `path`, for `node` under `key`.
fn element<'a>(
    list: &'a mut Node,
    name: &str,
    path: &str,
    key: &str,
    node: &Node,
) -> Result<&'a mut Node, Box<Problem>> {
    let Value::List(elements) = &mut list.value else { unreachable!("checked by the caller") };
    let names: Vec<String> =
        elements.iter().enumerate().map(|(place, node)| element_name(node, place)).collect();
    match names.iter().position(|known| known == name) {
        Some(place) => Ok(&mut elements[place]),
        None => {
            let allowed = format!("one of {path}.{{{}}}", names.join(", "));
            Err(Problem::value(&node.origin, key, allowed).into())
        }
    }
}

/// The table behind `node`; a bare kind (`qdisc = "fifo"`) becomes a table with that kind.
fn as_table<'a>(
    node: &'a mut Node,
    path: &str,
    origin: &Origin,
) -> Result<&'a mut Table, Box<Problem>> {
    if let Value::Text(kind) = &node.value {
        let kind = Node { value: Value::Text(kind.clone()), origin: node.origin.clone() };
        node.value = Value::Table(Table::from([("kind".to_string(), kind)]));
    }
    match &mut node.value {
        Value::Table(table) => Ok(table),
        other => {
            Err(Problem::of_value(origin, path, &other.to_string(), "a table to override").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_reader::tree::{flatten, parse_argument, parse_document};

    use super::*;

    fn after(text: &str, key: &str, value: &str) -> Result<String, Box<Problem>> {
        let mut tree = parse_document(text, "p").unwrap();
        apply(&mut tree, key, parse_argument("--set", value).unwrap())?;
        let leaves = flatten(&tree);
        Ok(leaves.into_iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn tables_lists_and_bare_kinds_can_be_overridden() {
        let text = "[b]\nrate = \"1Mbit/s\"\nqdisc = \"fifo\"\n[[f]]\nname = \"w\"\ncc = \"x\"\n";
        for (key, value, expected) in [
            ("b.rate", "2Mbit/s", "b.qdisc=fifo b.rate=2Mbit/s f.w.cc=x f.w.name=w"),
            (
                "b.qdisc.limit",
                "9p",
                "b.qdisc.kind=fifo b.qdisc.limit=9p b.rate=1Mbit/s f.w.cc=x f.w.name=w",
            ),
            ("f.w.cc", "reno", "b.qdisc=fifo b.rate=1Mbit/s f.w.cc=reno f.w.name=w"),
            ("f.w", "{ name = \"v\" }", "b.qdisc=fifo b.rate=1Mbit/s f.v.name=v"),
            ("n.m", "1", "b.qdisc=fifo b.rate=1Mbit/s f.w.cc=x f.w.name=w n.m=1"),
        ] {
            assert_eq!(after(text, key, value).unwrap(), expected);
        }
    }

    #[test]
    fn unknown_element_lists_known_ones() {
        let error = after("[[f]]\nname = \"w\"", "f.v.cc", "reno").unwrap_err().to_string();
        assert_eq!(error, "--set: f.v.cc = \"reno\": allowed is one of f.{w}");
        assert!(after("a = 1", "a.b.c", "1").is_err());
        assert!(after("a = 1", "a..c", "1").is_err());
    }
}
