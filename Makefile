# Cache Lab: Thundering Herd. "make" alone lists the targets.
# ARGS go to the program: make fixed ARGS='--workers 200'

SHELL := bash
ARGS ?=
BIN := .bin/cachelab
STATICCHECK = go tool -modfile=$(CURDIR)/.ci/tools/go.mod staticcheck

# Every folder with a go.mod, the program's first; "each" runs a command in some of them. The page's tests need a browser.
MODULES := . grafana deploy app/page/browser app/peers
TESTED = $(if $(shell command -v chromium 2>/dev/null),$(MODULES),$(filter-out app/page/browser,$(MODULES)))
define newline


endef
TAGS := soak,e2e,kubernetes
each = $(foreach module,$(1),cd $(module) && $(2)$(newline))

# Versions and ports of the stack: those that it was started with, else those of .env; a variable of the shell or of the
# command line wins over both.
UP := .cachelab/up
ifneq ($(MAKECMDGOALS),up)
-include $(UP)
endif
$(foreach line,$(shell grep '^[A-Z]' .env),$(eval export $(subst =, ?= ,$(line))))

# While the stack is up, the lab uses it: a Redis that is missing then is an error, and no reason to fall back to the
# embedded one. What the user says of Redis or of OTLP counts more.
ifneq ($(wildcard $(UP)),)
STACK = CACHELAB_REDIS="$${CACHELAB_REDIS-redis://127.0.0.1:$(REDIS_PORT)}" \
	CACHELAB_JAEGER_URL="$${CACHELAB_JAEGER_URL-http://127.0.0.1:$(JAEGER_PORT)}" \
	CACHELAB_GRAFANA_URL="$${CACHELAB_GRAFANA_URL-http://127.0.0.1:$(GRAFANA_PORT)}" \
	CACHELAB_PROMETHEUS_URL="$${CACHELAB_PROMETHEUS_URL-http://127.0.0.1:$(PROMETHEUS_PORT)}"
ifeq ($(OTEL_EXPORTER_OTLP_ENDPOINT)$(OTEL_EXPORTER_OTLP_PROTOCOL),)
STACK += OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="$${OTEL_EXPORTER_OTLP_TRACES_ENDPOINT-http://127.0.0.1:$(OTLP_HTTP_PORT)/v1/traces}" \
	OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="$${OTEL_EXPORTER_OTLP_METRICS_ENDPOINT-http://127.0.0.1:$(PROMETHEUS_PORT)/api/v1/otlp/v1/metrics}"
endif
endif
LAB = $(STACK) $(BIN)

.DEFAULT_GOAL := help
.PHONY: help broken fixed coalesced woken early stale load compare report live gallery page drills up down verify dashboards test race soak bench peers e2e browser pictures lint fmt clean build go

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | while IFS=$$'\t' read -r target text; do printf '  make %-14s %s\n' "$$target" "$$text"; done

broken: build ## every worker that misses calls the backend: the herd
	@$(LAB) broken $(ARGS)

fixed: build ## one worker fills under a lock, the others wait
	@$(LAB) fixed $(ARGS)

early: build ## refreshes before the expiry, under open traffic
	@$(LAB) early $(ARGS)

stale: build ## refreshes in the background, under open traffic
	@$(LAB) stale $(ARGS)

coalesced: build ## the callers in one process share one flight
	@$(LAB) coalesced $(ARGS)

woken: build ## flights share the fill lock, and the winner wakes the others
	@$(LAB) woken $(ARGS)

load: build ## fixed with 500 workers and 10 rounds, quiet
	@$(LAB) load $(ARGS)

compare: build ## broken, then fixed, side by side
	@$(LAB) compare $(ARGS)

REPORT ?= .bin/report.html
report: build ## compare, and one HTML page with its pictures; prints where it is
	@$(LAB) compare --report $(REPORT) $(ARGS)

live: build ## both in turn on a key that expires under traffic, until Ctrl-C
	@$(LAB) live $(ARGS)

gallery: build ## all strategies in turn under the same open traffic, in one table; 20 s each
	@$(LAB) gallery $(ARGS)

page: build ## the lab in a browser: press the button, watch the herd; prints where, and opens nothing
	@$(LAB) page $(ARGS)

drills: build ## a fault on purpose: all drills, on the embedded Redis (one: make drill-slow-fill)
	@$(LAB) drill all --redis embedded $(ARGS)

drill-%: build
	@$(LAB) drill $* $(ARGS)

up: ## start Redis, Jaeger, Prometheus and Grafana (needs Docker), and print where to look
	@deploy/up $(ARGS)
	@mkdir -p $(dir $(UP)) && for port in REDIS JAEGER OTLP_HTTP OTLP_GRPC PROMETHEUS GRAFANA; do \
		name=$${port}_PORT; echo "export $$name ?= $${!name}"; done >$(UP)

