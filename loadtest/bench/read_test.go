// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// said is what benchstat -format csv says of some runs.
const said = `goos: linux
cpu: Any "CPU" @ 2.00GHz

,report/bench.txt,
,ops/s,CI
Product/clients=32/processes=1/work=0s/strategy=combined-2,1500,2%
Product/clients=32/processes=1/work=0s/strategy=row-2,100,5%
OneKey/server=redis/lock=bsm-redislock-2,1600,∞
OneKey/server=redis/lock=redislock-2,1500,∞
OneKey/server=etcd/lock=etcd-concurrency-2,500,∞
OneKey/server=redis/lock=combine-2,1500,∞
geomean,400,

,report/bench.txt,
,p99-ms,CI
Product/clients=32/processes=1/work=0s/strategy=combined-2,2,2%
Product/clients=32/processes=1/work=0s/strategy=row-2,10,2%
geomean,4,

,report/bench.txt,
,ratio,CI
Product/clients=32/processes=1/work=0s/strategy=combined/against=row-2,15,10%
OneKey/server=redis/lock=redislock/against=bsm-redislock-2,0.95,∞
OneKey/server=redis/lock=combine/against=bsm-redislock-2,0.94,∞
OneKey/server=redis/lock=combine/against=etcd-concurrency-2,3,∞
geomean,2,

,report/bench.txt,
,batch-ms,CI
Statements/flow=product/clients=32-2,5,1%
geomean,5,
`

func TestRun_ComparesOursWithTheOthersAndWithTheTargets(t *testing.T) {
	file, out := filepath.Join(t.TempDir(), "report", "bench.json"), new(strings.Builder)
	if err := run(strings.NewReader(said), out, []string{file}); err != nil {
		t.Fatal(err)
	}
	want := `
Product/clients=32/processes=1/work=0s  combined / row              15.00 [13.50, 16.50]    1500, 100 ops/s  2, 10 p99-ms  ops/s ratio ≥ 15: met  p99-ms ratio ≤ 0.1: missed
OneKey/server=redis                     redislock / bsm-redislock   0.95                    1500, 1600 ops/s
OneKey/server=redis                     combine / bsm-redislock     0.94                    1500, 1600 ops/s  ops/s ratio ≥ 10: missed
OneKey/server=redis                     combine / etcd-concurrency  3.00                    1500, 500 ops/s  ops/s ratio ≥ 10: missed
Statements/flow=product/clients=32                                                          5 batch-ms
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("%s\nwant%s", got, want)
	}
	text, err := os.ReadFile(file)
	var rows []row
	if err != nil || json.Unmarshal(text, &rows) != nil || len(rows) != 5 || rows[0].Ratio != 15 || !rows[0].Targets[0].Met {
		t.Errorf("%v: %s", err, text)
	}
}
