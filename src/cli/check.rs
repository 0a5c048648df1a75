//! `rowhouse check`: finds mistakes in the settings and problems with the database.

use std::io::ErrorKind;
use std::time::SystemTime;

use chrono::TimeDelta;
use clap::Args;
use serde_json::{Value, json};

use super::findings::{CheckResult, Finding, check_cluster, check_product, ok, problem, warning};
use super::output::{Done, OutputForm, Problem, block_on};
use crate::operator::accounts;
use crate::server::config::{Config, Settings};
use crate::server::http::{self, Tls, ValidityProblem};
use crate::server::start::connection_demand;
use crate::store::database::{self, Database};
use crate::store::postgres::ConnectionDemand;
use crate::store::{HostRole, HostsFound, Inspection, MigrationObstacle};

/// Maximum difference between the clocks of this machine and of the database. Versions of entities and the validity of
/// requests depend on these clocks.
const MAX_SKEW: TimeDelta = TimeDelta::seconds(10);

/// The arguments of `rowhouse check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(super) settings: Settings,
    #[command(flatten)]
    form: OutputForm,
}

pub(crate) fn run(arguments: &CheckArguments) -> Done {
    let findings = block_on(async { Ok(collect_findings(&arguments.settings).await) })?;
    let problems = findings.iter().filter(|finding| finding.verdict == CheckResult::Problem).count();
    let lines: Vec<String> = findings.iter().map(line).collect();
    let values: Vec<Value> = findings.iter().map(value).collect();
    arguments.form.print(&lines.join("\n"), &json!({ "ok": problems == 0, "checks": values }))?;
    match problems {
        0 => Ok(()),
        1 => Err(Problem("1 problem was found".into())),
        _ => Err(Problem(format!("{problems} problems were found"))),
    }
}

fn line(finding: &Finding) -> String {
    let Finding { name, verdict, found, advice } = finding;
    let word = match verdict {
        CheckResult::Ok => "ok",
        CheckResult::Warning => "warning",
        CheckResult::Problem => "problem",
    };
    let advice = advice.iter().map(|advice| format!("\n         {:<14} {advice}", "what to do:"));
    format!("{word:<8} {name:<14} {found}{}", advice.collect::<String>())
}

fn value(finding: &Finding) -> Value {
    let Finding { name, verdict, found, advice } = finding;
    let (ok, warning) = (*verdict != CheckResult::Problem, *verdict == CheckResult::Warning);
    json!({ "name": name, "ok": ok, "warning": warning, "found": found, "advice": advice })
}

async fn collect_findings(settings: &Settings) -> Vec<Finding> {
    let config = match settings.read() {
        Ok(config) => config,
        Err(mistakes) => {
            let advice = "rowhouse serve --help explains the settings";
            return mistakes.to_string().lines().map(|line| problem("configuration", line, advice)).collect();
        }
    };
    let mut findings = check_settings(settings, &config);
    findings.extend(check_certificate(&config));
    findings.extend(check_addresses(&config));
    findings.extend(check_storage(&config).await);
    findings
}

fn check_settings(settings: &Settings, config: &Config) -> Vec<Finding> {
    let idle = settings.list_idle(config);
    if idle.is_empty() {
        return vec![ok("configuration", "all settings are valid and have an effect")];
    }
    let advice = "correct its name, add the setting that it needs, or remove it; ignore this if other \
         programs share these settings";
    idle.into_iter().map(|line| warning("configuration", line, advice)).collect()
}

fn check_certificate(config: &Config) -> Option<Finding> {
    let renewal = "replace the files of --tls-cert and --tls-key; a running server reloads them";
    let problem_of = |tls: &Tls| tls.validity().and_then(|validity| validity.problem_at(SystemTime::now()));
    Some(match Tls::load(config.tls.clone()?) {
        Ok(tls) => match problem_of(&tls) {
            Some(found @ ValidityProblem::ExpiresSoon(_)) => {
                warning("certificate", found.to_string(), renewal)
            }
            Some(found) => problem("certificate", found.to_string(), renewal),
            None => ok("certificate", "the certificate and its key belong together"),
        },
        Err(error) => {
            let advice = "give PEM files that belong together and that the user of this process may read";
            problem("certificate", format!("--tls-cert, --tls-key: {error}"), advice)
        }
    })
}

