//! Parses small XML documents into trees (protocol §3.5, §4.6, §11.1).
//!
//! Prefixes must be declared. The readers of documents decide which namespaces matter. Document types are refused, so
//! only the five entities that XML predefines exist.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesDecl, BytesRef, BytesStart, Event};
use quick_xml::name::{self, NamespaceResolver, ResolveResult};

/// Maximum depth of nested elements.
const MAX_DEPTH: usize = 32;
/// Maximum elements of a document.
const MAX_ELEMENTS: usize = 20_000;
/// Maximum number of attributes of an element, each of which is compared with all previous attributes.
const MAX_ATTRIBUTES: usize = 64;
/// Maximum number of namespace declarations in scope.
const MAX_NAMESPACES: usize = 64;

/// The namespace of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Namespace {
    #[default]
    None,
    Atom,
    /// The namespace of properties.
    Data,
    /// The namespace of metadata.
    Metadata,
    /// The namespace of `xml:space` and the like.
    Xml,
    Foreign,
}

impl Namespace {
    /// Returns the namespace that a prefix resolves to.
    fn of(resolved: &ResolveResult<'_>) -> Result<Self, Malformed> {
        match resolved {
            ResolveResult::Unbound => Ok(Namespace::None),
            ResolveResult::Unknown(_) => Err(Malformed),
            ResolveResult::Bound(name::Namespace(uri)) => Ok(match *uri {
                "http://www.w3.org/2005/Atom" => Namespace::Atom,
                "http://schemas.microsoft.com/ado/2007/08/dataservices" => Namespace::Data,
                "http://schemas.microsoft.com/ado/2007/08/dataservices/metadata" => Namespace::Metadata,
                "http://www.w3.org/XML/1998/namespace" => Namespace::Xml,
                _ => Namespace::Foreign,
            }),
        }
    }
}

/// An element with its content. `text` is the unaltered text between its tags, without that of children.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    pub namespace: Namespace,
    pub name: String,
    /// The attributes, without namespace declarations.
    pub attributes: Vec<Attribute>,
    pub text: String,
    pub children: Vec<Element>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    pub namespace: Namespace,
    pub name: String,
    pub value: String,
}

/// The error for an invalid document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Element {
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    pub(crate) fn is(&self, namespace: Namespace, name: &str) -> bool {
        self.namespace == namespace && self.name == name
    }

    pub(crate) fn attribute(&self, namespace: Namespace, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|a| a.namespace == namespace && a.name == name);
        found.map(|attribute| attribute.value.as_str())
    }

    /// Returns whether the text and attributes of the element and its children contain only characters that
    /// XML can represent.
    fn holds_only_xml(&self) -> bool {
        let values = self.attributes.iter().map(|attribute| &attribute.value);
        !values.chain([&self.text]).any(|text| text.contains(is_not_xml))
            && self.children.iter().all(Self::holds_only_xml)
    }

    /// Returns the text without surrounding white space.
    pub(crate) fn trimmed(&self) -> &str {
        self.text.trim()
    }
}

/// Parses a document, which is one element, optionally after a declaration.
///
/// # Errors
/// [`Malformed`] for documents that are not well-formed, for undeclared prefixes and document types, and
/// beyond the limits of depth and size.
pub fn parse(bytes: &[u8]) -> Result<Element, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed)?;
    // XML cannot represent U+0000, so a printed copy could not be parsed.
    if text.contains('\0') {
        return Err(Malformed);
    }
    let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut tree = Tree::default();
    tree.namespaces.set_max_namespace_bindings(MAX_NAMESPACES);
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

/// Parses a document whose characters, including those in references, XML can represent. A printed copy of
/// the document can be parsed again.
pub fn parse_strictly(bytes: &[u8]) -> Result<Element, Malformed> {
    parse(bytes).and_then(|root| if root.holds_only_xml() { Ok(root) } else { Err(Malformed) })
}

/// Returns whether a character cannot be represented in XML 1.0.
const fn is_not_xml(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns whether a UTF-8 document may have this declaration. Some writers declare UTF-16 regardless of the
/// encoding. Text in any other encoding would be misread.
fn is_unicode(declaration: &BytesDecl<'_>) -> bool {
    declaration.encoding().is_none_or(|encoding| {
        encoding.is_ok_and(|name| {
            ["utf-8", "utf-16", "us-ascii"].iter().any(|known| known.eq_ignore_ascii_case(&name))
        })
    })
}

/// The part of the document that has been parsed so far.
#[derive(Default)]
struct Tree {
    /// Namespaces declared by open elements.
    namespaces: NamespaceResolver,
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
}

impl Tree {
    fn open(&mut self, start: &BytesStart<'_>) -> Result<(), Malformed> {
        self.elements += 1;
        let is_second_root = self.open.is_empty() && self.root.is_some();
        if is_second_root || self.open.len() >= MAX_DEPTH || self.elements > MAX_ELEMENTS {
            return Err(Malformed);
        }
        if start.attributes().nth(MAX_ATTRIBUTES).is_some() {
            return Err(Malformed);
        }
        self.namespaces.push(start).map_err(|_| Malformed)?;
        let attributes = self.attributes(start)?;
        let (resolved, name) = self.namespaces.resolve_element(start.name());
        let (namespace, name) = (Namespace::of(&resolved)?, name.as_ref().to_owned());
        self.open.push(Element { namespace, name, attributes, ..Element::default() });
        Ok(())
    }

    fn attributes(&self, start: &BytesStart<'_>) -> Result<Vec<Attribute>, Malformed> {
        let mut attributes: Vec<Attribute> = Vec::new();
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|_| Malformed)?;
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|_| Malformed)?;
            if attribute.key.as_namespace_binding().is_some() {
                continue;
            }
            let (resolved, name) = self.namespaces.resolve_attribute(attribute.key);
            let (namespace, name) = (Namespace::of(&resolved)?, name.as_ref().to_owned());
            // A duplicate may use a different prefix for the same namespace.
            if namespace != Namespace::Foreign
                && attributes.iter().any(|a| a.namespace == namespace && a.name == name)
            {
                return Err(Malformed);
            }
            attributes.push(Attribute { namespace, name, value: value.into_owned() });
        }
        Ok(attributes)
    }

    fn close(&mut self) -> Result<(), Malformed> {
        self.namespaces.pop();
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

/// The start of the documents of policies, service properties and stats.
pub(crate) const DECLARATION: &str = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>";

/// Appends an element that contains only text.
pub(crate) fn push_element(out: &mut String, name: &str, text: &str) {
    if text.is_empty() {
        out.push_str(&format!("<{name} />"));
    } else {
        out.push_str(&format!("<{name}>{}</{name}>", escaped(text)));
    }
}

/// Returns text with the escapes of [`push_text`].
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_text(&mut out, text);
    out
}

