//! The server inside a test's process, and the container's description.

use std::net::TcpStream;
use std::time::Duration;

use rowhouse::testing::{Account, FaultCount, FaultRule, Image, Server, ServerError};
use serde_json::json;

use crate::faults::drops;
use crate::support::ports::free_port;
use crate::support::server::{Process, fresh_folder};
use crate::support::*;

/// A client as connection strings describe it.
pub fn client_of(connection_string: &str) -> Client {
    let member = |name: &str| {
        let found =
            connection_string.split(';').find_map(|member| member.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{name} in {connection_string}")).to_owned()
    };
    let (name, key, endpoint) = (member("AccountName"), member("AccountKey"), member("TableEndpoint"));
    assert_eq!(member("DefaultEndpointsProtocol"), "http");
    let address = endpoint.strip_prefix("http://").and_then(|rest| rest.strip_suffix(&format!("/{name}")));
    let account = client::Account { name: name.clone(), keys: [key.clone(), key] };
    Client::path_style(address.expect("an address and the account"), account)
}

/// Says so if it is not alone.
fn use_alone(server: &Server) {
    let client = client_of(&server.connection_string());
    client.create_table("People").expect(201);
    let t = Table::new(&client, "People");
    t.insert(&with_keys("p", "r", json!({ "A": 1 }))).expect(201);
    assert_eq!(t.count(), 1);
}

#[test]
fn a_server_has_the_faults_that_its_test_orders() {
    let server = Server::start().expect("a server");
    let client = client_of(&server.connection_string());
    client.create_table("Orders").expect(201);
    let t = Table::new(&client, "Orders");
    let insert = |row: &str| t.insert(&with_keys("p", row, json!({})));
    let busy = FaultRule::error("ServerBusy").operation("InsertEntity").table("orders");
    let rules = [busy.clone().after(1).times(2), FaultRule::delay(Duration::from_millis(1))];
    server.set_faults(rules).expect("valid rules");
    insert("a").expect(201);
    insert("b").refused(BUSY);
    insert("b").refused(BUSY);
    insert("b").expect(201);
    let counts = server.faults().expect("it runs");
    assert_eq!(counts, [FaultCount { matched: 4, hits: 2 }, FaultCount { matched: 2, hits: 1 }]);

    server.set_faults([FaultRule::page(1).times(2)]).expect("a valid rule");
    let pages = t.pages("").into_iter().map(|page| row_keys(&page));
    assert_eq!(pages.collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(t.count(), 2);

    let rules = [FaultRule::disconnect_before(), FaultRule::disconnect_after()];
    server.set_faults(rules.map(|rule| rule.operation("InsertEntity"))).expect("valid rules");
    for (row, is_stored) in [("before", false), ("after", true)] {
        drops(&client, &t.inserting(&with_keys("p", row, json!({}))));
        assert_eq!(t.get("p", row).status == 200, is_stored, "{row}");
    }
    server.set_faults([FaultRule::error("InternalError").times(9)]).expect("a valid rule");
    server.reset_account(&client.account.name).expect("a reset");
    client.get("/Tables").refused(INTERNAL);
    server.reset().expect("a reset");
    client.get("/Tables").expect(200);
    assert_eq!(server.faults().expect("it runs"), []);

    for wrong in [
        FaultRule::error("ServerBusy").operation("Insert"),
        FaultRule::error("NotImplemented"),
        FaultRule::delay(Duration::from_micros(10)),
        FaultRule::delay(Duration::MAX),
        FaultRule::disconnect_before().times(0),
        FaultRule::page(1001),
    ] {
        let refused = server.set_faults([busy.clone(), wrong.clone()]);
        assert!(matches!(refused, Err(ServerError::Faults(_))), "{wrong:?}: {refused:?}");
    }
    assert_eq!(server.faults().expect("it runs"), []);
}

#[test]
fn servers_of_one_process_do_not_disturb_each_other() {
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let start = || {
            let server = Server::start().expect("a server");
            use_alone(&server);
            server
        };
        let starting: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|started| started.join().expect("a server")).collect()
    });
    let mut servers = servers.into_iter();
    servers.next().expect("a server").stop();
    for server in servers {
        let client = client_of(&server.connection_string());
        assert_eq!(Table::new(&client, "People").count(), 1, "the end of one is not that of others");
    }
}

#[test]
fn a_server_ends_when_it_is_dropped_whoever_is_connected() {
    let server = Server::builder().port(free_port()).start().expect("a server");
    let address = server.address();
    assert!(address.ip().is_loopback());
    // Keeps its connection.
    let client = client_of(&server.connection_string());
    client.create_table("People").expect(201);
    let _idle = TcpStream::connect(address).expect("it listens");
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    let again = Server::builder().port(address.port()).start().expect("the port is free");
    assert_eq!(again.address(), address);
    use_alone(&again);
    assert!(matches!(Server::builder().port(address.port()).start(), Err(ServerError::Start(_))));
}

