# shellcheck shell=bash
# The Helm chart, for scripts/test.

# The last one that a Go as old as GO_RELEASE compiles.
readonly HELM_RELEASE=v3.17.4

export HELM=$target/tools/helm-$HELM_RELEASE/helm

# prepare_helm: compiles Helm, which takes minutes the first time.
prepare_helm() {
    use_new_go || return 1
    if [[ -x $HELM ]]; then return 0; fi
    say "Compiling Helm $HELM_RELEASE"
    GOBIN=${HELM%/helm} go install "helm.sh/helm/v3/cmd/helm@$HELM_RELEASE"
}
