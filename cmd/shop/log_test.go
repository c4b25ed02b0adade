// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestLog_DurationsOfTheJSONHaveTheirUnitInTheName(t *testing.T) {
	out := &lines{}
	logFlags{LogFormat: "json"}.logger(out).Info("x", "delay", 1500*time.Microsecond, "status", 200)
	var got map[string]any
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got["delay_ms"] != 1.5 || got["delay"] != nil || got["status"] != 200.0 {
		t.Errorf("%s", out)
	}
	out = &lines{}
	logFlags{LogFormat: "text"}.logger(out).Info("x", "delay", 1500*time.Microsecond)
	if want := "delay=1.5ms"; !strings.Contains(out.String(), want) {
		t.Errorf("%s: want %s", out, want)
	}
}
