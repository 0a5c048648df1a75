//! No two modules of a folder import each other, not even through a third.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Source, code, sources};

/// The names of a module, of which the first is its crate: `src` for the root package.
pub(super) type Module = Vec<String>;

/// A name that a `use` brings into a module, and the path that it stands for.
type Names = BTreeMap<String, Module>;

/// The module that a file below `src` or `crates/NAME/src` holds.
pub(super) fn module(path: &Path) -> Module {
    let mut names: Module =
        path.with_extension("").iter().map(|n| n.to_string_lossy().into_owned()).collect();
    if names.first().is_some_and(|first| first == "crates") {
        names.remove(2);
        names.remove(0);
    }
    if names.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        names.pop();
    }
    names
}

/// The text as far as it can belong to a path.
fn name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Members of a brace group whose opening brace is already gone.
fn group_members(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut members) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            ',' | '}' if depth == 0 => {
                members.push(&text[start..at]);
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    members
}

/// Adds the paths that a text begins with, such as `a::{b, c::D as E}`, and the name
/// that each is known by.
fn paths(text: &str, before: &Module, found: &mut Vec<(Module, String)>) {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        return group_members(group).into_iter().for_each(|member| paths(member, before, found));
    }
    let first = name(text);
    if first.is_empty() {
        return found.push((before.clone(), String::new()));
    }
    let mut path = before.clone();
    if first != "self" {
        path.push(first.to_owned());
    }
    let rest = &text[first.len()..];
    match rest.strip_prefix("::") {
        Some(rest) => paths(rest, &path, found),
        None => {
            let renamed = rest.trim_start().strip_prefix("as ").map(|rest| name(rest.trim_start()));
            let known_as = renamed.or(path.last().map(String::as_str)).unwrap_or_default().to_owned();
            found.push((path, known_as));
        }
    }
}

/// The paths into its crate that the code of a module names, with the crate, and how it calls their ends.
pub(super) fn named(own: &Module, code: &str) -> Vec<(Module, String)> {
    let mut found = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(root) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | ':')) {
                continue;
            }
            let (mut base, mut rest) = (own.clone(), &code[at + root.len()..]);
            match root {
                "crate::" => base.truncate(1),
                "super::" => {
                    base.pop();
                    while let Some(further) = rest.strip_prefix("super::") {
                        base.pop();
                        rest = further;
                    }
                }
                _ => {}
            }
            paths(rest, &base, &mut found);
        }
    }
    found
}

/// The names that the `use` lines of a module bring into it. A path that begins with
/// none of `crate`, `super` and `self` is one of a child, or of another crate.
fn imported(own: &Module, code: &str) -> Names {
    let mut found = Vec::new();
    for declaration in code.split(';') {
        let Some(start) = declaration.rfind("use ").filter(|at| {
            let before = declaration[..*at].trim_end_matches(' ');
            before.is_empty() || before.ends_with(['\n', ')']) || before.ends_with("pub")
        }) else {
            continue;
        };
        let path = &declaration[start + "use ".len()..];
        if ["crate::", "super::", "self::"].iter().any(|root| path.starts_with(root)) {
            found.extend(named(own, path));
        } else {
            paths(path, own, &mut found);
        }
    }
    found.into_iter().map(|(path, known_as)| (known_as, path)).collect()
}

/// Follows a path to the module in which its item stands, through what other modules
/// hand on.
fn resolve(path: &Module, modules: &BTreeMap<Module, Names>, depth: usize) -> Module {
    let mut at: Module = path.iter().take(1).cloned().collect();
    for (index, step) in path.iter().enumerate().skip(1) {
        let mut next = at.clone();
        next.push(step.clone());
        if modules.contains_key(&next) {
            at = next;
        } else if let Some(onward) = modules.get(&at).and_then(|names| names.get(step)).filter(|_| depth > 0)
        {
            let onward = onward.iter().chain(&path[index + 1..]).cloned().collect();
            let end = resolve(&onward, modules, depth - 1);
            return if end.len() > 1 { end } else { at };
        } else {
            break;
        }
    }
    at
}

/// The paths into the modules of its own folder that the code of a `mod.rs` names without a root. What
/// it only hands on does not count.
fn children_used(own: &Module, code: &str, modules: &BTreeMap<Module, Names>) -> Vec<(Module, String)> {
    let is_handed_on = |declaration: &&str| {
        let visibility = declaration.trim_start();
        visibility.starts_with("pub use ") || visibility.starts_with("pub(crate) use ")
    };
    let used: Vec<&str> = code.split(';').filter(|declaration| !is_handed_on(declaration)).collect();
    let children = modules.keys().filter(|module| module.len() == own.len() + 1 && module.starts_with(own));
    let is_named = |child: &&Module| {
        let prefix = format!("{}::", child[own.len()]);
        used.iter().any(|code| {
            code.match_indices(&prefix)
                .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':')))
        })
    };
    children.filter(is_named).map(|child| (child.clone(), String::new())).collect()
}

