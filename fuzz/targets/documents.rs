#![no_main]
//! XML documents: service properties, stored access policies, and trees. What
//! was read prints as a document that is read the same, and so is what is stored.

use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::assert_refused;
use rowhouse_protocol::codec::properties::Layout;
use rowhouse_protocol::codec::xml::{self, Element, Namespace};
use rowhouse_protocol::codec::{policies, properties};

fuzz_target!(|data: &[u8]| {
    tree(data);
    service(data);
    match policies::read(data) {
        Err(error) => assert_refused(&error),
        Ok(read) => {
            assert!(read.len() <= 5, "there are too many policies");
            let printed = policies::write(&read);
            assert_eq!(policies::read(printed.as_bytes()).as_ref(), Ok(&read), "{printed}");
            let stored = policies::to_stored(&read).expect("policies can be stored");
            assert_eq!(policies::from_stored(&stored), Ok(read));
        }
    }
});

fn service(data: &[u8]) {
    for layout in [Layout::Metrics, Layout::Cors] {
        let read = match properties::read(data, layout) {
            Ok(read) => read,
            Err(error) => {
                assert_refused(&error);
                continue;
            }
        };
        let stored = properties::to_stored(&read).expect("properties can be stored");
        assert_eq!(properties::from_stored(&stored).as_ref(), Ok(&read));
        let printed = properties::write(&read, layout);
        let again = properties::read(printed.as_bytes(), layout).expect("our own document is read");
        assert_eq!(properties::write(&again, layout), printed);
    }
}

fn tree(data: &[u8]) {
    let Ok(root) = xml::parse(data) else { return };
    if !is_plain(&root) {
        return;
    }
    let mut printed = String::new();
    let depth = print(&mut printed, &root);
    assert!(depth <= 32, "the document is too deep");
    assert_eq!(xml::parse(printed.as_bytes()).as_ref(), Ok(&root), "{printed}");
}

/// Whether names that are printed without prefixes still make the same document.
fn is_plain(element: &Element) -> bool {
    let plain = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphabetic());
    let mut names: Vec<&str> = element.attributes.iter().map(|attribute| attribute.name.as_str()).collect();
    names.sort_unstable();
    names.windows(2).all(|pair| pair[0] != pair[1])
        && names.into_iter().all(|name| plain(name) && name != "xmlns")
        && element.attributes.iter().all(|attribute| attribute.namespace == Namespace::None)
        && plain(&element.name)
        && element.namespace == Namespace::None
        && element.children.iter().all(is_plain)
}

/// Prints an element, its text before its children; returns how deep it is.
fn print(out: &mut String, element: &Element) -> usize {
    out.push_str(&format!("<{}", element.name));
    for attribute in &element.attributes {
        out.push_str(&format!(" {}=\"", attribute.name));
        xml::push_attribute(out, &attribute.value);
        out.push('"');
    }
    out.push('>');
    xml::push_text(out, &element.text);
    let depth = element.children.iter().map(|child| print(out, child)).max().unwrap_or_default();
    out.push_str(&format!("</{}>", element.name));
    depth + 1
}
