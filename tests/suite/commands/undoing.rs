//! The commands of the page on undoing mistakes, run as they are written but for paths and databases of its own.

use serde_json::json;

use super::*;

const PAGE: &str = include_str!("../../../docs/how-to/undo.md");

/// The blocks for a shell below a heading.
fn blocks(heading: &str) -> Vec<&'static str> {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    section.split("```sh\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect()
}

/// A database with the account, its table Orders, a backup and a dump of them, whose paths the commands get.
struct Mistaken {
    site: Site,
    account: Account,
}

impl Mistaken {
    fn new() -> Self {
        let site = Site::sqlite();
        let added = site.json(&["account", "add", "myaccount"]);
        let key = |at: usize| added["keys"][at].as_str().expect("a key").to_owned();
        let account = Account { name: "myaccount".into(), keys: [key(0), key(1)] };
        let this = Self { site, account };
        let server = this.serve();
        let client = this.client(&server);
        client.create_table("Orders").expect(201);
        Table::new(&client, "Orders").seed(with_keys("2026", "1", json!({ "N": 5 })));
        drop(server);
        this.shell("rowhouse backup copy.db && rowhouse copy \"$DATABASE_URL#myaccount\" dump:dumped");
        this
    }

    fn serve(&self) -> Process {
        self.site.server(&["--keep-deleted", "7d"])
    }

    fn client(&self, server: &Process) -> Client {
        Client::path_style(server.address(), self.account.clone())
    }

    #[track_caller]
    fn shell(&self, commands: &str) {
        let local = [
            ("sqlite:///backups/copy.db", "sqlite://copy.db"),
            ("postgres://postgres@127.0.0.1:54394/rowhouse", "sqlite://copy.db"),
            ("sqlite:///var/lib/rowhouse/rowhouse.db", &self.site.url),
            ("postgres://postgres@127.0.0.1/rowhouse", &self.site.url),
            ("dump:/backups/2026-11-26", "dump:dumped"),
            ("cd /var/lib/rowhouse && ", ""),
            ("/backups/copy.db", "copy.db"),
            ("rowhouse.db", "tables.db"),
            // As a person confirms at a terminal.
            ("--mode replace", "--mode replace --yes"),
        ];
        let commands =
            local.iter().fold(commands.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours));
        let output = bash(&self.site.folder, &commands)
            .envs([("DATABASE_URL", self.site.url.as_str()), ("ROWHOUSE_MASTER_KEY", MASTER)])
            .output()
            .expect("a shell");
        assert!(output.status.success(), "{commands}: {output:?}");
    }
}

#[test]
fn the_commands_on_deleted_tables_bring_them_back_and_purge_them() {
    let mistaken = Mistaken::new();
    let server = mistaken.serve();
    let client = mistaken.client(&server);
    let [block] = blocks("A deleted table")[..] else { panic!("one block") };
    let [list, undelete, restore_as, purge] = block.lines().collect::<Vec<_>>()[..] else {
        panic!("four lines")
    };
    client.delete_table("Orders").expect(204);
    mistaken.shell(list);
    mistaken.shell(undelete);
    assert_eq!(Table::new(&client, "Orders").entity("2026", "1")["N"], 5);
    client.delete_table("Orders").expect(204);
    mistaken.shell(restore_as);
    assert_eq!(Table::new(&client, "OrdersOfMay").entity("2026", "1")["N"], 5);
    client.create_table("Orders").expect(201);
    client.delete_table("Orders").expect(204);
    let deleted = || mistaken.site.json(&["table", "deleted", "--account", "myaccount"])["tables"].clone();
    let number = deleted()[0]["id"].to_string();
    mistaken.shell(&format!("{} --yes", purge.replace("81064793292668", &number)));
    assert_eq!(deleted(), json!([]));
}

#[test]
fn the_commands_on_copies_bring_back_what_was_overwritten() {
    let mistaken = Mistaken::new();
    let [copied_back, replaced] = blocks("A backup of SQLite")[..] else { panic!("two blocks") };
    let [.., from_a_copy] = blocks("A point in time, on PostgreSQL")[..] else { panic!("blocks") };
    let [from_a_dump] = blocks("A dump")[..] else { panic!("one block") };
    // Each begins with an entity that was overwritten, but for the one that only adds what is missing.
    let overwrite = || {
        let server = mistaken.serve();
        let client = mistaken.client(&server);
        let orders = Table::new(&client, "Orders");
        orders.delete("2026", "1", Some("*")).expect(204);
        orders.seed(with_keys("2026", "1", json!({ "N": 6 })));
    };
    let value = |table: &str| {
        let server = mistaken.serve();
        Table::new(&mistaken.client(&server), table).entity("2026", "1")["N"].clone()
    };
    overwrite();
    mistaken.shell(&format!("{} --mode replace", from_a_copy.trim_end()));
    assert_eq!(value("Orders"), 5);
    overwrite();
    mistaken.shell(copied_back);
    assert_eq!(value("Orders"), 5);
    overwrite();
    mistaken.shell(replaced);
    assert_eq!(value("Orders"), 5);
    overwrite();
    mistaken.shell(from_a_dump);
    assert_eq!((value("Orders"), value("OrdersBefore")), (json!(6), json!(5)));
}
