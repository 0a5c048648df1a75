"""What Helm makes of the chart. No API server sees it: schemas that a package ships stand in for one."""

import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import tarfile
import time
import urllib.error
import urllib.request

import kubernetes_validate
import pytest
import yaml
from conftest import CHART, KUBERNETES, REPOSITORY, VALUES

MONITORING = "monitoring.coreos.com/v1"
PATIENCE = 60
VERSION = re.search(r'^version = "(.+)"$', (REPOSITORY / "Cargo.toml").read_text(), re.MULTILINE).group(1)


def pod(workload):
    return workload["spec"]["template"]["spec"]


def environment(workload):
    return {entry["name"]: entry["value"] for entry in pod(workload)["containers"][0]["env"]}


def secret_files(workload):
    """Path, Secret and key of each file that a workload's secrets are mounted as."""
    [volume] = [volume for volume in pod(workload)["volumes"] if volume["name"] == "secrets"]
    sources = [source["secret"] for source in volume["projected"]["sources"]]
    return {item["path"]: (source["name"], item["key"]) for source in sources for item in source["items"]}


def test_the_versions_are_those_of_the_program():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert chart["kubeVersion"] == f">={KUBERNETES[0]}.0-0"


@pytest.mark.parametrize("file", ["prometheus/rowhouse.rules.yml", "grafana/rowhouse.json"])
def test_the_copies_are_equal(file):
    original = REPOSITORY / "deploy" / file
    assert (CHART / "files" / original.name).read_bytes() == original.read_bytes()


