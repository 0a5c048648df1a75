//! Small XML documents as trees (protocol §3.5, §4.6, §11.1).
//!
//! Namespaces are read by local name only. Document types, and with them every
//! entity but the five that XML has by itself, are refused.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesDecl, BytesRef, BytesStart, Event};

/// Nesting at most.
const MAX_DEPTH: usize = 32;
/// Elements of a document at most.
const MAX_ELEMENTS: usize = 20_000;

/// An element with what it holds. Text is everything between its tags that is
/// not inside a child, unaltered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    pub name: String,
    pub attributes: Vec<(String, String)>,
    pub text: String,
    pub children: Vec<Element>,
}

/// Not a document that we read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Element {
    /// The first child of this name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether there is nothing in its text and attributes, or its children's, that
    /// XML cannot hold.
    fn holds_only_xml(&self) -> bool {
        let values = self.attributes.iter().map(|(_, value)| value);
        !values.chain([&self.text]).any(|text| text.contains(is_foreign))
            && self.children.iter().all(Self::holds_only_xml)
    }

    /// The text without white space around it.
    pub fn trimmed(&self) -> &str {
        self.text.trim()
    }
}

/// Reads a document: one element, perhaps after a declaration.
///
/// # Errors
/// [`Malformed`] for what is not well-formed, for document types, and past the
/// limits of depth and size.
pub fn parse(bytes: &[u8]) -> Result<Element, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed)?;
    // XML has no way to write U+0000, so nothing that we print could be read.
    if text.contains('\0') {
        return Err(Malformed);
    }
    let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut tree = Tree::default();
    loop {
        match reader.read_event().map_err(|_| Malformed)? {
            Event::Start(start) => tree.open(&start)?,
            Event::Empty(start) => {
                tree.open(&start)?;
                tree.close()?;
            }
            Event::End(_) => tree.close()?,
            Event::Text(text) => tree.push_text(&text.xml10_content())?,
            Event::CData(data) => tree.push_text(&data.xml10_content())?,
            Event::GeneralRef(reference) => tree.push_reference(&reference)?,
            Event::Decl(declaration) if !is_unicode(&declaration) => return Err(Malformed),
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
            Event::DocType(_) => return Err(Malformed),
            Event::Eof => return tree.finish(),
        }
    }
}

/// Reads a document in which every character, referred to or not, is one that XML
/// can hold. What is printed of such a document reads back.
///
/// # Errors
/// As [`parse`], and [`Malformed`] for other characters.
pub fn parse_strictly(bytes: &[u8]) -> Result<Element, Malformed> {
    parse(bytes).and_then(|root| if root.holds_only_xml() { Ok(root) } else { Err(Malformed) })
}

/// Whether a character cannot be in a document of XML 1.0.
const fn is_foreign(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether a document that is UTF-8 may have this declaration. Writers of strings
/// declare UTF-16 whatever becomes of the string, and no document in UTF-16 is UTF-8
/// too; text in any other encoding would be taken for what it is not.
fn is_unicode(declaration: &BytesDecl<'_>) -> bool {
    declaration.encoding().is_none_or(|encoding| {
        encoding.is_ok_and(|name| {
            ["utf-8", "utf-16", "us-ascii"].iter().any(|known| known.eq_ignore_ascii_case(&name))
        })
    })
}

/// The document read so far.
#[derive(Default)]
struct Tree {
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
}

impl Tree {
    fn open(&mut self, start: &BytesStart<'_>) -> Result<(), Malformed> {
        self.elements += 1;
        let second_root = self.open.is_empty() && self.root.is_some();
        if second_root || self.open.len() >= MAX_DEPTH || self.elements > MAX_ELEMENTS {
            return Err(Malformed);
        }
        let mut attributes = Vec::new();
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|_| Malformed)?;
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|_| Malformed)?;
            attributes.push((attribute.key.local_name().as_ref().to_owned(), value.into_owned()));
        }
        let name = start.local_name().as_ref().to_owned();
        self.open.push(Element { name, attributes, ..Element::default() });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Malformed> {
        let element = self.open.pop().ok_or(Malformed)?;
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn push_text(&mut self, text: &str) -> Result<(), Malformed> {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(Malformed),
        }
        Ok(())
    }

    fn push_reference(&mut self, reference: &BytesRef<'_>) -> Result<(), Malformed> {
        if let Some(c) = reference.resolve_char_ref().map_err(|_| Malformed)? {
            return self.push_text(c.encode_utf8(&mut [0; 4]));
        }
        let text = match &*reference.xml10_content() {
            "lt" => "<",
            "gt" => ">",
            "amp" => "&",
            "apos" => "'",
            "quot" => "\"",
            _ => return Err(Malformed),
        };
        self.push_text(text)
    }

    fn finish(self) -> Result<Element, Malformed> {
        if self.open.is_empty() { self.root.ok_or(Malformed) } else { Err(Malformed) }
    }
}

/// Appends text with `<`, `>` and `&` escaped, and characters that XML cannot hold
/// as they are as character references.
pub fn push_text(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c == '\r' || is_foreign(c) => {
                out.push_str(&format!("&#x{:X};", u32::from(c)));
            }
            c => out.push(c),
        }
    }
}

/// Appends an attribute's value, without its quotes.
pub fn push_attribute(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("&quot;"),
            '\t' | '\n' => out.push_str(&format!("&#x{:X};", u32::from(c))),
            c => push_text(out, c.encode_utf8(&mut [0; 4])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn documents_become_trees() {
        let root = parse(
            "\u{feff}<?xml version='1.0' encoding='utf-8'?>\n<!-- c --><a:Root xmlns:a='x' m:k='1 &amp; 2'>\
             <B/> t <c>x&lt;<![CDATA[<y>]]>&#65;</c></a:Root>\n"
                .as_bytes(),
        )
        .unwrap();
        assert_eq!(root.name, "Root");
        assert_eq!(root.attribute("k"), Some("1 & 2"));
        assert_eq!(root.text, " t ");
        assert_eq!(root.child("c").unwrap().text, "x<<y>A");
        assert!(root.child("B").is_some() && root.child("b").is_none());
    }

    #[test]
    fn what_is_not_well_formed_or_dangerous_is_refused() {
        let deep = "<a>".repeat(100_000);
        let wide = format!("<a>{}</a>", "<b/>".repeat(MAX_ELEMENTS));
        for bad in [
            "",
            "x",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<a>&nope;</a>",
            "<a b=c/>",
            "<?xml version='1.0' encoding='iso-8859-1'?><a/>",
            "<a/>x",
            "<a b='1' b='2'/>",
            "<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>",
            "<a>&#xD800;</a>",
            "<a>\0</a>",
            "<a>&#0;</a>",
            deep.as_str(),
            wide.as_str(),
        ] {
            assert_eq!(parse(bad.as_bytes()), Err(Malformed), "{}", &bad[..bad.len().min(60)]);
        }
        assert_eq!(parse(b"<a>\xff</a>"), Err(Malformed));
    }

    proptest! {
        #[test]
        fn printed_text_reads_back(text in "[\u{9}\u{a}\u{d}\u{20}-\u{7e}é漢😀]{0,20}") {
            let mut document = String::from("<a k=\"");
            push_attribute(&mut document, &text);
            document.push_str("\">");
            push_text(&mut document, &text);
            document.push_str("</a>");
            let read = parse(document.as_bytes()).unwrap();
            prop_assert_eq!(&read.text, &text);
            prop_assert_eq!(read.attribute("k"), Some(text.as_str()));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }
    }
}
