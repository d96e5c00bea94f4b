//! Constants say what they are: each has documentation of its own.

use syn::{Attribute, Ident, ImplItem, Item, TraitItem};

use crate::lines::outside_tests;
use crate::repository;
use crate::sources::is_for_tests;

/// Constants of `items` without documentation, with the numbers of their lines. Constants in bodies of functions are
/// left out, as their function explains these.
fn undocumented(items: &[Item], found: &mut Vec<(usize, String)>) {
    for item in items {
        match item {
            Item::Const(item) => check(&item.attrs, &item.ident, found),
            Item::Static(item) => check(&item.attrs, &item.ident, found),
            Item::Mod(module) if !module.attrs.iter().any(is_for_tests) => {
                if let Some((_, items)) = &module.content {
                    undocumented(items, found);
                }
            }
            // A trait documents the constants of its implementations.
            Item::Impl(block) if block.trait_.is_none() => {
                for item in &block.items {
                    if let ImplItem::Const(item) = item {
                        check(&item.attrs, &item.ident, found);
                    }
                }
            }
            Item::Trait(definition) => {
                for item in &definition.items {
                    if let TraitItem::Const(item) = item {
                        check(&item.attrs, &item.ident, found);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Adds a constant unless it has documentation, exists only in tests or, as `_`, has no name.
fn check(attributes: &[Attribute], name: &Ident, found: &mut Vec<(usize, String)>) {
    let is_exempt = |it: &Attribute| it.path().is_ident("doc") || is_for_tests(it);
    if *name != "_" && !attributes.iter().any(is_exempt) {
        found.push((name.span().start().line, name.to_string()));
    }
}

#[test]
fn constants_have_documentation_of_their_own() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for folder in ["crates", "fuzz", "xtask"] {
        for (path, _) in outside_tests(folder) {
            let source = std::fs::read_to_string(&path).unwrap();
            let parsed = syn::parse_file(&source);
            let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut found = Vec::new();
            undocumented(&parsed.items, &mut found);
            count += 1;
            let name = path.strip_prefix(repository()).unwrap().display();
            wrong.extend(found.iter().map(|(line, constant)| format!("{name}:{line}: {constant}")));
        }
    }
    assert!(count > 400, "{count} files: expected more");
    assert!(wrong.is_empty(), "say unit, source and effect:\n{}", wrong.join("\n"));
}

#[test]
fn undocumented_constants_are_found_outside_tests() {
    let source = "/// Says.\nconst A: u8 = 1;\nconst B: u8 = 1;\nconst _: () = ();\n\
                  #[cfg(test)]\nmod tests { const C: u8 = 1; }\n\
                  impl D { const E: u8 = 1; }\nimpl F for D { const G: u8 = 1; }\n\
                  mod inner { static H: u8 = 1; }\nfn f() { const I: u8 = 1; }\n";
    let mut found = Vec::new();
    undocumented(&syn::parse_file(source).unwrap().items, &mut found);
    let found: Vec<(usize, &str)> = found.iter().map(|(line, it)| (*line, it.as_str())).collect();
    assert_eq!(found, [(3, "B"), (7, "E"), (9, "H")]);
}
