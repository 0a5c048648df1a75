//! Commands that only ask: `healthcheck`, `check`, `version`, `completions`, help.

use std::io::{Read, Write};

use super::*;
use crate::support::server::account;

#[test]
fn the_health_check_asks_the_server_of_the_settings() {
    let site = Site::sqlite();
    let server = site.server(&["--accounts", &account(1).setting()]);
    let address = server.address().to_owned();
    let healthy = site.json(&["healthcheck", "--timeout", "60", "--listen", &address]);
    assert_eq!(
        (&healthy["healthy"], healthy["address"].as_str()),
        (&true.into(), Some(format!("http://{address}").as_str()))
    );
    // As in a container, where the server listens everywhere.
    let everywhere = address.replace("127.0.0.1", "0.0.0.0");
    let output = site.run_with(&["healthcheck", "--timeout", "60"], &[("ROWHOUSE_LISTEN", &everywhere)]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("http://{address} answers.\n"));
    // A proxy of the surroundings is not asked.
    let ask = ["healthcheck", "--timeout", "60", "--listen", &address];
    let proxied = site.run_with(&ask, &[("http_proxy", "http://127.0.0.1:1")]);
    assert!(proxied.status.success(), "{proxied:?}");
    drop(server);
    site.fails(&ask, &[&address, "does not answer"]);
    site.fails(&["healthcheck", "--listen", "127.0.0.1:0"], &["port"]);
}

#[test]
fn the_health_check_is_not_fooled() {
    let site = Site::sqlite();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        // The first is answered by somebody else, the second by nobody.
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        drop(stream);
        let (mut silent, _) = listener.accept().expect("a connection");
        let _ = silent.read_to_end(&mut Vec::new());
    });
    site.fails(&["healthcheck", "--listen", &address, "--timeout", "60"], &["something else"]);
    site.fails(&["healthcheck", "--listen", &address, "--timeout", "1"], &["does not answer"]);
}

#[test]
fn the_version_is_told_in_both_forms() {
    let site = Site::sqlite();
    let text = site.run(&["version"]);
    assert_eq!(String::from_utf8_lossy(&text.stdout), format!("rowhouse {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(site.json(&["version"])["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn completions_know_the_commands() {
    let site = Site::sqlite();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = site.run(&["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout).into_owned();
        for word in ["healthcheck", "rotate", "master-key"] {
            assert!(output.status.success() && script.contains(word), "{word} for {shell}");
        }
    }
    let script = site.folder.join("completions");
    std::fs::write(&script, site.run(&["completions", "bash"]).stdout).expect("the folder is writable");
    let asked = "source \"$1\"; COMP_WORDS=(rowhouse account ro); COMP_CWORD=2; _rowhouse rowhouse ro account; echo \"${COMPREPLY[@]}\"";
    if let Ok(answer) = std::process::Command::new("bash").args(["-c", asked, "bash"]).arg(&script).output() {
        assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "rotate", "{answer:?}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let site = Site::sqlite();
    let folder = site.folder.join("man");
    site.fails(&["man", &folder.display().to_string()], &["man: "]);
    std::fs::create_dir(&folder).expect("the folder is writable");
    site.ends(&["man", &folder.display().to_string()], 0, &[]);
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
    assert!(page("rowhouse.1").contains("rowhouse\\-copy(1)"));
    assert!(page("rowhouse-account-add.1").contains("master\\-key"));
    assert!(!folder.join("rowhouse-man.1").exists(), "it is for packages alone");
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let site = Site::sqlite();
    let commands = "serve, account add, account list, account rotate, account disable, account enable, \
                    account remove, sas table, sas account, healthcheck, version, migrate, check, completions, \
                    expire set, expire list, expire clear, view sql";
    for command in commands.split(", ") {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        site.ends(&words, 0, &[&format!("\n  rowhouse {command}")]);
    }
}
