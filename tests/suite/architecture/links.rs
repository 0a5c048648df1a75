//! The links of the documentation: each leads to a file and a heading that are there, and each page can
//! be reached.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::files;

/// Pages outside `docs`.
const OUTSIDE: [&str; 6] =
    ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benches/README.md", "tests/README.md"];

/// The text without blocks and spans of code.
fn prose(page: &str) -> String {
    let blocks = page.split("```").step_by(2);
    let lines = blocks.flat_map(str::lines).filter(|line| !line.starts_with("    "));
    lines.map(|line| line.split('`').step_by(2).collect::<String>() + "\n").collect()
}

/// The targets of links in a page: `[text](target "title")` and `[name]: target`.
fn targets(page: &str) -> Vec<String> {
    let prose = prose(page);
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next());
    let defined =
        prose.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ").map(|(_, to)| to));
    inline.chain(defined).map(str::to_owned).collect()
}

/// The anchors of a page's headings: lower case, spaces as hyphens, most punctuation left out.
fn anchors(page: &str) -> BTreeSet<String> {
    let outside_code = page.split("```").step_by(2).flat_map(str::lines);
    let headings = outside_code.filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#'));
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then_some(c),
    };
    headings.map(|text| text.trim().to_lowercase().chars().filter_map(kept).collect()).collect()
}

/// The path that a link of `page` leads to, below the root of the repository.
fn resolved(page: &Path, target: &str) -> PathBuf {
    if target.is_empty() {
        return page.to_path_buf();
    }
    let mut path = page.parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    path
}

type Pages = BTreeMap<PathBuf, String>;

fn pages() -> Pages {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| Some((PathBuf::from(name), std::fs::read_to_string(root.join(name)).ok()?));
    files("docs", "md").into_iter().chain(OUTSIDE.into_iter().filter_map(read)).collect()
}

/// The relative links of a page, with the path that each leads to and its anchor.
fn links(path: &Path, page: &str) -> Vec<(String, PathBuf, Option<String>)> {
    // An address of the forge, not a file: the badge.
    let is_ours = |target: &String| !target.contains("://") && !target.contains("/actions/");
    let link = |target: String| {
        let (file, anchor) = match target.split_once('#') {
            Some((file, anchor)) => (file, Some(anchor.to_owned())),
            None => (target.as_str(), None),
        };
        (target.clone(), resolved(path, file), anchor)
    };
    targets(page).into_iter().filter(is_ours).map(link).collect()
}

/// Links that lead to no file or no heading.
fn broken(pages: &Pages) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut broken = Vec::new();
    for (path, page) in pages {
        for (target, to, anchor) in links(path, page) {
            let is_there = pages.contains_key(&to) || root.join(&to).exists();
            let has_heading = match (anchor, pages.get(&to)) {
                (Some(anchor), Some(page)) => anchors(page).contains(&anchor),
                (anchor, _) => anchor.is_none(),
            };
            if !is_there || !has_heading {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    broken
}

/// Pages of `docs` that no other page links to.
fn unreached(pages: &Pages) -> Vec<String> {
    let reached: BTreeSet<PathBuf> = pages
        .iter()
        .flat_map(|(path, page)| {
            links(path, page).into_iter().map(|(_, to, _)| to).filter(move |to| to != path)
        })
        .collect();
    let docs = pages.keys().filter(|path| path.starts_with("docs"));
    docs.filter(|path| !reached.contains(*path)).map(|path| path.display().to_string()).collect()
}

#[test]
fn links_to_nothing_and_pages_without_links_are_noticed() {
    let page = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let pages = Pages::from([
        page(
            "docs/a.md",
            "# The first: `one`\n[b](b.md#part-2) [x](gone.md) [self](#the-first-one) `[c](c.md)`",
        ),
        page("docs/b.md", "## Part 2\n[a](a.md#the-second)\n[far]: ../Cargo.toml\n```\n[d](d.md)\n```\n"),
        page("docs/c.md", "[c](c.md) [out](https://example.com/x#y)"),
    ]);
    assert_eq!(broken(&pages), ["docs/a.md: gone.md", "docs/b.md: a.md#the-second"]);
    assert_eq!(unreached(&pages), ["docs/c.md"]);
}

#[test]
fn every_link_of_the_documentation_leads_somewhere() {
    let pages = pages();
    assert!(pages.len() > 20, "{:?}", pages.keys());
    let broken = broken(&pages);
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_linked_to_from_another_one() {
    let unreached = unreached(&pages());
    assert!(unreached.is_empty(), "{unreached:?}");
}
