# make help lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null)
COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
LDFLAGS := -s -w $(if $(VERSION),-X main.version=$(VERSION)) $(if $(COMMIT),-X main.commit=$(COMMIT))

GOLANGCI_LINT_VERSION := 2.15.0
GOVULNCHECK_VERSION := 1.5.0

# ARGS are handed on: make run ARGS="--port 9090", make test ARGS="-run TestPlan", make bench ARGS="-h".
ARGS ?=
# PKG narrows make test to some packages. Those that take longest stand first.
PKG ?= ./cmd/stoa ./agentsvc/runtime ./cmd/stoa/faults ./...

# Tests wait for timers, processes and databases more than they compute, so that two packages run at a time, with up to eight
# tests of each. More would need more connections than .ci/with-services permits. Without DWARF (-w) a test binary is linked in
# half the time; stack traces do not need it. make lint vets all packages.
TESTFLAGS := -p 2 -parallel 4 -vet=off -ldflags=-w

# SQLite is C that was translated to Go, and so is the C library below it. What they work on lies outside Go's heap, where the
# race detector sees nothing: it would only make every test with a database several times slower. All that is Go stays watched.
# GORACE: a program with the detector waits a second before it exits, for goroutines that go on without its tests; here
# none is to be left by then.
RACE := -race $(foreach p,sqlite/lib libc/... memory,-gcflags=modernc.org/$(p)=-race=false)

# What is built as the program is shares its packages in Go's cache: those of the standard library and of the program.
AS_BUILT := env CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -trimpath"

# The compiler takes a fifth less processor time if it collects less. The linter does not, and would take 5 GB.
COMPILE := GOGC=400

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

.PHONY: build
build: ## build bin/stoa, one static binary
	@$(COMPILE) CGO_ENABLED=0 .ci/progress go build -v -trimpath -ldflags '$(LDFLAGS)' -o bin/stoa ./cmd/stoa

.PHONY: run
run: build ## build and serve examples/default.yaml on SQLite, with metrics
	@exec bin/stoa serve --config examples/default.yaml $(ARGS)

.PHONY: web
web: ## build the console from web/ into web/dist (needs npm); its types follow the OpenAPI document
	@client=$$(.ci/api-client); STOA_TEST_API_CLIENT=$$client $(AS_BUILT) go test -count 1 ./agentsvc/surface/openapi -run '^TestConsoleTypes$$' -update
	@cd web; npm ci --ignore-scripts --no-audit --no-fund; npm run check; npm run build

.PHONY: test
test: build ## run every test with the race detector, with a private PostgreSQL with pgvector, Redis, MariaDB, MCP servers, OpenID provider, browser, official clients and a generated one, and Chroma
	@.ci/needs gcc=gcc,libc6-dev bwrap=bubblewrap
	@.ci/needs haproxy=haproxy nginx=nginx-light caddy=caddy || .ci/missing "the rolling restarts behind some balancers are skipped"
	@.ci/needs lintian=lintian podman=podman buildah=buildah runc=runc systemd-analyze=systemd || .ci/missing "some of the package, the image and the unit is not tested"
	@.ci/needs prometheus=prometheus || .ci/missing "the metrics are not held against a real Prometheus"
	@.ci/needs promtool=prometheus amtool=prometheus-alertmanager || .ci/missing "alerts and their routes are not tested"
	@$(if $(filter ./...,$(PKG)),$(AS_BUILT) .ci/in deploy/charttest go test -vet=off ./...)
	@servers=$$(.ci/mcp-servers) || .ci/missing "the tests against the reference MCP servers are skipped"; \
	provider=$$(.ci/oidc-provider) || .ci/missing "the test against a real OpenID provider is skipped"; \
	client=$$(.ci/a2a-sdk) || .ci/missing "the test with the official A2A client for JavaScript is skipped"; \
	browser=$$(.ci/browser) || .ci/missing "the test with pages in a real browser is skipped"; \
	sdks=$$(.ci/client-sdks) || .ci/missing "the tests with the official clients of OpenAI and MCP for JavaScript are skipped"; \
	api=$$(.ci/api-client) || .ci/missing "the test with a client generated from the OpenAPI document is skipped"; \
	chroma=$$(.ci/vector-stores) || .ci/missing "the test of the vector store against a real Chroma is skipped"; \
	pgvector=$$(.ci/pgvector) || .ci/missing "approximate indexes in PostgreSQL are not tested: there is no pgvector"; \
	$(COMPILE) CGO_ENABLED=1 .ci/progress go list -v -export -deps -test $(RACE) $(PKG) >/dev/null; \
	STOA_TEST_PROGRAM=$(CURDIR)/bin/stoa STOA_TEST_MCP_SERVERS=$$servers STOA_TEST_OIDC_PROVIDER=$$provider STOA_TEST_A2A_SDK=$$client STOA_TEST_BROWSER=$$browser STOA_TEST_CLIENT_SDKS=$$sdks STOA_TEST_API_CLIENT=$$api STOA_TEST_CHROMA=$$chroma STOA_TEST_PGVECTOR=$$pgvector .ci/with-services .ci/mariadb env CGO_ENABLED=1 GORACE=atexit_sleep_ms=20 GOGC=400 go test $(TESTFLAGS) $(RACE) -timeout 75m $(ARGS) $(PKG)