#[tokio::test]
async fn a_test_of_tokio_can_start_one() {
    let server = Server::start().expect("a server");
    use_alone(&server);
    server.reset().expect("a reset");
    use_alone(&server);
}

#[actix_web::test]
async fn a_test_of_actix_can_start_one() {
    let server = Server::start().expect("a server");
    use_alone(&server);
    let snapshot = server.snapshot().expect("a snapshot");
    server.reset().expect("a reset");
    server.restore(&snapshot).expect("a snapshot of this server");
    let client = client_of(&server.connection_string());
    assert_eq!(Table::new(&client, "People").count(), 1);
}

#[test]
fn accounts_are_those_of_the_builder() {
    let default = Server::start().expect("a server");
    assert_eq!(default.account(), "devstoreaccount1");
    assert!(default.key().starts_with("Eby8vdM02xNO"));
    assert_eq!(default.endpoint(), format!("http://{}/devstoreaccount1", default.address()));
    let [orders, people] = ["orders", "people"].map(Account::new);
    assert_ne!(orders.key, people.key);
    let builder = Server::builder().account(orders.clone()).account(people.clone());
    let server = builder.host_suffix("table.suite.example").start().expect("a server");
    assert_eq!((server.account(), server.key()), ("orders", orders.key.as_str()));
    let [one, other] = [&orders, &people].map(|account| client_of(&server.connection_string_of(account)));
    one.host_style("orders").create_table("People").expect(201);
    other.create_table("People").expect(201);
    server.reset_account("orders").expect("an account of ours");
    Table::new(&one, "People").query("").refused(NO_TABLE);
    let before = server.snapshot_account("people").expect("an account of ours");
    server.reset().expect("a reset");
    one.create_table("Kept").expect(201);
    server.restore(&before).expect("a snapshot of this server");
    assert_eq!((Table::new(&one, "Kept").count(), Table::new(&other, "People").count()), (0, 0));
    server.drop_snapshot(&before).expect("it is there");
    assert!(matches!(server.restore(&before), Err(ServerError::NoSuchSnapshot)));
    assert!(
        matches!(server.reset_account("nobody"), Err(ServerError::NoSuchAccount(name)) if name == "nobody")
    );
    assert!(matches!(server.snapshot_account("nobody"), Err(ServerError::NoSuchAccount(_))));
    assert!(matches!(Server::builder().account(Account::new("No")).start(), Err(ServerError::Accounts(_))));
    assert!(matches!(Server::builder().database_url("mysql://x").start(), Err(ServerError::Settings(_))));
    for _ in 0..64 {
        server.snapshot().expect("there is room");
    }
    assert!(matches!(server.snapshot(), Err(ServerError::TooManySnapshots)));
}

#[test]
fn extended_queries_are_off_unless_the_builder_turns_them_on() {
    for (builder, status) in [(Server::builder(), 501), (Server::builder().extended_queries(), 200)] {
        for builder in [builder.clone(), builder.account(Account::new("orders"))] {
            let server = builder.start().expect("a server");
            use_alone(&server);
            let client = client_of(&server.connection_string());
            Table::new(&client, "People").query("?$filter=startswith(RowKey,'r')").expect(status);
        }
    }
}

#[test]
fn a_file_outlives_its_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("kept.db").display());
    let first = Server::builder().database_url(&url).start().expect("a server");
    use_alone(&first);
    first.stop();
    let second = Server::builder().database_url(&url).start().expect("a server");
    let client = client_of(&second.connection_string());
    assert_eq!(Table::new(&client, "People").count(), 1);
}

#[test]
fn the_image_is_told_what_the_program_understands_and_waits_for_what_it_says() {
    let own = Image::default().account(Account::new("orders")).account(Account::new("people"));
    assert_eq!(Image::default().reference(), "rowhouse:latest");
    for image in [Image::default(), own] {
        // As in the container, but for the address.
        let mut variables = image.variables();
        variables.push(("ROWHOUSE_LISTEN", "127.0.0.1:0".into()));
        let variables: Vec<(&str, &str)> = variables.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let process = Process::spawn(fresh_folder(), &["serve"], &variables);
        let [line, _] = process.announced.as_slice() else { panic!("{:?}", process.announced) };
        assert!(line.starts_with(Image::READY), "{line}");
        assert!(line.contains("sqlite::memory:"), "{line}");
        let (host, port) = process.address().split_once(':').expect("a host and a port");
        let connection_string = image.connection_string(host, port.parse().expect("a number"));
        client_of(&connection_string).create_table("People").expect(201);
    }
    let dockerfile = include_str!("../../Dockerfile");
    assert!(dockerfile.contains(&format!("EXPOSE {}\n", Image::PORT)));
}
