//! Cycles of modules that use one another, directly or indirectly: a reader of one has to read all of
//! them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use syn::{Item, ItemMod, UseTree, visit::Visit};

/// Cycles that still exist.
const ALLOWED: [&str; 0] = [];

/// The names from a crate's root to a module, or to an item in it.
type ModulePath = Vec<String>;

/// The declarations and paths of one file, apart from its tests.
#[derive(Default)]
struct Source {
    /// Every path in the file, as written.
    named: Vec<Vec<String>>,
    /// The path of each name that the file imports or re-exports.
    imported: BTreeMap<String, Vec<String>>,
}

impl Source {
    fn parse(text: &str) -> Self {
        let mut source = Self::default();
        source.visit_file(&syn::parse_file(text).expect("the file compiles"));
        source
    }

    fn import(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, before));
            }
            UseTree::Name(name) if name.ident == "self" => self.named.push(before.to_vec()),
            UseTree::Name(name) => self.import_as(&name.ident, with(&name.ident)),
            UseTree::Rename(name) => self.import_as(&name.rename, with(&name.ident)),
            UseTree::Glob(_) => self.named.push(before.to_vec()),
        }
    }

    fn import_as(&mut self, name: &syn::Ident, path: Vec<String>) {
        self.imported.insert(name.to_string(), path.clone());
        self.named.push(path);
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Use(used) = item {
            return self.import(&used.tree, &[]);
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !module.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        if names.len() > 1 {
            self.named.push(names);
        }
        syn::visit::visit_path(self, path);
    }
}

/// The modules of a crate.
struct Crate(BTreeMap<ModulePath, Source>);

impl Crate {
    fn read(root: &Path) -> Self {
        let mut files = Vec::new();
        super::rust_files(root, &mut files);
        let module = |file: &PathBuf| {
            let path =
                file.strip_prefix(root).expect("the file is below the root").with_extension("");
            let names: ModulePath =
                path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            let is_of_tests = names.iter().any(|name| name == "tests" || name == "fixture");
            (names != ["main"] && !is_of_tests).then_some(names)
        };
        let read = |file: &PathBuf| {
            let names = module(file).map(|names| if names == ["lib"] { Vec::new() } else { names });
            let text = fs::read_to_string(file).expect("it is readable");
            Some((names?, Source::parse(&text)))
        };
        Self(files.iter().filter_map(read).collect())
    }

    /// The module that a path in `module` leads to, through re-exports on the way.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<ModulePath> {
        let mut at = module.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            first if self.0.contains_key(&[module, &[first.to_owned()]].concat()) => {}
            first => {
                let imported = self.0.get(module)?.imported.get(first)?;
                let is_itself = imported.first().is_some_and(|name| name == first);
                let path = [imported, &rest[1..]].concat();
                if depth == 0 || is_itself {
                    return None;
                }
                return self.resolve(module, &path, depth - 1);
            }
        }
        while let Some(name) = rest.first() {
            let below = [&*at, std::slice::from_ref(name)].concat();
            if !self.0.contains_key(&below) {
                break;
            }
            (at, rest) = (below, &rest[1..]);
        }
        let passed_on = rest.first().filter(|_| at != module && depth > 0);
        let passed_on = passed_on.and_then(|name| self.0.get(&at)?.imported.get(name));
        match passed_on {
            Some(path) => self.resolve(&at, &[path, &rest[1..]].concat(), depth - 1),
            None => Some(at),
        }
    }

    /// The modules that each module uses. A module and the modules in its folder count as one, whichever
    /// names the other.
    fn uses(&self) -> BTreeMap<&ModulePath, BTreeSet<ModulePath>> {
        let of = |(module, source): (_, &Source)| {
            let module: &ModulePath = module;
            let used = source.named.iter().filter_map(|path| self.resolve(module, path, 8));
            let used = used.filter(|it| !it.starts_with(module) && !module.starts_with(it));
            (module, used.collect())
        };
        self.0.iter().map(of).collect()
    }

    /// Every group of modules in which each module leads to all others.
    fn circles(&self) -> Vec<Vec<String>> {
        let uses = self.uses();
        let reached = |from: &ModulePath| {
            let mut found = BTreeSet::new();
            let mut waiting = vec![from];
            while let Some(used) = waiting.pop().and_then(|module| uses.get(module)) {
                waiting.extend(used.iter().filter(|module| found.insert((*module).clone())));
            }
            found
        };
        let reached: BTreeMap<&ModulePath, BTreeSet<ModulePath>> =
            self.0.keys().map(|module| (module, reached(module))).collect();
        let is_with = |one: &ModulePath, other: &ModulePath| {
            reached[one].contains(other) && reached[other].contains(one)
        };
        let circle = |one: &ModulePath| -> Vec<String> {
            let all = self.0.keys().filter(|other| is_with(one, other));
            all.map(|module| module.join("::")).collect()
        };
        let circles: BTreeSet<Vec<String>> = self.0.keys().map(circle).collect();
        circles.into_iter().filter(|circle| circle.len() > 1).collect()
    }
}

#[test]
fn modules_have_no_dependency_cycles() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(repository.join("crates")).expect("crates are there");
    let mut roots = vec![repository.join("src")];
    roots.extend(crates.map(|it| it.expect("it is readable").path().join("src")));
    let crates: Vec<Crate> = roots.iter().map(|root| Crate::read(root)).collect();
    let uses = crates.iter().flat_map(|it| it.uses().into_values()).map(|used| used.len());
    assert!(uses.sum::<usize>() > 500, "uses of modules are found");
    let circles = crates.iter().flat_map(Crate::circles).map(|circle| circle.join(", "));
    let circles: Vec<String> = circles.filter(|it| !ALLOWED.contains(&&**it)).collect();
    assert!(circles.is_empty(), "\n{}", circles.join("\n"));
}
