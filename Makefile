# Each target calls a Go program. compose/local finds or installs the servers (PostgreSQL,
# Redis, etcd, MongoDB), starts them for one command and stops them afterwards.
SHELL     := /bin/bash
.SHELLFLAGS := -o pipefail -c
STACK     := bin/local exec --while $$PPID
SHOP      := bin/shop
PROVE     := bin/prove
BENCHTIME ?= 1s
COUNT     ?= 10
ROWS      ?= 3000000
.DEFAULT_GOAL := help

# With -trimpath, what was compiled in one checkout need not be compiled again in the next.
export GOFLAGS := $(GOFLAGS) -trimpath

# $(call timed,NAME,COMMAND) runs COMMAND, prints its time, and records the time for make times.
timed = @start=$$SECONDS; $(2) || { echo "FAIL $(1) after $$((SECONDS - start)) s"; exit 1; }; mkdir -p bin; echo "ok   $(1) $$((SECONDS - start)) s" | tee -a bin/times

help: ## this text
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: build ## quick proof: load and faults on three replicas, real servers, a verdict on each strategy
	@$(STACK) -- $(PROVE) --quick

prove: build ## full proof: each strategy under each fault of its stores
	@$(STACK) -- $(PROVE)

mutants: build ## proof of the proof: it must catch each service with one planted bug
	$(call timed,mutants,$(STACK) -- bin/mutants --unchanged)

tenth: build ## a tenth of the mutants, a different tenth each day
	$(call timed,a tenth of the mutants,$(STACK) -- bin/mutants --tenth $$(date -u +%F))

# Its Redis keeps no data, and starts again when it ends: the lab may kill it.
run: build ## the servers and one replica, and a page that shows a race; Ctrl-C stops them
	@$(STACK) --servers etcd,mongo,postgres,redis-memory --restart redis-memory --print -- bash -c '$(SHOP) migrate && $(SHOP) seed && exec $(SHOP) serve --lab'

# Three tiers: check before each commit, test for each change, nightly. locktest.Slow marks what check leaves out, and
# NIGHTLY names the tests that only nightly runs: tests of tests, and copies that are built in modules of their own.
NIGHTLY = '^Test(Session)?Contract_Notices|^TestQueue_PropertiesNotice|^TestSchedules_Notice|^TestCopying_.*(EmptyModule|Compiles|Work|ItsClient)$$'
# OLDEST names the one of them that needs the network.
OLDEST = TestCopying_WithTheOldestVersionsTheTestsWork

check: stack ## before each commit: vet, format, and the short tests of lessons, locks, API and docs on real servers
	@rm -f bin/times
	@$(MAKE) --no-print-directory -j 3 vet gofumpt short
	@$(MAKE) --no-print-directory times

test: ## all Go tests with -race on real servers, but those of nightly, and the quick proof
	@rm -f bin/times
	@$(MAKE) --no-print-directory race
	@$(MAKE) --no-print-directory proof
	@$(MAKE) --no-print-directory times

lint: vet modules staticcheck gofumpt generated manifests ## vet, staticcheck, gofumpt, generated code, Kubernetes manifests

# drawn is one of these parts, of which none should take more than four minutes. All mutants and the whole proof take hours.
PARTS = tests-of-redislock tests-of-tests examples oldest once schemathesis newest newest-proof libraries tenth
nightly: ## hours: what test leaves out, among it all mutants and the whole proof
	@for part in $(filter-out tenth,$(PARTS)) mutants prove; do $(MAKE) --no-print-directory $$part || exit 1; done

drawn: ## one part of nightly, another each day
	@$(MAKE) --no-print-directory $(word $(shell echo $$(($$(date +%s) / 86400 % $(words $(PARTS)) + 1))),$(PARTS))

times: ## the parts of the last make check or make test, and its ten slowest packages
	@awk '{ $$1 = ""; seconds = $$(NF-1); NF -= 2; printf "%6d s %s\n", seconds, $$0 }' bin/times | sort -rn
	@awk '$$1 == "ok" { printf "%6d s  %s\n", $$3, $$2 }' bin/packages | sort -rn | head

short:
	@go build ./... && bin/local need $(MARIADB) && bin/local need $(ZOOKEEPER) default-jre-headless libzookeeper-java && bin/local need $(PGBOUNCER) pgbouncer
	$(call timed,go test -short,$(MEMORY) GOGC=400 $(STACK) -- go test -short -vet=off -ldflags=-w -shuffle=on -count=1 -p 3 -parallel 4 $(CHECKED) | tee bin/packages)
CHECKED = ./inventory ./wallet ./transfer ./cmd/shop/api ./locking/... ./inventory/... ./wallet/... ./loadtest ./docs

# Tests mostly wait, so three packages run at a time, the longest first, with four parallel tests each. What they import
# is compiled before: on a new machine that takes minutes, in which servers and tests would be too slow.
# GOGC and -w save CPU time: less garbage collection, no debug information to link.
LONGEST = ./cmd/shop ./wallet ./locking/redislock ./cmd/shop/lab ./loadtest/scenario/inventory ./cmd/shop/api ./loadtest/prove ./locking/etcdlock \
	./loadtest/scenario/transfer ./transfer ./loadtest/fault/mongofault ./locking/zklock ./loadtest/fault/redisfault ./compose/prometheus ./loadtest/fault/etcdfault