/// Checks the addresses to listen on, which a running server may have taken already.
fn check_addresses(config: &Config) -> Vec<Finding> {
    // The server replaces a default address that is taken.
    let chosen = config.admin.as_ref().filter(|admin| admin.is_chosen);
    let admin = chosen.map(|admin| ("--admin-listen", admin.listen));
    let addresses = [Some(("--listen", config.listen)), admin];
    // Each address stays bound until both have been tried.
    let tried: Vec<_> =
        addresses.into_iter().flatten().map(|(flag, at)| (flag, at, http::reserve(at))).collect();
    let findings = tried.iter().map(|(flag, at, outcome)| match outcome {
        Ok(_) => ok("address", format!("{flag} {at} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let advice = "nothing, if the server that listens there is the one with these settings; \
                 otherwise choose another port";
            warning("address", format!("{flag} {at} is in use"), advice)
        }
        Err(error) => {
            let advice =
                "give an address of this machine, with a port that the user of this process may listen on";
            problem("address", format!("{flag} {at}: {error}"), advice)
        }
    });
    findings.collect()
}

async fn check_storage(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = config.database.display();
    match database::inspect_primary(&config.database).await {
        Err(error) => {
            let advice = match &config.database {
                Database::Postgres { .. } => error.advice().map(str::to_owned).unwrap_or_else(|| {
                    format!(
                        "see that {name} is up, and that the host, user, password and database name in its \
                         URL are right"
                    )
                }),
                Database::Sqlite(_) => format!(
                    "see that {name} is a database, and that the user of this process may read and write it"
                ),
            };
            findings.push(problem("database", error.to_string(), advice));
        }
        Ok(primary) => {
            findings.push(check_product(&primary.product, &name));
            findings.extend(check_database(&config.database, &primary));
            let allowed = primary.allowed_connections;
            let connections = allowed.and_then(|allowed| connection_demand(config, allowed));
            findings.extend(connections.as_ref().map(check_connections));
            findings.extend(primary.cluster.iter().flat_map(|cluster| check_cluster(cluster, connections)));
            findings.extend(check_accounts(config, &primary));
            findings.extend(check_replica(&config.database).await);
        }
    }
    findings
}

fn check_database(database: &Database, found: &Inspection) -> Vec<Finding> {
    let mut findings = vec![check_schema(database, found)];
    findings.extend(found.hosts.iter().flat_map(check_hosts));
    if found.is_standby {
        let advice = "give the primary as --database-url, and this replica as --secondary-database-url";
        findings.push(problem("primary", "the database is a read replica", advice));
    }
    if found.reads_only && !found.is_standby {
        let advice = "ALTER ROLE … SET default_transaction_read_only = off, or give the URL of another role";
        findings.push(problem("role", "the sessions of the role are read-only", advice));
    }
    if let Some(encoding) = found.encoding.as_deref().filter(|encoding| *encoding != "UTF8") {
        let advice = "create a database with ENCODING 'UTF8' TEMPLATE template0";
        findings.push(problem("encoding", format!("the database's encoding is {encoding}"), advice));
    }
    findings.push(match found.missing.as_slice() {
        [] => ok("privileges", "no privilege is missing"),
        missing => {
            let advice = match database {
                Database::Postgres { .. } => "GRANT them to the role of the database URL",
                Database::Sqlite(_) => "let the user of this process write to the file and to its folder",
            };
            problem("privileges", format!("missing: {}", missing.join(", ")), advice)
        }
    });
    findings.extend(check_leftovers(found));
    if let Some(skew) = found.skew {
        let seconds = skew.as_seconds_f64();
        let text = format!(
            "the database's clock is {:.1} s {}",
            seconds.abs(),
            if seconds < 0.0 { "behind" } else { "ahead" }
        );
        findings.push(if skew.abs() <= MAX_SKEW {
            ok("clock", text)
        } else {
            problem("clock", text, "synchronize the clocks of both machines, for example with NTP")
        });
    }
    findings
}

/// Returns the findings about unfinished changes, and about objects that servers do not use.
fn check_leftovers(found: &Inspection) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !found.abandoned_respreads.is_empty() {
        let tables =
            format!("the number of buckets of {} is being changed", found.abandoned_respreads.join(", "));
        let advice = "run `rowhouse table respread` again to finish the change, or with --cancel to give \
             up: until then, writes are slower";
        findings.push(warning("respread", tables, advice));
    }
    if !found.missing_indexes.is_empty() {
        let indexes = found.missing_indexes.join(", ");
        let advice = "drop them with `rowhouse index drop`, and create them again: until then, filters on \
             their properties read whole tables";
        findings.push(warning(
            "indexes",
            format!("these indexes are not in the database: {indexes}"),
            advice,
        ));
    }
    if !found.old_views.is_empty() {
        let views = format!(
            "an earlier version created these views, and servers no longer keep or drop them: {}",
            found.old_views.join(", ")
        );
        let drops: Vec<String> = found.old_views.iter().map(|view| format!("DROP VIEW {view};")).collect();
        let advice = format!(
            "{} then create the views again with the statements that `rowhouse view sql` prints",
            drops.join(" ")
        );
        findings.push(warning("views", views, advice));
    }
    if !found.hidden_schemas.is_empty() {
        let schemas = found.hidden_schemas.join(", ");
        let advice = "drop the schema once nothing else uses it: servers of older versions would use its \
             tables";
        let text = format!("empty tables of Rowhouse are in another schema too: {schemas}");
        findings.push(warning("schemas", text, advice));
    }
    findings
}