/// For each folder, which of its modules import which others.
fn imports_by_folder(sources: &[(Module, String)]) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
    let mut modules: BTreeMap<Module, Names> =
        sources.iter().map(|(own, code)| (own.clone(), imported(own, code))).collect();
    // A folder without a `mod.rs` is a module that its parent declares.
    for (own, _) in sources {
        (1..own.len()).for_each(|length| _ = modules.entry(own[..length].to_vec()).or_default());
    }
    let mut folders: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (own, code) in sources {
        for (path, _) in named(own, code).into_iter().chain(children_used(own, code, &modules)) {
            let other = resolve(&path, &modules, 8);
            let shared = own.iter().zip(&other).take_while(|(a, b)| a == b).count();
            // What stands in the `mod.rs` of the folder is one of its modules, too.
            let module_at = |module: &Module| module.get(shared).map_or("mod".to_owned(), String::clone);
            let (from, to) = (module_at(own), module_at(&other));
            if from != to {
                let folder = folders.entry(own[..shared].to_vec()).or_default();
                folder.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    folders
}

/// The shortest circle through the first module that is in one.
fn circle(imports: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    imports.keys().find_map(|start| {
        let mut ways = vec![vec![start.clone()]];
        let mut seen = BTreeSet::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                for next in way.last().and_then(|last| imports.get(last)).into_iter().flatten() {
                    let mut further = way.clone();
                    further.push(next.clone());
                    if next == start {
                        return Some(further);
                    }
                    if seen.insert(next.clone()) {
                        longer.push(further);
                    }
                }
            }
            ways = longer;
        }
        None
    })
}

fn circles(sources: &[(Module, String)]) -> BTreeMap<String, String> {
    let found = imports_by_folder(sources).into_iter().filter_map(|(folder, imports)| {
        let way = circle(&imports)?.join(" -> ");
        Some((folder.join("/"), way))
    });
    found.collect()
}

#[test]
fn no_modules_of_a_folder_import_each_other_in_a_circle() {
    let all: Vec<_> = sources().into_iter().map(|Source { module, code, .. }| (module, code)).collect();
    let found = circles(&all);
    assert!(found.is_empty(), "modules import each other in a circle: {found:#?}");
}

fn checked(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    let source = |(path, text): &(&str, &str)| (module(&Path::new("src").join(path)), code(text));
    let files: Vec<_> = files.iter().map(source).collect();
    circles(&files)
}

#[test]
fn circles_are_found_through_groups_third_modules_and_what_is_handed_on() {
    let direct = checked(&[
        ("a/mod.rs", "mod x; mod y;"),
        ("a/x.rs", "use super::y::{self, Y};"),
        ("a/y.rs", "fn f() { crate::a::x::g() }"),
    ]);
    assert_eq!(direct["src/a"], "x -> y -> x");

    let third = checked(&[
        ("a/mod.rs", "mod x; mod y; mod z;"),
        ("a/x.rs", "use crate::{a::y, error};"),
        ("a/y.rs", "use super::{z};"),
        ("a/z/mod.rs", "mod inner;"),
        ("a/z/inner.rs", "use super::super::x::X;"),
    ]);
    assert_eq!(third["src/a"], "x -> y -> z -> x");

    let handed_on = checked(&[
        ("a/mod.rs", "mod x;\nmod y;\npub use y::{Y as Z, Other};\n"),
        ("a/x.rs", "use super::Z;"),
        ("a/y.rs", "use super::x::X;"),
    ]);
    assert_eq!(handed_on["src/a"], "x -> y -> x");
}

#[test]
fn a_parent_is_a_module_like_others() {
    let parent = checked(&[("a/mod.rs", "mod x;\nuse x::X;\npub struct A;\n"), ("a/x.rs", "use super::A;")]);
    assert_eq!(parent["src/a"], "mod -> x -> mod");
}

#[test]
fn what_is_handed_on_comments_and_tests_make_no_circle() {
    let found = checked(&[
        ("a/mod.rs", "mod x;\nmod y;\npub(crate) use x::X;\npub struct A;\n"),
        ("a/x.rs", "use super::{A, y::Y};"),
        ("a/y.rs", "// crate::a::x\nuse super::A;\n#[cfg(test)]\nmod tests {\nuse super::super::x::X;\n}"),
    ]);
    assert_eq!(found, BTreeMap::new());
}