# The files of the tests, and of their servers, are in memory if /dev/shm has 8 GB and lets programs run: each commit
# waits for a disk otherwise, on which the linker writes at the same time.
MEMORY = $(shell grep -qs ' /dev/shm [^ ]* [^ ]*noexec' /proc/mounts || df -Pk /dev/shm 2>/dev/null | awk 'END { if ($$4 > 8000000) print "TMPDIR=/dev/shm" }')

# For the tests of locks behind a pooler. It is not on every user's PATH.
PGBOUNCER = $(firstword $(wildcard /usr/sbin/pgbouncer /opt/homebrew/bin/pgbouncer) /usr/sbin/pgbouncer)

# The server of the tests of locking/mysqllock and of make peers, and its package.
MARIADB = mariadbd $(if $(filter Darwin,$(shell uname)),mariadb,mariadb-server-core)

# The driver of the shops in loadtest/examples.
PSYCOPG = /usr/lib/python3/dist-packages/psycopg2/__init__.py

# The server of the tests of locking/zklock.
ZOOKEEPER = /usr/share/java/zookeeper.jar

race: ready build ## only the Go tests of test
	$(call timed,go build -race,GOGC=400 go build -race ./...)
	$(call timed,go test -race,$(call tested,-p 3 -parallel 4 -skip $(NIGHTLY),$(LONGEST) ./...) | tee bin/packages || $(again))

# $(call tested,FLAGS,PACKAGES) runs their tests on real servers.
tested = $(MEMORY) GOGC=400 $(STACK) -- go test -race -vet=off -ldflags=-w -shuffle=on -count=1 -timeout 15m $(1) $(2)

# Locks have time limits, and a machine that many share may stand still for longer. Of all packages, up to three that
# fail are tested once more, alone, and the output says so. After a data race or a panic nothing is tested again.
again = { failed=$$(awk '$$1 == "FAIL" && NF > 1 { print $$2 }' bin/packages); test -n "$$failed" && test $$(wc -w <<<$$failed) -le 3 && \
	! grep -qE 'DATA RACE|^panic: |build failed|setup failed' bin/packages && echo "AGAIN, alone:" $$failed && $(call tested,-p 1 -skip $(NIGHTLY),$$failed) | tee -a bin/packages; }

tests-of-redislock: ready
	$(call timed,tests of the tests of redislock,$(call tested,-run $(NIGHTLY),./locking/redislock ./locking/redisqueue))

tests-of-tests: ready
	$(call timed,tests of the other tests,$(call tested,-p 3 -run $(NIGHTLY),$$(grep -rlE 'func TestContract_Notices|func TestS.*_Notice' --include='*_test.go' locking | xargs -n 1 dirname | sort -u | grep -v /red | sed 's|^|./|')))

examples: ready
	$(call timed,copies in modules of their own,$(call tested,-run $(NIGHTLY) -skip $(OLDEST),./docs/examples))

oldest: ready
	$(call timed,copies with the oldest clients,$(MEMORY) $(STACK) -- go test -vet=off -count=1 -v -run $(OLDEST) ./docs/examples)

once: ready build
	$(call timed,each benchmark once,$(MEMORY) $(STACK) -- go test -run '^$$' -bench . -benchtime 1x $(BENCHED))
	$(call timed,each benchmark of loadtest/bench once,$(MEMORY) $(STACK) --servers $(ALL) -- go -C loadtest/bench test -vet=off -short -run '^$$' -bench . -benchtime 1x .)

# Servers run the newest PostgreSQL; Debian's is what all else runs.
NEWEST = server=$$(bin/local newest) && SHOP_POSTGRES_SERVER=$$server
newest: ready
	$(call timed,the lessons on PostgreSQL 18,$(NEWEST) $(MEMORY) $(STACK) -- go test -vet=off -count=1 ./inventory/... ./transfer ./locking/idempotency/... ./locking/pglock)

newest-proof: build
	$(call timed,prove --quick on PostgreSQL 18,$(NEWEST) $(STACK) -- $(PROVE) --quick)

schemathesis: build ## generated requests, valid and invalid, against a real server, checked by its OpenAPI document; EXAMPLES=n SEED=n
	@bin/local need pip3 python3-pip
	$(call timed,schemathesis,$(STACK) -- cmd/shop/api/schemathesis/run)

proof: build
	$(call timed,prove --quick,$(STACK) -- $(PROVE) --quick)

# The packages with benchmarks. The tests of the other packages are not built.
BENCHED = $$(grep -rlE '^func Benchmark' --include='*_test.go' --exclude-dir=bench . | xargs -n 1 dirname | sort -u)

bench: build ## benchmarks on real servers; compare ratios, not numbers; writes report/bench.json
	$(call measured,.)
	@$(STACK) -- go test -run '^$$' -bench . -benchtime $(BENCHTIME) -timeout 30m $(BENCHED)

peers: build ## the lock stores against other Go libraries, and the ratios
	$(call measured,Key|Processes)

