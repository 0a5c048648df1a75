//! The files of the console page, built into the program from the folder `console`.

use actix_web::http::header;
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::server::admin::call::{Call, weight_of};
use crate::server::admin::reply::{Outcome, Refusal, Reply};
use crate::server::admin::route::{Route, open};

pub(crate) const ROUTES: &[Route] = &[
    open("GET", "/", |call| Box::pin(redirect(call)))
        .of_console()
        .about("rootRedirect", "Redirect to the console")
        .redirects("The console is at /console/."),
    open("GET", "/console", |call| Box::pin(redirect(call)))
        .of_console()
        .about("consoleRedirect", "Redirect to the console")
        .redirects("The console is at /console/."),
    open("GET", "/console/{asset...}", |call| Box::pin(asset(call)))
        .of_console()
        .about("consoleAsset", "A file of the console")
        .details("The asset may be empty, for the page itself.")
        .answers_text("The file.", &["text/html"])
        .others(&[
            (304, "The file that If-None-Match names is the current one."),
            (404, "There is no such file."),
        ]),
];

#[derive(RustEmbed)]
#[folder = "console/"]
struct ConsoleFiles;

/// The compression level: little CPU time for each file.
const LEVEL: i32 = 3;
/// The document that `/console/` returns.
const PAGE: &str = "index.html";

/// Allows the page only its own files and requests to this listener: nothing inline, and nothing from other
/// sites.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                                       img-src 'self' data:; connect-src 'self'; form-action 'none'; \
                                       frame-ancestors 'none'; base-uri 'none'";

/// Redirects to the page. The address is relative, so it also works behind a proxy that adds a path prefix.
async fn redirect(_: &Call<'_>) -> Outcome {
    Ok(Reply::empty(308).with("Location", "console/"))
}

async fn asset(call: &Call<'_>) -> Outcome {
    let path = match call.parameter("asset") {
        "" => PAGE,
        path => path,
    };
    let missing = || Refusal::new(404, "NotFound", "There is no such file.");
    let content_type = content_type(path).ok_or_else(missing)?;
    let file = ConsoleFiles::get(path).ok_or_else(missing)?;
    let etag = etag(&file);
    let is_known = call.header(header::IF_NONE_MATCH).is_some_and(|known| names(known, &etag));
    let reply = match is_known {
        true => Reply::empty(304),
        false => encoded(content_type, file, call.header(header::ACCEPT_ENCODING)),
    };
    // The browser revalidates each time, so that a page never mixes files of two versions.
    let reply = reply.with("Cache-Control", "no-cache").with("ETag", etag);
    Ok(reply
        .with("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        .with("Cross-Origin-Opener-Policy", "same-origin")
        .with("Cross-Origin-Resource-Policy", "same-origin")
        .with("Referrer-Policy", "no-referrer"))
}

/// Returns the content of a file, compressed if the client accepts zstd.
fn encoded(content_type: &'static str, file: EmbeddedFile, accepted: Option<&str>) -> Reply {
    let compress = || zstd::bulk::compress(&file.data, LEVEL).ok();
    match accepted.filter(|list| weight_of("zstd", list) > 0.0).and_then(|_| compress()) {
        Some(body) => Reply::text(content_type, body).with("Content-Encoding", "zstd"),
        None => Reply::text(content_type, file.data),
    }
    .with("Vary", "Accept-Encoding")
}

/// Returns the content type of a file of the page, or `None` for other files in the folder.
fn content_type(path: &str) -> Option<&'static str> {
    let (_, extension) = path.rsplit_once('.')?;
    Some(match extension {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}

fn etag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let digits: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

/// Returns whether a list of ETags contains this ETag (RFC 9110, 13.1.2).
fn names(list: &str, etag: &str) -> bool {
    list.split(',')
        .map(|known| known.trim().trim_start_matches("W/"))
        .any(|known| known == etag || known == "*")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn files(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => files(&entry.path(), &format!("{name}/"), found),
                false => drop(found.insert(name)),
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_in_the_program_and_has_a_type() {
        let mut there = BTreeSet::new();
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("console"), "", &mut there);
        let embedded: BTreeSet<String> = ConsoleFiles::iter().map(|name| name.into_owned()).collect();
        assert_eq!(embedded, there);
        assert!(embedded.contains(PAGE));
        for name in &embedded {
            assert!(content_type(name).is_some(), "{name}");
        }
    }

    #[test]
    fn zstd_is_used_where_it_is_understood() {
        let file = || ConsoleFiles::get("style.css").unwrap();
        let plain = encoded("text/css", file(), None);
        let small = encoded("text/css", file(), Some("zstd"));
        assert_eq!(encoded("text/css", file(), Some("gzip")).body, plain.body);
        assert!(small.body.len() < plain.body.len() / 2);
        assert_eq!(zstd::bulk::decompress(&small.body, plain.body.len()).unwrap(), plain.body);
    }

    #[test]
    fn lists_of_etags_are_compared_weakly() {
        for (list, known) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(names(list, "\"a\""), known, "{list}");
        }
    }
}