fn check_hosts(hosts: &HostsFound) -> Vec<Finding> {
    let roles = hosts.listed.iter().filter_map(|host| Some((&host.name, host.role.as_ref().ok()?)));
    let listed: Vec<String> = roles.clone().map(|(name, role)| format!("{name} is {role}")).collect();
    let mut findings = vec![ok("hosts", format!("{}; {} is used", listed.join(", "), hosts.used))];
    findings.extend(check_silent_hosts("hosts", hosts));
    let primaries: Vec<&str> =
        roles.filter(|(_, role)| **role != HostRole::Standby).map(|(name, _)| name.as_str()).collect();
    if primaries.len() > 1 {
        let advice = "stop the former primary: a server may connect to it, and its data is old";
        findings.push(problem("hosts", format!("{} are primaries", primaries.join(" and ")), advice));
    }
    if hosts.take_any {
        let advice = "add target_session_attrs=read-write to the URL";
        findings.push(warning("hosts", "the URL takes any of its hosts, even a standby", advice));
    }
    findings
}

fn check_silent_hosts(name: &'static str, hosts: &HostsFound) -> Vec<Finding> {
    let silent = hosts.listed.iter().filter_map(|host| Some((&host.name, host.role.as_ref().err()?)));
    let advice = "see that it is up, or remove it from the URL";
    silent.map(|(host, why)| warning(name, format!("{host} cannot be reached: {why}"), advice)).collect()
}

fn check_connections(demand: &ConnectionDemand) -> Finding {
    if demand.fits() {
        ok("connections", demand.to_string())
    } else {
        warning("connections", demand.to_string(), ConnectionDemand::ADVICE)
    }
}

fn check_schema(database: &Database, found: &Inspection) -> Finding {
    let known = found.known_schema;
    if let Some(obstacle) = &found.migration_obstacle {
        return judge_obstacle(database, found, obstacle);
    }
    if found.is_schema_hidden {
        let advice = "GRANT SELECT on _sqlx_migrations to the role with which servers start";
        return problem("schema", version_text(found), advice);
    }
    ok(
        "schema",
        match found.schema {
            None => {
                format!("there is none yet; the first start, or `rowhouse migrate`, creates version {known}")
            }
            Some(version) if version < known => {
                format!(
                    "version {version}; the next start, or `rowhouse migrate`, updates it to version {known}"
                )
            }
            Some(version) if version > known => {
                format!("version {version}, newer than this program's {known}; this program works with it")
            }
            Some(version) => format!("version {version}, the same as this program's"),
        },
    )
}