# $(call measured,REGEXP) runs benchmarks of loadtest/bench: COUNT times all of them in turns. benchstat makes medians of
# report/bench.txt, and bin/bench prints the ratios.
measured = @bin/local need $(MARIADB) && mkdir -p report && go test -C loadtest/bench -vet=off -c -o ../../bin/bench.test . && go build -C loadtest/bench -o ../../bin/ . && \
	$(STACK) --servers $(ALL) -- bash -c 'cd loadtest/bench && for turn in $$(seq $(COUNT)); do \
		TURN=$$turn ../../bin/bench.test -test.run "^$$" -test.bench "$(1)" -test.benchtime $(BENCHTIME) -test.timeout 30m || exit 1; done' | tee report/bench.txt && \
	go -C loadtest/bench tool benchstat -format csv ../../report/bench.txt | bin/bench report/bench.json
ALL = etcd,mongo,postgres,redis,zookeeper

libraries: build ## the contract of a lock, run over other Go libraries
	@bin/local need $(MARIADB)
	$(call timed,the contract over other libraries,$(STACK) --servers $(ALL) -- go -C loadtest/bench test -vet=off -count=1 -v .)

costs: build ## the times of docs/patterns.md, one lock after another, into docs/costs.txt
	@{ echo "date: $$(date +%F)"; $(STACK) -- go test -run '^$$' -bench Patterns -benchtime 1x ./cmd/shop/lab | \
		awk -F'\t' '/^cpu: / { print "cpu: " substr($$0, 6) ", " cores " cores" } /^Benchmark/ { name = $$1; sub(/^BenchmarkPatterns\//, "", name); sub(/-[0-9]+ *$$/, "", name); gsub(/_/, " ", name); \
		for (i = 2; i <= NF; i++) if ($$i ~ / µs$$/) printf ($$i + 0 < 10 ? "%s %.1f µs\n" : "%s %.0f µs\n"), name, $$i }' cores=$$(nproc); } | tee bin/costs && cp bin/costs docs/costs.txt

hot: build ## combined against the plain strategies, and the ratios with targets
	$(call measured,Product|Many|Account|Wallet|Statements)

size: build ## fill the stores with ROWS rows, and time each command of docs/operations.md; ROWS=3000000
	@go build -o bin/ ./loadtest/size
	@$(MEMORY) $(STACK) -- bin/size --rows $(ROWS)

picture: ## write docs/report.png, the top of the last make demo's report (needs chromium)
	@chromium --headless --no-sandbox --hide-scrollbars --window-size=1180,1010 --screenshot=docs/report.png report/index.html

screenshots: ready ## write docs/race.png and docs/lab.png: browser tests of the lab page race, and take them
	@SHOP_SCREENSHOTS=$(CURDIR)/docs $(STACK) -- go test -count=1 -run TestPage_AVisitorSees ./cmd/shop/lab

clean: ## remove bin and report
	@rm -rf bin report

stack:
	@go build -o bin/ ./compose/local

build: ## the programs, into bin/
	@test -x $(SHOP) || echo "build: compiling, which takes 1 to 4 minutes the first time"
	$(call timed,build,go build -o bin/ ./cmd/shop ./loadtest/prove ./loadtest/mutants ./compose/local)
	@go list -deps github.com/tsenart/vegeta/v12 >/dev/null # go tool vegeta works without a network then

ready: stack
	@bin/local need gcc gcc libc6-dev && bin/local need ps procps && bin/local need $(PGBOUNCER) pgbouncer && bin/local need $(MARIADB) && \
		bin/local need $(PSYCOPG) python3-psycopg2 && bin/local need $(ZOOKEEPER) default-jre-headless libzookeeper-java && bin/local need chromium chromium && bin/local need promtool prometheus && bin/local need curl curl
	$(call timed,servers,$(STACK) -- true)

vet:
	$(call timed,go vet,GOGC=400 go vet ./...)

modules:
	$(call timed,go vet of nested modules,for m in $$(find . -mindepth 2 -name go.mod -exec dirname {} \;); do go vet -C $$m ./... || exit 1; done)

staticcheck:
	$(call timed,staticcheck,GOGC=400 nice go tool staticcheck ./...)

generated:
	$(call timed,generated code,(cd cmd/shop/api && go tool oapi-codegen -config oapi-codegen.yaml openapi.yaml | go tool gofumpt | cmp - api.gen.go) || { echo "cmd/shop/api/api.gen.go is not what openapi.yaml says: go generate ./cmd/shop/api"; exit 1; })

manifests:
	$(call timed,Kubernetes manifests,nice go test -C compose/kubernetes ./...)

gofumpt:
	$(call timed,gofumpt,{ out=$$(go tool gofumpt -l .); test -z "$$out" || { echo "not formatted (go tool gofumpt -w .):"; echo "$$out"; exit 1; }; })

.PHONY: help demo prove mutants tenth run check test lint nightly drawn times short race proof tests-of-redislock tests-of-tests examples oldest once newest newest-proof schemathesis bench peers libraries costs hot size picture screenshots clean stack build ready vet modules staticcheck generated manifests gofumpt
