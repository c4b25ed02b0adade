// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"strings"
	"testing"
)

func TestTarget_IsAFileOrAddresses(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"prove.yaml", "shop.yaml"} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		app      app
		file     string
		services int
		fails    bool
	}{
		"a file":                     {app{Target: "shop.yaml"}, "shop.yaml", 0, false},
		"an address":                 {app{Target: "http://a:1"}, "prove.yaml", 1, false},
		"an address, no file":        {app{Target: "http://a:1", Requests: "other.yaml"}, "", 1, true},
		"two, and a file":            {app{Target: "http://a:1,http://b:1", Requests: "shop.yaml"}, "shop.yaml", 2, false},
		"a file that names another":  {app{Target: "shop.yaml", Requests: "other.yaml"}, "", 0, true},
		"more audits for the file":   {app{Target: "shop.yaml", AuditSQL: "audit.sql"}, "shop.yaml", 0, false},
		"more audits for an address": {app{Target: "http://a:1", AuditSQL: "audit.sql"}, "prove.yaml", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			file, over, err := c.app.described()
			if file != c.file || len(over.Services) != c.services || (err != nil) != c.fails {
				t.Errorf("%q, %+v, %v", file, over, err)
			}
			if strings.HasSuffix(over.AuditSQL, "/audit.sql") != (c.app.AuditSQL != "") {
				t.Errorf("queries of %q", over.AuditSQL)
			}
		})
	}
	for _, args := range [][]string{{"--audit-sql", "audit.sql"}, {"--requests", "shop.yaml"}} {
		var out strings.Builder
		if status, err := run(t.Context(), args, &out, t.Output()); status != couldNotRun || err == nil || !strings.Contains(err.Error(), "--target") {
			t.Errorf("%v without --target: exit status %d, %v", args, status, err)
		}
	}
}