/// Judges a schema that migrations cannot change.
fn judge_obstacle(database: &Database, found: &Inspection, obstacle: &MigrationObstacle) -> Finding {
    let known = found.known_schema;
    let is_current = found.schema >= Some(known);
    let text = version_text(found);
    match obstacle {
        MigrationObstacle::Forbidden(reason) => {
            let advice = match database {
                Database::Postgres { .. } => {
                    "give --migrate-url with a role that may run them, or grant CREATE on the schema to \
                     this role"
                }
                Database::Sqlite(_) => {
                    "make the folder, or give --database-url with a file in another folder"
                }
            };
            problem("schema", format!("{text}; migrations cannot run: {reason}"), advice)
        }
        MigrationObstacle::OnWorker => {
            let advice = "run `rowhouse migrate` and then `rowhouse distribute` through the coordinator, \
                 which creates the tables on this node";
            problem(
                "schema",
                format!("{text}; this is a worker of a Citus cluster, and migrations run on the coordinator"),
                advice,
            )
        }
        MigrationObstacle::Away(reason) => {
            let text = format!("{text}; the database of --migrate-url does not answer: {reason}");
            let advice = "see that it is up, and that the host, user, password and database name in its URL \
                 are right";
            match is_current {
                true => warning("schema", text, format!("{advice}; until then, servers start without it")),
                false => problem("schema", text, advice),
            }
        }
    }
}

/// Compares the version of the schema with the version that this program needs.
fn version_text(found: &Inspection) -> String {
    let known = found.known_schema;
    match found.schema {
        Some(version) => format!("version {version}; this program needs version {known}"),
        None if found.is_schema_hidden => {
            format!("its version may not be read; this program needs version {known}")
        }
        None => format!("there is none yet; this program needs version {known}"),
    }
}

fn check_accounts(config: &Config, found: &Inspection) -> Option<Finding> {
    let count = found.accounts.len();
    Some(match &config.master_key {
        None if count == 0 => return None,
        None => {
            let advice = "give --master-key, or remove the accounts: servers without the master key do not \
                 serve them";
            warning("accounts", format!("{count} in the database, but no --master-key is given"), advice)
        }
        Some(master) => match accounts::check_master_key(master, &found.accounts) {
            Ok(()) if count == 0 && config.accounts.sample().is_none() => {
                problem("accounts", "there is no account", "add one with `rowhouse account add`")
            }
            Ok(()) => ok("accounts", format!("{count} in the database, and the master key opens them")),
            Err(error) => problem(
                "accounts",
                "the master key does not open the keys in the database",
                error.to_string(),
            ),
        },
    })
}

