// SPDX-License-Identifier: MIT

package api

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"shop/inventory"
	"shop/transfer"
	"shop/wallet"
)

func TestSpec_EveryContentHasAnExampleAndEachIsValid(t *testing.T) {
	spec := must(GetSpec())(t)
	if err := spec.Validate(t.Context()); err != nil { // also validates the examples
		t.Error(err)
	}
	for name, op := range must(operations())(t) {
		contents := map[string]openapi3.Content{}
		if op.body {
			contents["request"] = op.route.Operation.RequestBody.Value.Content
		}
		for status, response := range op.route.Operation.Responses.Map() {
			contents[status] = response.Value.Content
		}
		for of, content := range contents {
			for _, media := range content {
				if len(media.Examples) == 0 {
					t.Errorf("%s, %s: no example", name, of)
				}
			}
		}
		for _, p := range op.route.Operation.Parameters {
			if p.Value.Required && p.Value.Example == nil {
				t.Errorf("%s: no example of %s", name, p.Value.Name)
			}
		}
	}
}

// The control of the test above: a wrong example is found, wherever it stands.
func TestSpec_AWrongExampleIsFound(t *testing.T) {
	text := string(must(GetSpecJSON())(t))
	for _, wrong := range [][2]string{
		{`"left":0`, `"left":"none"`},                                              // a problem
		{`"state":"voided"`, `"state":"void"`},                                     // a response
		{`"lines":[{"quantity":2,"sku":"coffee"}]`, `"lines":[]`},                  // a request
		{`"pending":true`, `"pending":false`},                                      // what only 3.1 can say
		{`"example":"6f1c1c52-order-1"`, `"example":""`},                           // a parameter
		{`"title":"Too large","type":"/problems/too-large"`, `"type":"too-large"`}, // a problem without its title
	} {
		if !strings.Contains(text, wrong[0]) {
			t.Errorf("the spec has no %s", wrong[0])
			continue
		}
		spec, err := openapi3.NewLoader().LoadFromData([]byte(strings.ReplaceAll(text, wrong[0], wrong[1])))
		if err == nil {
			err = spec.Validate(t.Context())
		}
		if err == nil {
			t.Errorf("%s instead of %s: not found", wrong[1], wrong[0])
		}
	}
}

// The document is the spec that the server validates with, and its links lead to operations.
func TestDocument_IsTheSpecAndItsLinksLeadSomewhere(t *testing.T) {
	text := must(Document())(t)
	document := must(openapi3.NewLoader().LoadFromData(text))(t)
	if err := document.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	ids := map[string]bool{}
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			ids[op.OperationID] = true
			if generated := must(GetSpec())(t).Paths.Value(path).GetOperation(method); !strings.EqualFold(generated.OperationID, op.OperationID) {
				t.Errorf("%s %s: the generated server has %q, the document %q", method, path, generated.OperationID, op.OperationID)
			}
		}
	}
	links := 0
	for path, item := range document.Paths.Map() {
		for _, op := range item.Operations() {
			for _, response := range op.Responses.Map() {
				for name, link := range response.Value.Links {
					links++
					if !ids[link.Value.OperationID] {
						t.Errorf("%s: the link %s leads to %q", path, name, link.Value.OperationID)
					}
				}
			}
		}
	}
	if links == 0 || strings.Contains(string(text), `"<<"`) || strings.Contains(string(text), `"x-body"`) {
		t.Errorf("%d links; or what was merged is still there", links)
	}
}

// where says on which operations a problem can occur. It has a rule for each type of the error table.
var where = map[ProblemType]func(*operation) bool{
	TypeMalformed: always, TypeInternal: always,
	TypeUnauthorized: keyed, TypeRateLimited: keyed, TypeBusy: keyed, TypeTimeout: keyed,
	TypeForbidden: func(o *operation) bool { return o.admin || isOperation(o, "CreateTransfer") || writesWallet(o) },
	TypeNotFound:  func(o *operation) bool { return writes(o) || strings.Contains(o.route.Path, "{") },

	TypeMissingIdempotencyKey: writes, TypeIdempotencyKeyReused: writes, TypeOutcomeUnknown: writes,
	TypeTooLarge: takesBody, TypeUnsupportedMediaType: takesBody, TypeRequestTimeout: takesBody, TypeInvalidRequest: takesBody,
	TypeInProgress: func(o *operation) bool { return writes(o) && !writesWallet(o) },
	TypeLost:       func(o *operation) bool { return writes(o) && !writesWallet(o) },
	TypeStale:      writesTransfer, TypeFenceEpoch: writesTransfer,

	TypeOutOfStock:        only("PlaceOrder"),
	TypePurchaseLimit:     only("PlaceOrder"),
	TypePriceChanged:      only("PlaceOrder"),
	TypeStockLimit:        only("CancelOrder"),
	TypeAlreadyCancelled:  only("CancelOrder"),
	TypeInsufficientFunds: only("CreateTransfer", "DebitWallet", "PayFromWallet"),
	TypeExpired:           only("PostTransfer", "VoidTransfer"),
	TypeAlreadySettled:    only("PostTransfer", "VoidTransfer"),
	TypeMethodNotAllowed:  only(), // a method of the spec is allowed
}