down: ## stop them, and forget that they were up; what Prometheus stored stays
	@rm -f $(UP)
	@docker compose --profile '*' down

fleet: ## a herd of FLEET_JOINERS containers (4), FLEET_WORKERS in each (50), FLEET_MODE (fixed), FLEET_ROUNDS (5), on the stack that is up
	@[ -e $(UP) ] || { echo "The stack is not up: make up, then make fleet. Without it: docker compose --profile fleet up --exit-code-from coordinator" >&2; exit 1; }
	@docker compose --profile fleet up --no-deps --exit-code-from coordinator backend coordinator worker

verify: build ## hold the newest run against what Jaeger and Prometheus have stored
	@$(LAB) verify $(ARGS)

dashboards: go ## write grafana/dashboards, which make up shows
	cd grafana && go run . dashboards

pictures: build ## draw the pictures of the README anew (needs Chromium, Debian: apt-get install chromium fonts-dejavu)
	cd app/page/browser && go run . -program ../../../$(BIN) -into ../images

browser: build ## test the HTML page in a headless Chromium (Debian: apt-get install chromium)
	cd app/page/browser && go vet ./... && go test -count=1 -timeout 5m ./...

test: build ## the tests; those on a real Redis need redis-server, those of the HTML page Chromium
	@command -v redis-server >/dev/null || echo "no redis-server here: the tests on a real Redis are skipped (Debian: apt-get install redis-server)"
	@command -v chromium >/dev/null || echo "no chromium here: the tests of the HTML page in a browser are skipped (Debian: apt-get install chromium)"
	$(call each,$(TESTED),go test -parallel 4 ./...)

race: build ## the tests with the race detector (needs a C compiler)
	$(call each,$(TESTED),go test -race -p 1 -parallel 4 ./...)

soak: go ## the long runs on a real Redis: 1,000 rounds, 10,000 workers, all drills
	CACHELAB_REQUIRE_REDIS=1 go test -tags soak -run Soak -timeout 30m -v ./app/cli ./app/drill

e2e: go ## the stack end to end without Docker: builds Jaeger and Prometheus (15 minutes the first time)
	cd deploy && CACHELAB_REQUIRE_REDIS=1 go test -tags e2e -count 1 -v -timeout 45m . | grep -vE '^(=== |    --- PASS)'; exit $${PIPESTATUS[0]}

e2e-kubernetes: go ## deploy/kubernetes on the cluster of KUBECONFIG, with the lab's image IMAGE (cachelab:local); needs kubectl
	cd deploy && go test -tags kubernetes -run OnACluster -count 1 -v -timeout 30m .

bench: go ## cost of a Get, of waiting, and of telemetry, on a real Redis
	CACHELAB_REQUIRE_REDIS=1 go test -run '^$$' -bench 'Get|Telemetry|Span' ./app/lab
	CACHELAB_REQUIRE_REDIS=1 go test -run '^$$' -bench Wait -benchtime 20x ./app/lab
	CACHELAB_REQUIRE_REDIS=1 go test -run '^$$' -bench LoadCPU -benchtime 3x ./app/cli
	go test -run '^$$' -bench Fold ./app/results

peers: go ## the strategies beside the libraries that others would pick, on a real Redis; 25 minutes
	@cd app/peers && go build -o ../../.bin/peers . && cd ../.. && .bin/peers $(if $(ARGS),--quiet,--json .bin/peers.json --plot .bin/peers.svg) $(ARGS)

lint: go ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	$(call each,$(MODULES),go vet -tags $(TAGS) ./... && $(STATICCHECK) -tags $(TAGS) ./...)

fmt: ## gofmt
	gofmt -w .

clean: ## remove what was built
	rm -rf .bin

# The tag or commit, with -dirty if there are changes; nothing outside of a Git checkout.
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null)
# Whatever is built here asks for this Go first. An older one fetches it by itself, unless it is told not to or is offline.
GO_NEEDED := $(shell sed -n 's/^go //p' go.mod)
go:
	@says=$$(go env GOVERSION 2>&1); \
	if ! [[ $$says =~ ^(devel )?go([0-9.]+) && $$(printf '%s\n' "$${BASH_REMATCH[2]}" $(GO_NEEDED) | sort -V | head -n 1) = $(GO_NEEDED) ]]; then \
		echo "The lab needs Go $(GO_NEEDED) or newer, see https://go.dev/dl; here is: $$says"; \
		[ "$$(go env GOTOOLCHAIN 2>/dev/null)" != local ] || echo 'GOTOOLCHAIN=local keeps it from fetching a newer one by itself.'; \
		echo 'Docker does without: docker compose run --rm lab fixed'; exit 1; \
	fi >&2

build: go
	@go build -ldflags "-X cachelab/app/cli.built=$(VERSION)" -o $(BIN) ./app