.PHONY: faults
faults: ## run the tests that break things on purpose (build tag faults)
	@packages=$$(grep -rlE --include='*_test.go' '^//go:build .*\bfaults\b' . | xargs -r -n1 dirname | sort -u); \
	if [[ -z $$packages ]]; then echo "no test carries the build tag faults: nothing was broken, nothing is proved" >&2; exit 1; fi; \
	.ci/needs haproxy=haproxy nginx=nginx-light caddy=caddy || .ci/missing "the rolling restarts behind some balancers are skipped"; \
	chroma=$$(.ci/vector-stores) || .ci/missing "no process is killed while it writes to a real Chroma"; \
	STOA_TEST_CHROMA=$$chroma .ci/with-services go test -tags faults -count 1 -timeout 60m -v $(ARGS) $$packages | grep --line-buffered -vE '^=== (RUN|PAUSE|CONT|NAME)'

.PHONY: weaviate
weaviate: ## test the vector store against a real Weaviate, which is built once: some minutes
	@program=$$(.ci/weaviate); STOA_TEST_WEAVIATE=$$program go test -count 1 -v -run TestRealStore $(ARGS) ./agentsvc/vectorstore/weaviate && \
	STOA_TEST_WEAVIATE=$$program .ci/with-services go test -count 1 -v -run TestDeletedIsInvisibleEverywhere/weaviate $(ARGS) ./cmd/stoa && \
	STOA_TEST_WEAVIATE=$$program .ci/with-services go test -count 1 -v -run TestVectorKills $(ARGS) ./cmd/stoa/faults

.PHONY: bench
bench: build ## measure, with fsync on, and print the ratios
	@STOA_TEST_FSYNC=on .ci/with-services .ci/in bench go run . $(ARGS)

.PHONY: lint
lint: bin/golangci-lint-$(GOLANGCI_LINT_VERSION) ## check format, go.mod and the linters of .golangci.yml, of which govet is what go vet does
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [[ -n $$unformatted ]]; then echo "not formatted, make fmt does it:" >&2; echo "$$unformatted" >&2; exit 1; fi
	@for module in . $(dir $(wildcard bench/go.mod deploy/charttest/go.mod)); do \
		echo "lint: $$module"; \
		.ci/in $$module go mod tidy -diff; \
		$(COMPILE) $(AS_BUILT) .ci/in $$module "$(CURDIR)/.ci/progress" go list -v -export -deps -test -tags faults ./... >/dev/null; \
		$(AS_BUILT) .ci/in $$module "$(CURDIR)/$<" run --allow-parallel-runners; \
	done

.PHONY: fmt
fmt: ## format the code
	@gofmt -w $$(git ls-files --cached --others --exclude-standard '*.go')

.PHONY: vuln
vuln: ## look for known vulnerabilities, where their database can be reached
	@if ! curl -sfm 10 -o /dev/null https://vuln.go.dev/index/db.json; then \
		echo "ATTENTION: vuln.go.dev cannot be reached, so nobody looked for known vulnerabilities" >&2; exit 0; fi; \
	$(AS_BUILT) go run golang.org/x/vuln/cmd/govulncheck@v$(GOVULNCHECK_VERSION) ./...

.PHONY: package
package: ## write static binaries, Debian packages, SBOMs and checksums to dist; ARCHS="amd64 arm64"
	@.ci/needs dpkg-deb=dpkg
	@deploy/package/build

.PHONY: clean
clean: ## remove bin and dist
	rm -rf bin dist

# The linter of exactly this version: the machine's own where it has it, else built once.
bin/golangci-lint-$(GOLANGCI_LINT_VERSION):
	@mkdir -p bin; \
	if golangci-lint version 2>/dev/null | grep -qF 'version $(GOLANGCI_LINT_VERSION) '; then \
		ln -sf "$$(command -v golangci-lint)" $@; \
	else \
		echo "building golangci-lint $(GOLANGCI_LINT_VERSION), once: some minutes" >&2; \
		GOBIN="$(CURDIR)/bin/tmp" $(COMPILE) $(AS_BUILT) .ci/progress go install -v \
			github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_LINT_VERSION); \
		mv bin/tmp/golangci-lint $@; rmdir bin/tmp; \
	fi