@pytest.mark.parametrize("values", VALUES)
def test_lint_has_nothing_to_say(helm, values):
    done = helm("lint", "--strict", CHART, f"--values={CHART}/ci/{values}.yaml", f"--kube-version={KUBERNETES[0]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout and "[ERROR]" not in done.stdout


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("values", VALUES)
def test_every_object_is_valid(render, values, kubernetes):
    objects = render(values, kubernetes=kubernetes)
    known = [document for document in objects.values() if document["apiVersion"] != MONITORING]
    assert len(known) >= 5
    for document in known:
        assert kubernetes_validate.validate(document, kubernetes, strict=True).startswith(kubernetes)


def test_an_unknown_field_would_be_noticed(render):
    deployment = render("postgres")["Deployment", "rowhouse"]
    pod(deployment)["securityContexts"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="securityContexts"):
        kubernetes_validate.validate(deployment, KUBERNETES[1], strict=True)


def test_each_store_has_what_it_needs(render):
    everywhere = {"Deployment", "Service", "ServiceAccount"}
    kinds = {values: {kind for kind, _ in render(values)} for values in VALUES}
    assert kinds["postgres"] == everywhere | {"Job", "PodDisruptionBudget"}
    assert kinds["sqlite"] == everywhere | {"PersistentVolumeClaim"}
    extra = {"ConfigMap", "Ingress", "NetworkPolicy", "PrometheusRule", "ServiceMonitor"}
    assert kinds["all"] == kinds["postgres"] | extra
    assert "Job" not in {kind for kind, _ in render("postgres", "--set=migrate.enabled=false")}
    claimed = render("sqlite", "--set=persistence.existingClaim=mine")
    assert "PersistentVolumeClaim" not in {kind for kind, _ in claimed}
    [data] = [volume for volume in pod(claimed["Deployment", "rowhouse"])["volumes"] if volume["name"] == "data"]
    assert data["persistentVolumeClaim"] == {"claimName": "mine"}


def test_an_upgrade_leaves_no_gap(render):
    deployment = render("postgres")["Deployment", "rowhouse"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert environment(deployment)["ROWHOUSE_DRAIN_SECONDS"] == "5"
    assert pod(deployment)["terminationGracePeriodSeconds"] == 5 + 30 + 5
    longer = render("all", "--set=shutdownSeconds=60")["Deployment", "rowhouse"]
    assert pod(longer)["terminationGracePeriodSeconds"] == 10 + 60 + 5
    alone = render("sqlite")["Deployment", "rowhouse"]
    assert alone["spec"]["strategy"] == {"type": "Recreate"}
    assert environment(alone)["ROWHOUSE_DRAIN_SECONDS"] == "0"
    assert pod(alone)["terminationGracePeriodSeconds"] == 30 + 5


def test_servers_listen_on_the_address_that_is_given(render):
    for values, address in ("postgres", "0.0.0.0"), ("all", "[::]"):
        given = environment(render(values)["Deployment", "rowhouse"])
        assert given["ROWHOUSE_LISTEN"] == f"{address}:10002"
        assert given["ROWHOUSE_ADMIN_LISTEN"] == f"{address}:10003"


@pytest.mark.parametrize("values", VALUES)
def test_pods_are_restricted(render, values):
    workloads = [document for (kind, _), document in render(values).items() if kind in ("Deployment", "Job")]
    assert len(workloads) == (1 if values == "sqlite" else 2)
    for workload in workloads:
        security = pod(workload)["securityContext"]
        assert security["runAsNonRoot"] is True and security["runAsUser"] == 10001
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        [container] = pod(workload)["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod(workload)["automountServiceAccountToken"] is False
        # A Service named rowhouse would give variables such as ROWHOUSE_PORT.
        assert pod(workload)["enableServiceLinks"] is False
        assert not any("valueFrom" in entry for entry in container["env"])


@pytest.mark.parametrize("values", VALUES)
def test_the_settings_exist_and_secrets_are_files(render, values):
    known = set(re.findall(r"^#([A-Z_]+)=", (REPOSITORY / ".env.example").read_text(), re.MULTILINE))
    for (kind, _), workload in render(values).items():
        if kind not in ("Deployment", "Job"):
            continue
        given = environment(workload)
        assert given.keys() <= known
        folder = "/run/secrets/rowhouse/"
        read = {path.removeprefix(folder) for name, path in given.items() if name.endswith("_FILE")}
        assert read == secret_files(workload).keys() - {"database-ca.crt"}


def test_migrations_have_a_secret_of_their_own_and_come_first(render):
    objects = render("all")
    job, deployment = objects["Job", "rowhouse-migrate"], objects["Deployment", "rowhouse"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert secret_files(job) == {
        "database-url": ("rowhouse-database", "url"),
        "database-ca.crt": ("database-ca", "ca.crt"),
        "migrate-url": ("rowhouse-owner", "owner-url"),
    }
    assert "migrate-url" not in secret_files(deployment)
    # At the first install nothing else of the chart exists.
    assert "serviceAccountName" not in pod(job)
    without = render("all", "--set=migrate.enabled=false")["Deployment", "rowhouse"]
    probe = pod(without)["containers"][0]["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == job["spec"]["activeDeadlineSeconds"]
    assert environment(without)["ROWHOUSE_MIGRATE_URL_FILE"] == "/run/secrets/rowhouse/migrate-url"


def test_selectors_select_the_servers_alone(render):
    objects = render("all", release="blue")
    servers = objects["Deployment", "blue-rowhouse"]["spec"]["template"]["metadata"]["labels"]
    migration = objects["Job", "blue-rowhouse-migrate"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        objects["Deployment", "blue-rowhouse"]["spec"]["selector"]["matchLabels"],
        objects["Service", "blue-rowhouse"]["spec"]["selector"],
        objects["Service", "blue-rowhouse-admin"]["spec"]["selector"],
        objects["PodDisruptionBudget", "blue-rowhouse"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy", "blue-rowhouse"]["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= servers.items()
        assert not selector.items() <= migration.items()


def test_prometheus_and_grafana_get_the_files(render):
    objects = render("all")
    rules = yaml.safe_load((REPOSITORY / "deploy/prometheus/rowhouse.rules.yml").read_text())
    assert objects["PrometheusRule", "rowhouse"]["spec"] == rules
    dashboard = objects["ConfigMap", "rowhouse-dashboard"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    original = json.loads((REPOSITORY / "deploy/grafana/rowhouse.json").read_text())
    assert json.loads(dashboard["data"]["rowhouse.json"]) == original
    monitor = objects["ServiceMonitor", "rowhouse"]["spec"]
    admin = objects["Service", "rowhouse-admin"]
    services = [document for (kind, _), document in objects.items() if kind == "Service"]
    wanted = monitor["selector"]["matchLabels"].items()
    assert [service for service in services if wanted <= service["metadata"]["labels"].items()] == [admin]
    assert monitor["endpoints"] == [
        {
            "port": admin["spec"]["ports"][0]["name"],
            "path": "/metrics",
            "interval": "30s",
            "authorization": {"credentials": {"name": "rowhouse-admin", "key": "token"}},
            "relabelings": [{"targetLabel": "job", "replacement": "rowhouse"}],
        }
    ]


NO_ADMIN = ["--set=adminToken.existingSecret="]
NO_EGRESS = ["--set-json=networkPolicy.egress=[]"]
NO_OPERATORS = ["--set-json=networkPolicy.operators=[]"]
WRONG = [
    ("sqlite", ["--set=replicas=2"], "replicas must be 1 with store sqlite"),
    ("sqlite", ["--set=database.existingSecret=a"], "database.existingSecret is for store postgres"),
    ("sqlite", ["--set=secondaryDatabase.existingSecret=a"], "secondaryDatabase.existingSecret are for store postgres"),
    ("sqlite", ["--set=accounts.existingSecret="], "accounts.existingSecret or masterKey.existingSecret is required"),
    ("sqlite", NO_ADMIN, "adminToken.existingSecret is required"),
    ("all", NO_ADMIN, "adminToken.existingSecret is required"),
    ("postgres", ["--set=database.existingSecret="], "database.existingSecret is required with store postgres"),
    ("postgres", ["--set=image.repository="], "image.repository is required"),
    ("postgres", ["--set=persistence.existingClaim=a"], "persistence.existingClaim is for store sqlite"),
    ("postgres", ["--set=oldMasterKey.existingSecret=a"], "oldMasterKey.existingSecret needs masterKey.existingSecret"),
    ("postgres", ["--set=ingress.enabled=true"], "ingress.host is required"),
    ("all", NO_EGRESS, "networkPolicy.egress is required with store postgres"),
    ("all", NO_OPERATORS, "networkPolicy.operators is required with serviceMonitor.enabled"),
    ("all", ["--set=settings.ROWHOUSE_MASTER_KEY=a"], "it is secret, use masterKey.existingSecret"),
    ("all", ["--set=settings.ROWHOUSE_ADMIN_TOKEN_FILE=a"], "it is secret, use adminToken.existingSecret"),
    ("all", ["--set-string=settings.ROWHOUSE_WORKERS=4"], "settings.ROWHOUSE_WORKERS cannot be set: use workers"),
    # By the schema, whose words depend on Helm.
    ("postgres", ["--set=replica=2"], "replica"),
    ("postgres", ["--set=store=mysql"], "store"),
    ("postgres", ["--set=drainSeconds=-1"], "drainSeconds"),
    ("postgres", ["--set=listenAddress=10.0.0.1"], "listenAddress"),
    ("postgres", ["--set=settings.ROWHOUSE_MAX_REQUESTS_PER_SECOND=1000000"], "ROWHOUSE_MAX_REQUESTS_PER_SECOND"),
    ("postgres", ["--set=settings.DATABASE_URL=a"], "DATABASE_URL"),
]


@pytest.mark.parametrize("values, arguments, sentence", WRONG, ids=[f"{v} {' '.join(a)}" for v, a, _ in WRONG])
def test_what_cannot_work_is_refused(template, values, arguments, sentence):
    done = template(values, *arguments)
    assert done.returncode != 0 and sentence in done.stderr, done.stderr


@pytest.fixture
def notes(render, tmp_path):
    """The text of NOTES.txt, which Helm prints to those only who have a cluster: in an object of a copy."""
    copy = tmp_path / "rowhouse"
    shutil.copytree(CHART, copy)
    (copy / "templates" / "NOTES.txt").rename(copy / "notes")
    wrapped = 'kind: Notes\nmetadata: {name: notes}\ntext: {{ tpl (.Files.Get "notes") . | quote }}\n'
    (copy / "templates" / "notes.yaml").write_text(wrapped)
    return lambda values, *more: render(values, *more, chart=copy)["Notes", "notes"]["text"]


def test_the_notes_have_the_sum_of_connections(notes):
    least = notes("postgres")
    assert least.startswith(f"Rowhouse {VERSION} is at rowhouse.tables:10002.\n\nOperators, ")
    assert least.endswith("max_connections must leave 96: 3 servers during an upgrade, 32 each.\n")
    assert "From outside: https://tables.example.com\n" in notes("all")
    assert "two for each processor of the node,\nfor each of 3 servers" in notes("postgres", "--set=workers=null")
    assert "in the claim rowhouse, which outlives the release" in notes("sqlite")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def status(url):
    try:
        return urllib.request.urlopen(url, timeout=PATIENCE).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def test_a_server_starts_with_the_settings_of_the_deployment(render, tmp_path):
    """With folders, ports and addresses of this machine."""
    deployment = render("sqlite")["Deployment", "rowhouse"]
    [container] = pod(deployment)["containers"]
    secrets = {"accounts": "first:bm90IGEgcmVhbCBrZXk=\n", "admin-token": "a-token-of-a-test\n"}
    for file in secret_files(deployment):
        (tmp_path / file).write_text(secrets[file])
    ports = {port["containerPort"]: free_port() for port in container["ports"]}
    env = {"PATH": os.environ["PATH"]}
    for name, value in environment(deployment).items():
        value = value.replace("/run/secrets/rowhouse", str(tmp_path)).replace("/data/", f"{tmp_path}/")
        for inside, outside in ports.items():
            value = value.replace(f"0.0.0.0:{inside}", f"127.0.0.1:{outside}")
        env[name] = value
    admin = f"http://127.0.0.1:{ports[10003]}"
    command = [os.environ["ROWHOUSE_BIN"], *container["args"]]
    with subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            deadline = time.monotonic() + PATIENCE
            ready = container["readinessProbe"]["httpGet"]
            while status(admin + ready["path"]) != 200:
                assert server.poll() is None, server.stderr.read()
                assert time.monotonic() < deadline, "it does not become ready"
                time.sleep(0.1)
            for probe in ("startupProbe", "livenessProbe"):
                assert status(admin + container[probe]["httpGet"]["path"]) == 200
            assert status(f"{admin}/metrics") == 401
            assert (tmp_path / "rowhouse.db").exists()
        finally:
            server.terminate()
            server.wait(PATIENCE)
        assert server.returncode == 0, server.stderr.read()


def test_the_package_leaves_out_what_tests_need(helm, tmp_path):
    done = helm("package", CHART, f"--destination={tmp_path}")
    assert done.returncode == 0, done.stderr
    [archive] = tmp_path.glob("rowhouse-*.tgz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    packed = {str(path.relative_to(tmp_path / "rowhouse")) for path in (tmp_path / "rowhouse").rglob("*.*")}
    assert {"files/rowhouse.json", "files/rowhouse.rules.yml", "values.schema.json"} <= packed
    assert not any(path.startswith("ci/") for path in packed)


def test_the_archive_of_a_release_is_what_helm_packs(helm, tmp_path):
    runpy.run_path(str(REPOSITORY / "scripts" / "package"))["chart"](tmp_path)
    [ours] = tmp_path.glob("*.tgz")
    assert helm("package", CHART, f"--destination={tmp_path / 'helm'}").returncode == 0
    [theirs] = (tmp_path / "helm").glob("*.tgz")
    assert members(ours) == members(theirs)
    done = helm("lint", "--strict", ours, f"--values={CHART / 'ci' / 'sqlite.yaml'}")
    assert done.returncode == 0, done.stdout + done.stderr


def members(archive):
    with tarfile.open(archive) as tar:
        return sorted(entry.name for entry in tar)
