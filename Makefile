# Cache Lab: Thundering Herd. "make" alone lists the targets.
# ARGS go to the program: make fixed ARGS='--workers 200'

SHELL := bash
ARGS ?=
BIN := .bin/cachelab
STATICCHECK = go tool -modfile=.ci/tools/go.mod staticcheck

.DEFAULT_GOAL := help
.PHONY: help broken fixed load compare report pictures browser test race soak bench lint fmt clean build

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | while IFS=$$'\t' read -r target text; do printf '  make %-10s %s\n' "$$target" "$$text"; done

broken: build ## every worker that misses calls the backend: the herd
	@$(BIN) broken $(ARGS)

fixed: build ## one worker fills under a lock, the others wait
	@$(BIN) fixed $(ARGS)

load: build ## fixed with 500 workers and 10 rounds, quiet
	@$(BIN) load $(ARGS)

compare: build ## broken, then fixed, side by side
	@$(BIN) compare $(ARGS)

REPORT ?= .bin/report.html
report: build ## compare, and one HTML page with its pictures; prints where it is
	@$(BIN) compare --report $(REPORT) $(ARGS)

pictures: build ## draw the pictures of the README anew (needs Chromium, Debian: apt-get install chromium fonts-dejavu)
	cd app/report/browser && go run . -program ../../../$(BIN) -into ../images

browser: build ## test the HTML page in a headless Chromium (Debian: apt-get install chromium)
	cd app/report/browser && go vet ./... && go test -count=1 -timeout 5m ./...

test: ## the tests; those on a real Redis need redis-server
	@command -v redis-server >/dev/null || echo "no redis-server here: the tests on a real Redis are skipped (Debian: apt-get install redis-server)"
	go test ./...

race: ## the tests with the race detector (needs a C compiler)
	go test -race ./...

soak: ## the long runs on a real Redis: 1,000 rounds, 10,000 workers
	CACHELAB_REQUIRE_REDIS=1 go test -tags soak -run Soak -timeout 30m -v ./app/cli

bench: ## cost of a Get, of waiting, and of telemetry, on a real Redis
	CACHELAB_REQUIRE_REDIS=1 go test -run '^$$' -bench 'Get|Telemetry' ./app/lab
	CACHELAB_REQUIRE_REDIS=1 go test -run '^$$' -bench Wait -benchtime 20x ./app/lab
	CACHELAB_REQUIRE_REDIS=1 go test -run '^$$' -bench LoadCPU -benchtime 3x ./app/cli

lint: ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	go vet -tags soak ./...
	$(STATICCHECK) -tags soak ./...

fmt: ## gofmt
	gofmt -w .

clean: ## remove what was built
	rm -rf .bin

build:
	@go build -o $(BIN) ./app
