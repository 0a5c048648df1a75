//! Addresses of every form, and of none.

use super::*;

#[test]
fn an_absolute_target_is_an_address_like_any() {
    let client = site().client();
    let table = client.table();
    let text = small(&table);
    let absolute = text.replacen("POST ", &format!("POST http://{}", client.host()), 1);
    assert_eq!(answer_to(&client, absolute.as_bytes()).status, 201);
    // It makes up for an empty header, and is the one that counts beside another.
    let host = format!("\r\nHost: {}\r\n", client.host());
    for other in ["\r\nHost:\r\n", "\r\nHost: elsewhere.table.example\r\n"] {
        let answer = answer_to(&client, absolute.replacen(&host, other, 1).as_bytes());
        assert_eq!(answer.status, 409, "{answer:?}");
    }
    let of_an_account = format!("POST http://{}.table.example", client.account.name);
    let answer = answer_to(&client, small(&table).replacen("POST ", &of_an_account, 1).as_bytes());
    assert_eq!(answer.status, 404, "the path has the account too: {answer:?}");
    // Whose host is another one's, the path decides all the same.
    let elsewhere = small(&table).replacen("POST ", "POST http://elsewhere.example", 1);
    assert_eq!(answer_to(&client, elsewhere.as_bytes()).status, 409);
}

#[test]
fn targets_that_are_no_paths_are_refused() {
    let client = site().client();
    for target in
        ["*", "x", "http://", "http:///x", "//", "/", "?", "/?", "#", "example.com:80", "/%", "/\\..\\x"]
    {
        for method in ["GET", "POST", "OPTIONS", "DELETE"] {
            let text = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
            refused_with(&client, &[400, 401, 403, 404, 405], text.as_bytes());
        }
    }
}

#[test]
fn bytes_that_no_address_holds_are_refused() {
    let client = site().client();
    for bytes in
        [&b"\xff"[..], b"\xc3\x28", b"\0", b"\x7f", b"\x01", b"\t", b"<>", b"\"", b"`", b"{}", b"|", b"^"]
    {
        for place in ["/Tables('", "/Tables?$filter="] {
            let target = [client.target(place).as_bytes(), bytes].concat();
            let text = [b"GET ", &target[..], b" HTTP/1.1\r\nHost: x\r\n\r\n"].concat();
            refused_with(&client, &[400, 401, 403, 404], &text);
        }
    }
}