async fn check_replica(database: &Database) -> Vec<Finding> {
    let replica = match database::inspect_replica(database).await {
        None => return Vec::new(),
        Some(Ok(replica)) => replica,
        Some(Err(error)) => {
            let advice = "start it, or correct or remove --secondary-database-url: until then, servers \
                 answer requests to it with 503";
            return vec![problem("secondary", error.to_string(), advice)];
        }
    };
    let place = replica.hosts.as_ref().map(|hosts| format!(" at {}", hosts.used)).unwrap_or_default();
    let mut findings = vec![if replica.is_standby {
        ok("secondary", format!("{} answers{place}", replica.product))
    } else {
        let advice = "give a standby as --secondary-database-url, or remove the setting, so that the \
             primary answers";
        problem("secondary", format!("the database{place} is no read replica"), advice)
    }];
    findings.extend(replica.hosts.iter().flat_map(|hosts| check_silent_hosts("secondary", hosts)));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ListedHost;
    use crate::store::postgres::PgOptions;

    fn database() -> Database {
        Database::Postgres { options: PgOptions::new("postgres://h/d"), replica: None }
    }

    fn inspection() -> Inspection {
        Inspection {
            product: "PostgreSQL 16".into(),
            schema: Some(3),
            known_schema: 3,
            encoding: Some("UTF8".into()),
            allowed_connections: Some(100),
            skew: Some(TimeDelta::milliseconds(-200)),
            ..Inspection::default()
        }
    }

    fn problems(change: impl FnOnce(&mut Inspection)) -> Vec<&'static str> {
        let mut found = inspection();
        change(&mut found);
        let findings = check_database(&database(), &found).into_iter();
        findings
            .filter(|finding| finding.verdict == CheckResult::Problem)
            .map(|finding| finding.name)
            .collect()
    }

    #[test]
    fn each_fact_has_its_verdict() {
        assert!(problems(|_| {}).is_empty());
        assert!(problems(|found| found.schema = None).is_empty(), "the first start makes it");
        assert!(problems(|found| found.schema = Some(2)).is_empty(), "the next start brings it up");
        assert!(problems(|found| found.schema = Some(9)).is_empty(), "a newer one is no harm");
        assert!(problems(|found| found.skew = None).is_empty());
        assert_eq!(problems(|found| found.is_standby = true), ["primary"]);
        assert_eq!(problems(|found| found.reads_only = true), ["role"]);
        assert_eq!(problems(|found| (found.reads_only, found.is_standby) = (true, true)), ["primary"]);
        assert_eq!(problems(|found| found.encoding = Some("LATIN1".into())), ["encoding"]);
        assert_eq!(problems(|found| found.missing = vec!["INSERT on tables".into()]), ["privileges"]);
        for obstacle in [MigrationObstacle::Forbidden("no".into()), MigrationObstacle::OnWorker] {
            assert_eq!(problems(|found| found.migration_obstacle = Some(obstacle)), ["schema"]);
        }
        let away = || Some(MigrationObstacle::Away("no".into()));
        assert!(problems(|found| found.migration_obstacle = away()).is_empty(), "servers start all the same");
        assert_eq!(
            problems(|found| (found.migration_obstacle, found.schema) = (away(), Some(2))),
            ["schema"]
        );
        for seconds in [-11, 11, 900] {
            assert_eq!(
                problems(|found| found.skew = Some(TimeDelta::seconds(seconds))),
                ["clock"],
                "{seconds}"
            );
        }
    }

    #[test]
    fn the_hosts_of_a_list_are_judged() {
        use HostRole::{Primary, ReadOnly, Standby};
        let verdicts = |take_any, roles: &[Result<HostRole, &str>]| {
            let listed = roles
                .iter()
                .enumerate()
                .map(|(n, role)| ListedHost { name: format!("h{n}:1"), role: role.map_err(str::to_owned) });
            let hosts = HostsFound { used: "h0:1".into(), take_any, listed: listed.collect() };
            check_hosts(&hosts)
                .into_iter()
                .map(|finding| (finding.verdict, finding.found))
                .collect::<Vec<_>>()
        };
        let [(CheckResult::Ok, found)] = &verdicts(false, &[Ok(Primary), Ok(Standby)])[..] else {
            panic!("a primary and a standby are fine")
        };
        assert_eq!(found, "h0:1 is a primary, h1:1 is a standby; h0:1 is used");
        let of = |take_any, roles: &[Result<HostRole, &str>]| {
            let (verdict, found) = verdicts(take_any, roles).remove(1);
            (verdict == CheckResult::Problem, found)
        };
        assert_eq!(of(false, &[Ok(Primary), Err("why")]), (false, "h1:1 cannot be reached: why".into()));
        assert_eq!(of(false, &[Ok(Primary), Ok(ReadOnly)]), (true, "h0:1 and h1:1 are primaries".into()));
        assert!(!of(true, &[Ok(Primary), Ok(Standby)]).0);
    }

    #[test]
    fn the_direction_of_the_clock_is_named() {
        let direction = |seconds| {
            let found = Inspection { skew: Some(TimeDelta::seconds(seconds)), ..inspection() };
            check_database(&database(), &found)
                .into_iter()
                .find(|finding| finding.name == "clock")
                .unwrap()
                .found
        };
        assert_eq!(direction(-30), "the database's clock is 30.0 s behind");
        assert_eq!(direction(30), "the database's clock is 30.0 s ahead");
    }
}