func always(*operation) bool      { return true }
func keyed(o *operation) bool     { return !o.public }
func takesBody(o *operation) bool { return o.body }
func writes(o *operation) bool {
	return o.route.Operation.Parameters.GetByInAndName(openapi3.ParameterInHeader, headerKey) != nil
}

func writesWallet(o *operation) bool {
	return writes(o) && slices.Contains(o.route.Operation.Tags, "wallets")
}

func writesTransfer(o *operation) bool {
	return writes(o) && slices.Contains(o.route.Operation.Tags, "transfers")
}

func isOperation(o *operation, ids ...string) bool {
	return slices.Contains(ids, o.route.Operation.OperationID)
}

func only(ids ...string) func(*operation) bool {
	return func(o *operation) bool { return isOperation(o, ids...) }
}

// kinds returns the table's kinds and internal, by type.
func kinds() map[ProblemType]kind {
	all := map[ProblemType]kind{TypeInternal: internal}
	for _, row := range table {
		all[row.kind.typ] = row.kind
	}
	return all
}

func TestSpec_HasAnExampleOfEachErrorOfEachOperation(t *testing.T) {
	for name, op := range must(operations())(t) {
		listed := map[ProblemType]string{} // with its status
		for status, response := range op.route.Operation.Responses.Map() {
			if media := response.Value.Content[typeProblem]; media != nil {
				for _, example := range media.Examples {
					problem := example.Value.Value.(map[string]any)
					listed[ProblemType(problem["type"].(string))] = status
				}
			}
		}
		for typ, k := range kinds() {
			can, found := where[typ]
			if !found {
				t.Fatalf("where has no rule for %s", typ)
			}
			status, isListed := listed[typ]
			if isListed != can(op) || isListed && status != fmt.Sprint(k.status) {
				t.Errorf("%s: %s (%d) can occur: %t, the spec has it: %t %s", name, typ, k.status, can(op), isListed, status)
			}
			if response := op.route.Operation.Responses.Value(status); isListed && k.wait > 0 && response.Value.Headers["Retry-After"] == nil {
				t.Errorf("%s: %s without the header Retry-After", name, status)
			}
		}
	}
}

// The table of the description says what the error table says.
func TestSpec_DescribesEachProblem(t *testing.T) {
	yes := map[bool]string{true: "yes", false: "no"}
	want := map[string]bool{}
	for typ, k := range kinds() {
		outcome := "rejected"
		switch {
		case strings.Contains(k.detail, "Nothing was done."), k.typ == TypeRateLimited:
			outcome = "open"
		case k.detail == mayHave, k.detail == inProgress, k.detail == ourFault:
			outcome = "unknown"
		}
		want[fmt.Sprintf("| `%s` | %d | %s | %s | %s |", typ, k.status, outcome, yes[k.stored], yes[k.wait > 0])] = true
	}
	got := map[string]bool{}
	for line := range strings.Lines(must(GetSpec())(t).Info.Description) {
		if strings.HasPrefix(line, "| `/problems/") {
			got[strings.TrimSpace(line)] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the description has\n%s\nwant\n%s", lined(got), lined(want))
	}
}

func lined(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), "\n") }

func TestSpec_OffersTheStrategiesOfTheLessons(t *testing.T) {
	components := must(GetSpec())(t).Components.Parameters
	want := map[string][]any{}
	for _, s := range inventory.Strategies() {
		want["OrderStrategy"] = append(want["OrderStrategy"], s.Name)
	}
	for _, s := range transfer.Strategies() {
		want["TransferStrategy"] = append(want["TransferStrategy"], s.Name)
	}
	for _, s := range wallet.Strategies() {
		want["WalletStrategy"] = append(want["WalletStrategy"], s.Name)
	}
	for name, strategies := range want {
		if got := components[name].Value.Schema.Value.Enum; !slices.Equal(got, strategies) {
			t.Errorf("%s: the spec has %v, want %v", name, got, strategies)
		}
	}
}

