// SPDX-License-Identifier: MIT

package api

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMemberTwice_ChecksEachObjectSeparately(t *testing.T) {
	deep := strings.Repeat(`[{"a":`, 1000)
	end := strings.Repeat(`}]`, 1000)
	for text, want := range map[string]string{
		`"a"`: "", `1e400`: "", `{}`: "", `["a","a"]`: "", `{"a":"a","b":"a"}`: "",
		`{"a":{"a":{"a":1}}}`: "", `[{"a":1},{"a":1}]`: "", `{"a":1,"A":2}`: "",
		`{"a":["b","b",{"b":1}],"b":["a"]}`: "", deep + "1" + end: "",
		`{"a":1,"a":1}`: "a", `{"a":1,"\u0061":2}`: "a", `[[{"x":[],"x":{}}]]`: "x",
		`{"a":{"b":1},"c":[{"a":1}],"a":"z"}`: "a", `{"":0,"":0}`: "", deep + `{"z":1,"z":1}` + end: "z",
	} {
		got, twice := memberTwice(json.NewDecoder(strings.NewReader(text)))
		if got != want || twice != (want != "" || text == `{"":0,"":0}`) {
			t.Errorf("%.60s: %q %t, want %q", text, got, twice, want)
		}
	}
}
