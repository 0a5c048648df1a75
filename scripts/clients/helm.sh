# shellcheck shell=bash
# The Helm chart, for scripts/test.

# The last one that a Go as old as GO_RELEASE compiles.
readonly HELM_RELEASE=v3.17.4

# prepare_helm: compiles Helm, which takes minutes the first time, and exports HELM.
prepare_helm() {
    local folder=$target/tools/helm-$HELM_RELEASE
    use_new_go || return 1
    export HELM=$folder/helm
    if [[ -x $HELM ]]; then return 0; fi
    say "Compiling Helm $HELM_RELEASE"
    GOBIN=$folder go install "helm.sh/helm/v3/cmd/helm@$HELM_RELEASE"
}