// What the pattern of expires_in accepts is a duration within the limits, and a duration within the limits is accepted.
func TestSpec_APatternSaysHowLongAHoldLasts(t *testing.T) {
	schema := must(GetSpec())(t).Components.Schemas["TransferRequest"].Value.Properties["expires_in"].Value
	accepts := func(text string) bool { return schema.VisitJSON(text) == nil }
	durations := []time.Duration{
		time.Millisecond, 999 * time.Millisecond, time.Second, 90 * time.Second, time.Hour, time.Hour + time.Minute,
		time.Hour + time.Second, transfer.HoldMax - time.Nanosecond, transfer.HoldMax,
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		digits := time.Duration(1)
		for range random.IntN(15) {
			digits *= 10
		}
		durations = append(durations, time.Millisecond+time.Duration(random.Int64N(int64(transfer.HoldMax-time.Millisecond)))/digits)
	}
	for _, d := range durations {
		if !accepts(d.String()) {
			t.Errorf("%v is refused", d)
		}
	}
	for _, text := range []string{"500ms", "90s", "15m", "1h30m", "1h5s", "719h59m59.999999999s", "9999m59s", "999999s", "999999999ms", "720h", "720h0m0s"} {
		if d, err := time.ParseDuration(text); err != nil || !accepts(text) || d < time.Millisecond || d > transfer.HoldMax {
			t.Errorf("%s: accepted %t, a duration of %v, %v", text, accepts(text), d, err)
		}
	}
	for _, text := range []string{"", "0s", "0h", "0.5s", "1us", "999µs", "-1m", "+1m", "15", "m", "1d", "1m1h", "1h60m", "720h1s", "721h", "15m\n", " 15m"} {
		if accepts(text) {
			t.Errorf("%q is accepted", text)
		}
	}
}

// requested calls f for each schema of a request: of its parameters and in its body.
func requested(t *testing.T, f func(name string, schema *openapi3.Schema)) {
	t.Helper()
	var walk func(name string, schema *openapi3.Schema)
	walk = func(name string, schema *openapi3.Schema) {
		f(name, schema)
		if schema.Items != nil {
			walk(name+"[]", schema.Items.Value)
		}
		for member, property := range schema.Properties {
			walk(name+"."+member, property.Value)
		}
	}
	for name, op := range must(operations())(t) {
		for _, p := range op.route.Operation.Parameters {
			walk(name+" "+p.Value.Name, p.Value.Schema.Value)
		}
		if op.body {
			walk(name, op.route.Operation.RequestBody.Value.Content[typeJSON].Schema.Value)
		}
	}
}

func TestSpec_EachTextAndListOfARequestIsBounded(t *testing.T) {
	requested(t, func(name string, schema *openapi3.Schema) {
		long := strings.Repeat("a", 1000)
		switch {
		case schema.Type.Is("string") && schema.VisitJSON(long) == nil:
			t.Errorf("%s: %d letters are accepted", name, len(long))
		case schema.Type.Is("array") && schema.MaxItems == nil:
			t.Errorf("%s has no maxItems", name)
		case schema.Type.Is("object") && (schema.AdditionalProperties.Has == nil || *schema.AdditionalProperties.Has):
			t.Errorf("%s accepts any member", name)
		case schema.Type.Is("integer") && (schema.Min == nil || schema.Max == nil):
			t.Errorf("%s has no limits", name)
		case !slices.ContainsFunc([]string{"string", "array", "object", "integer", "boolean"}, schema.Type.Is):
			t.Errorf("%s has the type %v", name, schema.Type)
		}
	})
}

// The server requests nothing on behalf of a client, so no request has an address. A key may look like one, but is only compared.
func TestSpec_NoTextOfARequestCanBeAnAddress(t *testing.T) {
	texts := 0
	requested(t, func(name string, schema *openapi3.Schema) {
		if !schema.Type.Is("string") || strings.HasSuffix(name, headerKey) {
			return
		}
		texts++
		for _, address := range []string{"http://127.0.0.1/", "//host/", "file:///etc/passwd", "10.0.0.7:5432"} {
			if schema.VisitJSON(address) == nil {
				t.Errorf("%s can be %s", name, address)
			}
		}
	})
	if texts < 10 {
		t.Errorf("%d texts: this tests nothing", texts)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