/// Appends text with `<`, `>` and `&` escaped, and with character references for characters that XML cannot
/// contain literally.
pub fn push_text(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c == '\r' || is_not_xml(c) => {
                out.push_str(&format!("&#x{:X};", u32::from(c)));
            }
            c => out.push(c),
        }
    }
}

/// Appends an attribute value without its quotes.
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

    fn with_attributes(count: usize) -> String {
        let attributes: String = (0..count).map(|n| format!(" b{n}=''")).collect();
        format!("<a{attributes}/>")
    }

    #[test]
    fn documents_become_trees() {
        let root = parse(
            "\u{feff}<?xml version='1.0' encoding='utf-8'?>\n<!-- c --><a:Root xmlns:a='x' a:k='1 &amp; 2'>\
             <B/> t <c>x&lt;<![CDATA[<y>]]>&#65;</c></a:Root>\n"
                .as_bytes(),
        )
        .unwrap();
        assert!(root.is(Namespace::Foreign, "Root"));
        assert_eq!(root.attribute(Namespace::Foreign, "k"), Some("1 & 2"));
        assert_eq!(root.attribute(Namespace::None, "k"), None);
        assert_eq!(root.text, " t ");
        assert_eq!(root.child("c").unwrap().text, "x<<y>A");
        assert!(root.child("B").is_some() && root.child("b").is_none());
    }

    #[test]
    fn what_is_not_well_formed_or_dangerous_is_refused() {
        let deep = "<a>".repeat(100_000);
        let wide = format!("<a>{}</a>", "<b/>".repeat(MAX_ELEMENTS));
        let many = |kind: &str| (0..=MAX_ATTRIBUTES).map(|n| format!(" {kind}a{n}='u'")).collect::<String>();
        let (attributes, namespaces) = (format!("<a{}/>", many("")), format!("<a{}/>", many("xmlns:")));
        let nested =
            (0..=MAX_NAMESPACES).map(|n| format!("<a xmlns:n{n}='u' xmlns:o{n}='v'>")).collect::<String>();
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
            "<p:a/>",
            "<a p:b='1'/>",
            "<a><b xmlns:p='u'/><p:c/></a>",
            "<a xmlns:p=''><p:b/></a>",
            "<a xmlns:p='http://www.w3.org/2005/Atom' xmlns:q='http://www.w3.org/2005/Atom' p:b='1' q:b='2'/>",
            "<a xmlns:xml='u'/>",
            "<a xmlns:xmlns='u'/>",
            attributes.as_str(),
            namespaces.as_str(),
            nested.as_str(),
            "<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>",
            "<a>&#xD800;</a>",
            "<a>\0</a>",
            "<a>&#0;</a>",
            deep.as_str(),
            wide.as_str(),
            with_attributes(MAX_ATTRIBUTES + 1).as_str(),
        ] {
            assert_eq!(parse(bad.as_bytes()), Err(Malformed), "{}", &bad[..bad.len().min(60)]);
        }
        assert_eq!(parse(b"<a>\xff</a>"), Err(Malformed));
        assert!(parse(with_attributes(MAX_ATTRIBUTES).as_bytes()).is_ok());
    }

    #[test]
    fn names_have_the_namespace_that_their_prefix_was_declared_for() {
        let root = parse(
            b"<a xmlns='http://www.w3.org/2005/Atom' xmlns:d='u' t='1' xml:space='preserve'>\
              <d:b xmlns:d='http://schemas.microsoft.com/ado/2007/08/dataservices'/><d:b/><b xmlns=''/></a>",
        )
        .unwrap();
        assert!(root.is(Namespace::Atom, "a"));
        assert_eq!(root.attribute(Namespace::None, "t"), Some("1"));
        assert_eq!(root.attribute(Namespace::Xml, "space"), Some("preserve"));
        let namespaces: Vec<_> = root.children.iter().map(|child| child.namespace).collect();
        assert_eq!(namespaces, [Namespace::Data, Namespace::Foreign, Namespace::None]);
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
            prop_assert_eq!(read.attribute(Namespace::None, "k"), Some(text.as_str()));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }
    }
}
