//! The modules of a crate, found as the compiler finds these, and the modules that each one names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, Macro, UseTree, VisRestricted};

/// The path to a module or to an item in it, from the root of a crate or from another module.
pub type Way = Vec<String>;

/// The modules of one crate, tests left out, by the way to each from the root.
pub struct Modules(BTreeMap<Way, Module>);

/// One module, in a file or not.
#[derive(Default)]
struct Module {
    is_file: bool,
    /// Names that `use` imports, and their targets.
    imports: BTreeMap<String, Way>,
    /// Items that its code names by a path.
    named: BTreeSet<Way>,
}

impl Modules {
    /// Reads the crate whose root is the file `root`.
    pub fn read(root: &Path) -> Self {
        let mut modules = Self(BTreeMap::new());
        modules.read_file(root, root.parent().unwrap(), Way::new());
        modules
    }

    fn read_file(&mut self, file: &Path, folder: &Path, way: Way) {
        let text = std::fs::read_to_string(file);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text);
        let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.read_items(&parsed.items, true, folder, way);
    }

    fn read_items(&mut self, items: &[Item], is_file: bool, folder: &Path, way: Way) {
        let mut reader = Reader::default();
        items.iter().for_each(|item| reader.visit_item(item));
        let Reader { imports, named, mut below } = reader;
        if is_file && items.iter().any(|item| matches!(item, Item::Macro(_))) {
            below.extend(by_macro(items, folder).into_iter().map(|name| (name, None)));
        }
        self.0.insert(way.clone(), Module { is_file, imports, named });
        for (name, items) in below {
            let folder_below = folder.join(&name);
            let way = joined(&way, std::slice::from_ref(&name));
            match items {
                Some(items) => self.read_items(items, false, &folder_below, way),
                None => {
                    let flat = folder.join(format!("{name}.rs"));
                    let file = if flat.exists() { flat } else { folder_below.join("mod.rs") };
                    self.read_file(&file, &folder_below, way);
                }
            }
        }
    }

    /// The ways to the modules that have a file.
    pub fn files(&self) -> impl Iterator<Item = &Way> {
        self.0.iter().filter(|(_, module)| module.is_file).map(|(way, _)| way)
    }

    /// Whether files of modules lie in a folder of the module `way`.
    pub fn is_folder(&self, way: &[String]) -> bool {
        self.files().any(|other| other.len() > way.len() && other.starts_with(way))
    }

    /// Pairs of files: the first names something that the second defines.
    pub fn needs(&self) -> BTreeSet<(&Way, &Way)> {
        let named = self.0.iter().flat_map(|(way, module)| {
            let named = module.named.iter().chain(module.imports.values());
            named.filter_map(move |name| Some((self.file(way), self.file(self.home(way, name)?))))
        });
        named.filter(|(from, to)| from != to).collect()
    }

    /// The file that contains a module.
    fn file(&self, way: &[String]) -> &Way {
        let inwards = (0..=way.len()).rev().map(|len| self.0.get_key_value(&way[..len]));
        inwards.flatten().find(|(_, module)| module.is_file).expect("the root is a file").0
    }

    /// The module that defines the item that `within` calls `name`; `None`: no module of this crate.
    fn home(&self, within: &[String], name: &[String]) -> Option<&Way> {
        let mut base = within;
        let mut rest = name;
        while let Some((first, others)) = rest.split_first() {
            base = match first.as_str() {
                "crate" => &[],
                "self" => base,
                "super" => base.split_last()?.1,
                _ => break,
            };
            rest = others;
        }
        let is_relative = rest.len() == name.len();
        let first = rest.first();
        let is_known = first.is_none_or(|first| {
            self.0.contains_key(&joined(base, std::slice::from_ref(first)))
                || self.0[base].imports.get(first).is_some_and(|import| import != name)
        });
        if is_relative && !is_known { None } else { self.descend(base, rest) }
    }

    fn descend(&self, base: &[String], rest: &[String]) -> Option<&Way> {
        let (own, module) = self.0.get_key_value(base)?;
        let Some((first, others)) = rest.split_first() else { return Some(own) };
        let child = joined(base, std::slice::from_ref(first));
        if self.0.contains_key(&child) {
            return self.descend(&child, others);
        }
        match module.imports.get(first) {
            // `use clock;` would name itself.
            Some(import) if import.as_slice() != rest => self.home(base, &joined(import, others)),
            _ => Some(own),
        }
    }
}

/// Modules with files in `folder` that no item declares: a macro does.
fn by_macro(items: &[Item], folder: &Path) -> Vec<String> {
    let declares =
        |name: &str| items.iter().any(|it| matches!(it, Item::Mod(it) if it.ident == name));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let is_file = path.extension().is_some_and(|it| it == "rs");
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_root = ["lib", "main", "mod"].contains(&name.as_str());
        if (is_file || path.join("mod.rs").exists()) && !is_root && !declares(&name) {
            found.push(name);
        }
    }
    found
}

fn joined(way: &[String], more: &[String]) -> Way {
    [way, more].concat()
}

/// Reads the items of one module.
#[derive(Default)]
struct Reader<'a> {
    imports: BTreeMap<String, Way>,
    named: BTreeSet<Way>,
    /// Modules below, with their items where no file has them.
    below: Vec<(String, Option<&'a [Item]>)>,
}

impl Reader<'_> {
    fn import(&mut self, tree: &UseTree, way: &[String]) {
        match tree {
            UseTree::Path(path) => {
                self.import(&path.tree, &joined(way, &[path.ident.to_string()]));
            }
            UseTree::Group(group) => group.items.iter().for_each(|it| self.import(it, way)),
            UseTree::Glob(_) => drop(self.named.insert(way.to_vec())),
            UseTree::Name(name) if name.ident == "self" => {
                self.imports.insert(way.last().unwrap().clone(), way.to_vec());
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.imports.insert(name.clone(), joined(way, &[name]));
            }
            UseTree::Rename(rename) if rename.ident == "self" => {
                self.imports.insert(rename.rename.to_string(), way.to_vec());
            }
            UseTree::Rename(rename) => {
                let way = joined(way, &[rename.ident.to_string()]);
                if rename.rename == "_" {
                    self.named.insert(way);
                } else {
                    self.imports.insert(rename.rename.to_string(), way);
                }
            }
        }
    }

    /// Finds paths in the arguments of a macro, which is no syntax tree.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut way = Way::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.named.insert(std::mem::take(&mut way));
                    }
                    way.push(ident.to_string());
                    colons = 0;
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !way.is_empty() => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.read_tokens(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            self.named.insert(std::mem::take(&mut way));
            colons = 0;
        }
        self.named.insert(way);
    }
}

impl<'a> Visit<'a> for Reader<'a> {
    fn visit_item(&mut self, item: &'a Item) {
        if attributes(item).iter().any(is_for_tests) {
            return;
        }
        match item {
            Item::Mod(module) => {
                let items = module.content.as_ref().map(|(_, items)| items.as_slice());
                self.below.push((module.ident.to_string(), items));
            }
            Item::Use(item) => self.import(&item.tree, &[]),
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        if !function.attrs.iter().any(is_for_tests) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.named.insert(path.segments.iter().map(|it| it.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        self.read_tokens(call.tokens.clone());
    }

    /// A restricted visibility names modules without needing these.
    fn visit_vis_restricted(&mut self, _: &'a VisRestricted) {}
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item with this attribute exists only in tests.
pub fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.meta.require_list().is_ok_and(|list| {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test,")
        })
}
