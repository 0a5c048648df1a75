import os
import pathlib
import subprocess

import pytest
import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[4]
CHART = REPOSITORY / "deploy" / "helm" / "rowhouse"
# The oldest that Chart.yaml allows, and the newest whose schemas are known.
KUBERNETES = ["1.29", "1.37"]
VALUES = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))


@pytest.fixture(scope="session")
def helm(tmp_path_factory):
    """Runs Helm, which knows nothing of the user's clusters and settings."""
    home = tmp_path_factory.mktemp("helm")
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(home / "none")}

    def run(*arguments):
        return subprocess.run([os.environ["HELM"], *arguments], env=env, capture_output=True, text=True)

    return run


@pytest.fixture(scope="session")
def template(helm):
    """Renders the chart, or a changed copy, with the values of a file of `ci`."""

    def run(values, *more, chart=CHART, release="rowhouse", kubernetes=KUBERNETES[-1]):
        file = CHART / "ci" / f"{values}.yaml"
        return helm(
            "template", release, chart, "--namespace=tables", f"--values={file}", f"--kube-version={kubernetes}", *more
        )

    return run


@pytest.fixture(scope="session")
def render(template):
    """The objects that values give, by kind and name; each name begins with the release's."""

    def objects(values, *more, **options):
        done = template(values, *more, **options)
        assert done.returncode == 0, done.stderr
        found = [document for document in yaml.safe_load_all(done.stdout) if document]
        named = {(document["kind"], document["metadata"]["name"]): document for document in found}
        assert len(named) == len(found)
        return named

    return objects
